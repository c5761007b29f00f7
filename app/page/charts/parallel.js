// @ts-check
/** Parallel coordinates: each trial is a line through its settings to its score. */

import { fill, h, s } from "../dom.js";
import { num } from "../format.js";
import { linear } from "./scale.js";

const [WIDTH, HEIGHT, TOP, BOTTOM, SIDE] = [980, 270, 34, 24, 46];

/**
 * @param {{name: string, values: any[]}[]} axes the trials' numbers first, their scores last
 * @param {{isLess: boolean, best: number | null, metric: string}} options
 * @param {(trial: number) => void} open
 */
export function parallel(axes, { isLess, best, metric }, open) {
  const trials = axes[0].values;
  const shown = axes.slice(1).filter((axis, i) => i === axes.length - 2 || new Set(axis.values).size > 1);
  if (trials.length < 2 || shown.length < 2) return null;
  const scales = shown.map((axis) => scaleOf(axis.values));
  const place = linear([0, shown.length - 1], [SIDE, WIDTH - SIDE]);
  const scores = axes.at(-1)?.values ?? [];
  const [low, high] = [Math.min(...scores), Math.max(...scores)];
  const goodness = (/** @type {number} */ i) => (high > low ? (isLess ? high - scores[i] : scores[i] - low) / (high - low) : 1);
  const words = h("p", { class: "hint" }, "Each line is a trial; the bluer, the better. Move over one to read it, click it to open it.");
  const line = (/** @type {number} */ i) => shown.map((axis, j) => `${place(j)},${scales[j].height(axis.values[i])}`).join(" ");
  const tell = (/** @type {number} */ i) => fill(words, `Trial ${trials[i]}: ${shown.slice(0, -1).map((axis) => `${axis.name} ${show(axis.values[i])}`).join(", ")}; ${metric} ${num(scores[i])}.`);
  const order = trials.map((_, i) => i).sort((a, b) => goodness(a) - goodness(b)); // the best on top
  const svg = s(
    "svg",
    { class: "chart parallel", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${trials.length} trials by ${shown.map((each) => each.name).join(", ")}` },
    order.map((i) =>
      s("polyline", {
        class: trials[i] === best ? "line trial is-best" : "line trial",
        points: line(i),
        style: { "--share": `${Math.round(100 * goodness(i))}%`, opacity: 0.35 + 0.6 * goodness(i) },
        on: { pointerenter: () => tell(i), click: () => open(trials[i]) },
      }),
    ),
    shown.map((axis, j) => [
      s("line", { class: "axis", x1: place(j), x2: place(j), y1: TOP, y2: HEIGHT - BOTTOM }),
      s("text", { class: "axis-name", x: place(j), y: 14, "text-anchor": "middle" }, j === shown.length - 1 ? metric : axis.name),
      scales[j].ends.map(([text, y]) => s("text", { x: place(j), y: y < HEIGHT / 2 ? TOP - 6 : HEIGHT - 8, "text-anchor": "middle" }, text)),
    ]),
  );
  return h("div", { class: "chart-box" }, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Parallel coordinates" }, svg), words);
}

/** @param {any} value */
function show(value) {
  return typeof value === "number" ? num(value, 3) : String(value);
}

/** Where values lie on an axis: numbers by size, or its logarithm; others side by side. @param {any[]} values */
function scaleOf(values) {
  const room = /** @type {[number, number]} */ ([HEIGHT - BOTTOM, TOP]);
  if (!values.every((each) => typeof each === "number")) {
    const all = [...new Set(values.map(String))].sort();
    const at = linear([0, Math.max(1, all.length - 1)], room);
    /** @type {[string, number][]} */
    const ends = all.length > 1 ? [[all[0], at(0)], [all[all.length - 1], at(all.length - 1)]] : [[all[0], at(0)]];
    return { height: (/** @type {any} */ value) => at(all.indexOf(String(value))), ends };
  }
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const isWide = low > 0 && high / low > 20;
  const scale = isWide ? linear([Math.log(low), Math.log(high)], room) : linear([low, high], room);
  /** @type {[string, number][]} */
  const ends = [[num(low, 2), room[0]], [num(high, 2), room[1]]];
  return { height: (/** @type {number} */ value) => scale(isWide ? Math.log(value) : value), ends };
}
