// @ts-check
/** How the answer moves with a column: the ensemble's line inside the band of its members. */

import { fill, h, s } from "../dom.js";
import { num } from "../format.js";
import { select } from "../parts.js";
import { extent, linear, ticks } from "./scale.js";

const WIDTH = 380;
const HEIGHT = 200;
const [LEFT, RIGHT, TOP, BOTTOM] = [46, 10, 10, 26];
const LEVELS = 9; // of a category that are told apart

/** @param {any} effects of a report */
export function effectCharts(effects) {
  const labels = [...new Set(effects.columns.flatMap((/** @type {any} */ each) => each.outputs.map((/** @type {any} */ output) => output.label)))];
  const charts = h("div", { class: "grid-3" });
  let label = labels.at(-1) ?? null;
  const draw = () =>
    fill(
      charts,
      effects.columns.map((/** @type {any} */ each) => {
        const output = each.outputs.find((/** @type {any} */ one) => one.label === label);
        return output && effectChart(each, output);
      }),
    );
  draw();
  const choice =
    labels.length > 1 &&
    h("label", { class: "row small" }, "Probability of", select(labels.map((each, i) => [String(i), String(each)]), String(labels.indexOf(label)), (at) => ((label = labels[Number(at)]), draw()), { class: "small" }));
  return [choice, charts];
}

/** @param {any} effect @param {any} output */
function effectChart(effect, output) {
  const name = effect.part ? `${effect.column} (${effect.part})` : effect.column;
  const moved = Math.max(...output.mean) - Math.min(...output.mean);
  const apart = average(output.mean.map((/** @type {number} */ _, /** @type {number} */ i) => spread(output.members, i)));
  const told = `It moves the answer by up to ${num(moved, 2)}; members are ${num(apart, 2)} apart.`;
  const isNumber = effect.grid.every((/** @type {any} */ each) => typeof each === "number");
  const picture = isNumber ? curve(effect, output, name) : levels(effect, output, name);
  return h("div", { class: "chart-box" }, h("h3", { class: "wrap" }, name), picture.svg, h("p", { class: "hint" }, told), picture.words);
}

/** @param {number[]} values */
function average(values) {
  return values.reduce((sum, each) => sum + each, 0) / values.length;
}

/** @param {number[][]} members @param {number} i */
function spread(members, i) {
  const all = members.map((each) => each[i]);
  return Math.max(...all) - Math.min(...all);
}

/** @param {any} output @param {string} name */
function frame({ mean, members }, name) {
  const domain = extent([...mean, ...members.flat()]);
  const height = linear(domain, [HEIGHT - BOTTOM, TOP]);
  const svg = s("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `The answer by ${name}: from ${num(mean[0])} to ${num(mean.at(-1))}` });
  fill(
    svg,
    ticks(...domain).map((y) => [
      s("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: height(y), y2: height(y) }),
      s("text", { x: LEFT - 8, y: height(y) + 4, "text-anchor": "end" }, num(y, 3)),
    ]),
  );
  return { svg, height };
}

/** @param {any} effect @param {any} output @param {string} name */
function curve({ grid }, { mean, members }, name) {
  const { svg, height } = frame({ mean, members }, name);
  const place = linear([grid[0], grid.at(-1)], [LEFT, WIDTH - RIGHT]);
  const line = (/** @type {number[]} */ values) => values.map((each, i) => `${place(grid[i])},${height(each)}`);
  const all = (/** @type {number} */ i) => members.map((/** @type {number[]} */ each) => each[i]);
  const upper = line(grid.map((/** @type {number} */ _, /** @type {number} */ i) => Math.max(...all(i))));
  const lower = line(grid.map((/** @type {number} */ _, /** @type {number} */ i) => Math.min(...all(i))));
  const mark = s("g", {});
  svg.append(
    ...ticks(grid[0], grid.at(-1), 5).map((each) => s("text", { x: place(each), y: HEIGHT - 8, "text-anchor": "middle" }, num(each, 3))),
    s("polygon", { class: "fill-band", points: [...upper, ...lower.reverse()].join(" ") }),
    ...members.slice(0, 32).map((/** @type {number[]} */ each) => s("polyline", { class: "line member-line", points: line(each).join(" ") })),
    s("polyline", { class: "line main", points: line(mean).join(" ") }),
    mark,
  );
  const words = h("p", { class: "hint" }, "Band: all members. Line: their mean.");
  svg.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * WIDTH;
    const i = grid.reduce((/** @type {number} */ best, /** @type {number} */ each, /** @type {number} */ j) => (Math.abs(place(each) - at) < Math.abs(place(grid[best]) - at) ? j : best), 0);
    fill(mark, s("line", { class: "cross", x1: place(grid[i]), x2: place(grid[i]), y1: TOP, y2: HEIGHT - BOTTOM }), s("circle", { class: "mark fill-main", cx: place(grid[i]), cy: height(mean[i]), r: 4 }));
    fill(words, `At ${num(grid[i])}: ${num(mean[i])}, members from ${num(Math.min(...all(i)), 3)} to ${num(Math.max(...all(i)), 3)}.`);
  });
  return { svg, words };
}

/** @param {any} effect @param {any} output @param {string} name */
function levels({ grid }, { mean, members }, name) {
  const kept = grid.map((/** @type {string} */ _, /** @type {number} */ i) => i).slice(0, LEVELS);
  const cut = (/** @type {number[]} */ values) => kept.map((/** @type {number} */ i) => values[i]);
  const { svg, height } = frame({ mean: cut(mean), members: members.map(cut) }, name);
  const step = (WIDTH - LEFT - RIGHT) / kept.length;
  kept.forEach((/** @type {number} */ i) => {
    const x = LEFT + (i + 0.5) * step;
    const all = members.map((/** @type {number[]} */ each) => each[i]);
    svg.append(
      s("line", { class: "band-line", x1: x, x2: x, y1: height(Math.min(...all)), y2: height(Math.max(...all)) }),
      s("circle", { class: "mark fill-main", cx: x, cy: height(mean[i]), r: 5 }, s("title", {}, `${grid[i]}: ${num(mean[i])}`)),
      s("text", { x, y: HEIGHT - 8, "text-anchor": "middle" }, shorten(String(grid[i]) || "missing", step)),
    );
  });
  const left = grid.length - kept.length;
  return { svg, words: h("p", { class: "hint" }, left > 0 ? `Bars: all members. And ${left} more levels.` : "Bars: all members. Dots: their mean.") };
}

/** @param {string} text @param {number} room */
function shorten(text, room) {
  const most = Math.max(2, Math.floor(room / 6.6));
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
