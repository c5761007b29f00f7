// @ts-check
/** A figure that the service draws, in the colours of the page. */

import { h, link } from "./dom.js";
import { address } from "./http.js";
import { theme } from "./state.js";

/**
 * @param {string} path of the job
 * @param {any} each one of its figures
 * @param {string | null | undefined} sentence
 */
export function figure(path, each, sentence) {
  const base = `${path}/figures/${each.name}`;
  const image = h("img", { alt: sentence ?? each.about, loading: "lazy", decoding: "async" });
  const load = () => image.setAttribute("src", address(`${base}.svg?theme=${theme()}`));
  const missing = h("p", { class: "hint", hidden: true }, "The service cannot draw this figure now: the package for it may not be installed there.");
  let left = 3; // many at once are too many for the service, which says so
  image.addEventListener("error", () => {
    left -= 1;
    image.hidden = left === 0;
    missing.hidden = left > 0;
    if (left > 0) setTimeout(load, 2000);
  });
  image.addEventListener("load", () => paper.classList.add("is-drawn"));
  const paper = h("div", { class: "paper" }, image, missing);
  load();
  const again = () => {
    if (!image.isConnected) removeEventListener("theme", again);
    else load();
  };
  addEventListener("theme", again);
  return h(
    "div",
    { class: "figure" },
    sentence && h("p", { class: "said" }, sentence),
    paper,
    h("p", { class: "hint" }, each.about, " ", link("PNG", address(`${base}.png`), { download: `${each.name}.png` }), " · ", link("Vega-Lite", address(`${base}.json`), { download: `${each.name}.json` })),
  );
}
