// @ts-check
/** A figure that the service draws, in the colours of the page. */

import { h, link } from "./dom.js";
import { address } from "./http.js";
import { theme } from "./state.js";

const SMALL = ["members", "decomposition", "naive"];
const AT_ONCE = 2; // drawing takes a while: what else is asked for must not wait behind it
const TRIES = 3;

/** @type {HTMLImageElement[]} */
const waiting = [];
let nLoading = 0;

/** Load those that are looked at, a few at a time. */
function loadNext() {
  while (nLoading < AT_ONCE) {
    const image = waiting.shift();
    if (!image) return;
    if (!image.isConnected) continue;
    nLoading += 1;
    const end = new AbortController(); // whichever comes first, once
    const done = () => {
      end.abort();
      nLoading -= 1;
      loadNext();
    };
    for (const type of ["load", "error"]) image.addEventListener(type, done, { signal: end.signal });
    image.setAttribute("src", address(`${image.dataset.base}.svg?theme=${theme()}`));
  }
}

/** @param {HTMLImageElement} image */
function load(image) {
  image.classList.remove("is-drawn"); // as it shall be now
  if (!waiting.includes(image)) waiting.push(image);
  loadNext();
}

const watcher = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      watcher.unobserve(target);
      load(/** @type {HTMLImageElement} */ (target));
    }
  },
  { rootMargin: "500px" },
);

addEventListener("theme", () => {
  for (const image of document.querySelectorAll("img[data-base][src]")) load(/** @type {HTMLImageElement} */ (image));
});

/**
 * @param {string} path of the job
 * @param {any} each one of its figures
 * @param {string | null | undefined} sentence
 */
export function figure(path, each, sentence) {
  const base = `${path}/figures/${each.name}`;
  const image = h("img", { alt: sentence ?? each.about, decoding: "async", data: { base } });
  const missing = h("p", { class: "hint", hidden: true }, "The service cannot draw this figure now: the package for it may not be installed there.");
  let left = TRIES;
  image.addEventListener("load", () => image.classList.add("is-drawn"));
  image.addEventListener("error", () => {
    left -= 1;
    image.hidden = left === 0;
    missing.hidden = left > 0;
    if (left > 0) setTimeout(() => load(image), 2000); // it may have been busy
  });
  watcher.observe(image);
  const about = [link("Full size", address(`${base}.svg`), { target: "_blank", rel: "noopener" }), link("PNG", address(`${base}.png`), { download: `${each.name}.png` }), link("Vega-Lite", address(`${base}.json`), { download: `${each.name}.json` })];
  return h(
    "div",
    { class: "figure" },
    sentence && h("p", { class: "said" }, sentence),
    // Its size is known before it comes: nothing jumps.
    h("div", { class: SMALL.includes(each.name) ? "paper is-low" : "paper" }, image, missing),
    h("p", { class: "hint" }, each.about, " ", about.map((way, i) => [i > 0 && " · ", way])),
  );
}
