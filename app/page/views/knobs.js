// @ts-check
/** How the members differ: the two settings of the paper, as a plane and as sliders. */

import { RANKS, SIGMAS, nearest, plane } from "../charts/plane.js";
import { fill, h } from "../dom.js";

/** @param {any} config @param {() => void} changed */
export function makeKnobs(config, changed) {
  const rank = h("input", { type: "range", min: 0, max: RANKS.length - 1, step: 1, "aria-label": "Rank" });
  const sigma = h("input", { type: "range", min: 0, max: SIGMAS.length - 1, step: 1, "aria-label": "sigma_init" });
  const [rankText, sigmaText] = [h("b", {}), h("b", {})];
  const picture = plane((r, sd) => choose(r, sd));
  const choose = (/** @type {number} */ r, /** @type {number} */ sd) => {
    config.hyperparameters.rank = r;
    config.hyperparameters.sigma_init = sd;
    draw(r, sd);
    changed();
  };
  const draw = (/** @type {number} */ r, /** @type {number} */ sd) => {
    rank.value = String(nearest(RANKS, r));
    sigma.value = String(nearest(SIGMAS, Math.max(sd, SIGMAS[0])));
    rank.setAttribute("aria-valuetext", String(r));
    sigma.setAttribute("aria-valuetext", String(sd));
    fill(rankText, String(r));
    fill(sigmaText, String(sd));
    picture.update(r, sd);
  };
  for (const each of [rank, sigma]) each.addEventListener("input", () => choose(RANKS[rank.value], SIGMAS[sigma.value]));
  return {
    element: h(
      "div",
      { class: "knobs" },
      picture.element,
      h(
        "div",
        { class: "stack" },
        h("label", { class: "field" }, h("span", { class: "label" }, "Rank ", rankText), rank, h("span", { class: "hint" }, "How freely each member's mask can bend the shared weights.")),
        h("label", { class: "field" }, h("span", { class: "label" }, "sigma_init ", sigmaText), sigma, h("span", { class: "hint" }, "How far apart the members start: more gives more diverse members.")),
      ),
    ),
    /** As the service would have it. @param {any} plan */
    show: (plan) => draw(plan.hyperparameters.rank, plan.hyperparameters.sigma_init),
  };
}
