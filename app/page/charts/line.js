// @ts-check
/** Lines over epochs, with what they are where the pointer is. */

import { fill, h, s } from "../dom.js";
import { num } from "../format.js";
import { extent, linear, ticks } from "./scale.js";

const WIDTH = 380;
const HEIGHT = 190;
const LEFT = 46;
const BOTTOM = 26;

/**
 * @typedef {{name: string, look: string, points: [number, number][]}} Series
 * @param {{title: string, x: string}} words
 */
export function lineChart({ title, x }) {
  const svg = s("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title });
  const legend = h("div", { class: "legend" });
  const element = h("div", { class: "chart-box" }, h("h3", {}, title), svg, legend);
  /** @type {Series[]} */
  let shown = [];
  let place = linear([0, 1], [LEFT, WIDTH - 8]);
  let height = linear([0, 1], [HEIGHT - BOTTOM, 8]);
  /** @type {number | null} */
  let mark = null;

  const read = (/** @type {number | null} */ at) => {
    fill(
      legend,
      shown.map(({ name, look, points }) => {
        const found = at === null ? points.at(-1) : points.find(([each]) => each === at);
        return h("span", {}, h("i", { class: look }), name, " ", h("b", {}, found ? num(found[1]) : "–"));
      }),
      at !== null && h("span", {}, `${x} ${at}`),
    );
  };

  /** @param {number | null} at */
  const cross = (at) => {
    svg.querySelector(".hover")?.remove();
    read(at ?? mark);
    if (at === null) return;
    const group = s("g", { class: "hover" }, s("line", { class: "cross", x1: place(at), x2: place(at), y1: 8, y2: HEIGHT - BOTTOM }));
    for (const { look, points } of shown) {
      const found = points.find(([each]) => each === at);
      if (found) group.append(s("circle", { class: `mark fill-${look}`, cx: place(at), cy: height(found[1]), r: 4 }));
    }
    svg.append(group);
  };

  svg.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * WIDTH;
    const all = shown[0]?.points ?? [];
    if (!all.length) return;
    cross(all.reduce((best, [each]) => (Math.abs(place(each) - at) < Math.abs(place(best) - at) ? each : best), all[0][0]));
  });
  svg.addEventListener("pointerleave", () => cross(null));

  return {
    element,
    /** @param {Series[]} series @param {number | null} [best] the epoch that is kept */
    update(series, best = null) {
      shown = series;
      mark = best;
      const points = series.flatMap((each) => each.points);
      const last = Math.max(2, ...points.map(([each]) => each));
      const domain = extent(points.map(([, y]) => y));
      place = linear([1, last], [LEFT, WIDTH - 8]);
      height = linear(domain, [HEIGHT - BOTTOM, 8]);
      fill(
        svg,
        ticks(...domain).map((y) => [
          s("line", { class: "grid", x1: LEFT, x2: WIDTH - 8, y1: height(y), y2: height(y) }),
          s("text", { x: LEFT - 8, y: height(y) + 4, "text-anchor": "end" }, num(y, 3)),
        ]),
        ticks(1, last, 5).filter(Number.isInteger).map((each) => s("text", { x: place(each), y: HEIGHT - 7, "text-anchor": "middle" }, String(each))),
        best !== null && s("line", { class: "line faint-line", x1: place(best), x2: place(best), y1: 8, y2: HEIGHT - BOTTOM }),
        series.map(({ look, points: mine }) =>
          mine.length === 1
            ? s("circle", { class: `fill-${look}`, cx: place(mine[0][0]), cy: height(mine[0][1]), r: 3 })
            : s("polyline", { class: `line ${look}`, points: mine.map(([a, b]) => `${place(a)},${height(b)}`).join(" ") }),
        ),
      );
      svg.setAttribute("aria-label", `${title}: ${series.map(({ name, points: mine }) => `${name} ${num(mine.at(-1)?.[1])}`).join(", ")}`);
      read(best);
    },
  };
}
