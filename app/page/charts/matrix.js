// @ts-check
/** How far each pair of members differs: similar ones side by side. */

import { fill, h, s } from "../dom.js";
import { num } from "../format.js";
import { theme } from "../state.js";

const MOST = 64; // cells of more members are drawn without an element of each

/** An order in which each is followed by the nearest that is left. @param {number[][]} matrix */
export function bySimilarity(matrix) {
  const total = matrix.map((row) => row.reduce((sum, each) => sum + each, 0));
  const left = new Set(matrix.keys());
  let at = total.indexOf(Math.min(...total));
  const order = [];
  while (left.size) {
    left.delete(at);
    order.push(at);
    const here = at;
    at = [...left].reduce((best, each) => (matrix[here][each] < matrix[here][best] ? each : best), [...left][0]);
  }
  return order;
}

/** @param {number[][]} matrix @param {string} title */
export function pairMatrix(matrix, title) {
  const order = bySimilarity(matrix);
  const apart = matrix.flatMap((row, i) => row.filter((_, j) => i !== j));
  const [least, most] = [apart.reduce((a, b) => Math.min(a, b), Infinity), apart.reduce((a, b) => Math.max(a, b), 0)];
  const words = h("p", { class: "hint", "aria-live": "off" }, "Move over the cells to read them.");
  const tell = (/** @type {number} */ i, /** @type {number} */ j) => fill(words, `Members ${order[i]} and ${order[j]}: ${num(matrix[order[i]][order[j]])}`);
  /** Between the most alike pair and the most different one. @type {(i: number, j: number) => number} */
  const shade = (i, j) => (i === j ? 0 : most > least ? 0.08 + (0.92 * (matrix[order[i]][order[j]] - least)) / (most - least) : 0.5);
  const picture = order.length <= MOST ? cells(order.length, shade, title) : canvas(order.length, shade, title);
  picture.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    const box = picture.getBoundingClientRect();
    const at = (/** @type {number} */ x, /** @type {number} */ size) => Math.min(order.length - 1, Math.max(0, Math.floor((x / size) * order.length)));
    tell(at(event.clientY - box.top, box.height), at(event.clientX - box.left, box.width));
  });
  return h("div", { class: "chart-box matrix" }, picture, words);
}

/** @param {number} n @param {(i: number, j: number) => number} shade @param {string} title */
function cells(n, shade, title) {
  const all = [];
  for (let i = 0; i < n; i += 1) {
    for (let j = 0; j < n; j += 1) all.push(s("rect", { class: "cell", x: j, y: i, width: 0.96, height: 0.96, "fill-opacity": (0.05 + 0.95 * shade(i, j)).toFixed(3) }));
  }
  return s("svg", { class: "chart", viewBox: `0 0 ${n} ${n}`, role: "img", "aria-label": title }, all);
}

/** @param {number} n @param {(i: number, j: number) => number} shade @param {string} title */
function canvas(n, shade, title) {
  const element = h("canvas", { width: n, height: n, role: "img", "aria-label": title, class: "cells" });
  const pen = element.getContext("2d");
  const draw = () => {
    pen.clearRect(0, 0, n, n);
    pen.fillStyle = theme() === "dark" ? "#9ad4ff" : "#08427c";
    for (let i = 0; i < n; i += 1) {
      for (let j = 0; j < n; j += 1) {
        pen.globalAlpha = 0.05 + 0.95 * shade(i, j);
        pen.fillRect(j, i, 1, 1);
      }
    }
  };
  draw();
  const again = () => (element.isConnected ? draw() : removeEventListener("theme", again));
  addEventListener("theme", again);
  return element;
}
