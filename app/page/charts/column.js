// @ts-check
/** A column in a few bars: how its numbers lie, or its most frequent values. */

import { s } from "../dom.js";
import { num, percent } from "../format.js";
import { linear } from "./scale.js";

const WIDTH = 132;
const HEIGHT = 30;

/** @param {any} column of a dataset's profile @param {number} nRows */
export function columnBars(column, nRows) {
  const isNumber = column.range !== null && column.quantiles !== null;
  const known = column.top ?? [];
  const isWhole = known.length > 0 && column.n_distinct <= known.length;
  if (isNumber && !isWhole) return densities(column);
  if (known.length) return levels(column, isNumber ? byNumber(known) : known, nRows);
  return null;
}

/** @param {{value: string, count: number}[]} top */
function byNumber(top) {
  return [...top].sort((a, b) => Number(a.value) - Number(b.value));
}

/** Between quantiles a known share of rows lies: its height is share by width. @param {any} column */
function densities({ name, range, quantiles }) {
  const inner = Object.entries(quantiles).map(([share, value]) => [Number(share), value]).sort((a, b) => a[0] - b[0]);
  const edges = [[0, range[0]], ...inner, [1, range[1]]];
  const parts = [];
  for (let i = 1; i < edges.length; i += 1) {
    const width = edges[i][1] - edges[i - 1][1];
    if (width > 0) parts.push({ from: edges[i - 1][1], to: edges[i][1], height: (edges[i][0] - edges[i - 1][0]) / width });
  }
  const tallest = Math.max(...parts.map((each) => each.height));
  const place = linear(range, [0, WIDTH]);
  const bars = parts.map(({ from, to, height }) => {
    const size = Math.max(1, (height / tallest) * (HEIGHT - 2));
    return s("rect", { x: place(from), y: HEIGHT - size, width: Math.max(1, place(to) - place(from) - 0.6), height: size });
  });
  const told = `${name}: from ${num(range[0])} to ${num(range[1])}, half of the rows between ${num(quantiles["0.25"])} and ${num(quantiles["0.75"])}`;
  return picture(told, bars);
}

/** @param {any} column @param {{value: string, count: number}[]} top @param {number} nRows */
function levels({ name, n_missing: nMissing }, top, nRows) {
  const rest = Math.max(0, nRows - nMissing - top.reduce((sum, each) => sum + each.count, 0));
  const all = [...top.map((each) => each.count), ...(rest ? [rest] : [])];
  const tallest = Math.max(...all, 1);
  const width = Math.min(16, WIDTH / all.length);
  const bars = all.map((n, i) => {
    const size = Math.max(1.5, (n / tallest) * (HEIGHT - 2));
    return s("rect", { class: i >= top.length ? "rest" : null, x: i * width, y: HEIGHT - size, width: width - 1.5, height: size });
  });
  const told = top.slice(0, 3).map((each) => `${each.value} ${percent(each.count / Math.max(1, nRows))}`).join(", ");
  return picture(`${name}: ${told}`, bars);
}

/** @param {string} told @param {Element[]} bars */
function picture(told, bars) {
  return s("svg", { class: "mini", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": told }, s("title", {}, told), bars);
}
