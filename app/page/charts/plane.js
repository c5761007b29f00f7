// @ts-check
/** The two settings of the paper as the plane they are: rank and sigma_init. */

import { fill, s } from "../dom.js";
import { linear } from "./scale.js";

export const RANKS = [1, 2, 4, 8, 16, 32, 64];
export const SIGMAS = [0.01, 0.03, 0.1, 0.3, 0.5, 1, 2, 3, 5, 10];
const WIDTH = 420;
const HEIGHT = 230;
const place = linear([0, SIGMAS.length - 1], [52, WIDTH - 16]);
const height = linear([0, RANKS.length - 1], [HEIGHT - 44, 16]);

/** @param {number[]} list @param {number} value */
export function nearest(list, value) {
  return list.reduce((best, each, i) => (Math.abs(Math.log(each / value)) < Math.abs(Math.log(list[best] / value)) ? i : best), 0);
}

/** @param {(rank: number, sigma: number) => void} onChange */
export function plane(onChange) {
  const svg = s("svg", {
    class: "chart plane",
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    role: "img",
    "aria-label": "Rank upwards, sigma_init to the right: more of either makes members more different. The sliders beside it do the same.",
  });
  const dot = s("g", {});
  fill(
    svg,
    s("defs", {}, s("linearGradient", { id: "more", x1: 0, y1: 1, x2: 1, y2: 0 },
      s("stop", { offset: "0", "stop-color": "var(--low)" }), s("stop", { offset: "1", "stop-color": "var(--main)", "stop-opacity": 0.38 }))),
    s("rect", { x: 38, y: 4, width: WIDTH - 42, height: HEIGHT - 36, rx: 8, fill: "url(#more)" }),
    SIGMAS.flatMap((_, i) => RANKS.map((__, j) => s("circle", { class: "fill-member", cx: place(i), cy: height(j), r: 1.6 }))),
    SIGMAS.map((each, i) => s("text", { x: place(i), y: HEIGHT - 18, "text-anchor": "middle" }, String(each))),
    RANKS.map((each, j) => s("text", { x: 33, y: height(j) + 4, "text-anchor": "end" }, String(each))),
    s("text", { x: (WIDTH + 38) / 2, y: HEIGHT - 2, "text-anchor": "middle" }, "sigma_init"),
    s("text", { x: 9, y: HEIGHT / 2 - 8, "text-anchor": "middle", transform: `rotate(-90 9 ${HEIGHT / 2 - 8})` }, "rank"),
    s("text", { x: 60, y: HEIGHT - 52 }, "members alike"),
    s("text", { x: WIDTH - 24, y: 31, "text-anchor": "end" }, "members differ"),
    dot,
  );
  const choose = (/** @type {PointerEvent} */ event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * WIDTH;
    const y = ((event.clientY - box.top) / box.height) * HEIGHT;
    const near = (/** @type {(i: number) => number} */ at, /** @type {number[]} */ list, /** @type {number} */ where) =>
      list.reduce((best, _, i) => (Math.abs(at(i) - where) < Math.abs(at(best) - where) ? i : best), 0);
    onChange(RANKS[near(height, RANKS, y)], SIGMAS[near(place, SIGMAS, x)]);
  };
  svg.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
    svg.setPointerCapture(event.pointerId);
    choose(event);
  });
  svg.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    if (event.buttons) choose(event);
  });
  return {
    element: svg,
    /** @param {number} rank @param {number} sigma */
    update(rank, sigma) {
      const x = place(nearest(SIGMAS, Math.max(sigma, SIGMAS[0])));
      const y = height(nearest(RANKS, rank));
      fill(dot, s("circle", { class: "fill-main", cx: x, cy: y, r: 9, opacity: 0.25 }), s("circle", { class: "mark fill-main", cx: x, cy: y, r: 6 }));
    },
  };
}
