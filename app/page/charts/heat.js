// @ts-check
/** The cells of a sweep over two of its settings, shaded by one measure. */

import { h } from "../dom.js";
import { num } from "../format.js";

/**
 * @typedef {{name: string, measure: string, isLess: boolean, digits?: number}} Shown
 * @param {any} comparison of a sweep
 * @param {Shown} shown what is shaded, and whether less of it is better
 * @param {{down: string, across: string, cell: number | null}} chosen
 * @param {(cell: any) => void} open
 */
export function heatMap(comparison, { name, measure, isLess }, { down, across, cell: chosen }, open) {
  const value = (/** @type {any} */ cell) => cell.val?.[measure]?.mean ?? null;
  const cells = comparison.cells.filter((/** @type {any} */ each) => down in each.settings && across in each.settings);
  const known = cells.map(value).filter((/** @type {any} */ each) => each !== null);
  if (!known.length) return null;
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const axis = (/** @type {string} */ each) => [...new Set(cells.map((/** @type {any} */ cell) => cell.settings[each]))].sort((a, b) => Number(a) - Number(b));
  const best = measure === "ece" ? comparison.best_calibration : measure === "score" ? comparison.best_score : null;
  const box = (/** @type {any[]} */ found) => {
    // Of several cells at one place, which differ in a third setting, the best is shown.
    const [cell] = found.sort((a, b) => (isLess ? 1 : -1) * ((value(a) ?? 0) - (value(b) ?? 0)));
    if (!cell || value(cell) === null) return h("td", {}, h("span", { class: "faint" }, "…"));
    const share = high > low ? (isLess ? (high - value(cell)) / (high - low) : (value(cell) - low) / (high - low)) : 0.5;
    const isTied = measure === "score" && comparison.tied.includes(cell.cell);
    const mark = cell.cell === best ? "★" : isTied ? "≈" : "";
    // No shade between those on which dark words can be read, and light ones.
    const shade = share < 0.5 ? 0.64 * share : 0.74 + 0.52 * (share - 0.5);
    const look = [share >= 0.5 && "is-strong", cell.cell === best ? "is-best" : isTied && "is-near", cell.cell === chosen && "is-chosen"].filter(Boolean).join(" ");
    const words = `${name} ${num(value(cell), 3)} at ${down} ${cell.settings[down]}, ${across} ${cell.settings[across]}${mark === "★" ? ", the best" : mark ? ", within noise of the best" : ""}`;
    return h("td", {}, h("button", { type: "button", class: look, "aria-label": words, style: { "--share": `${Math.round(100 * shade)}%` }, on: { click: () => open(cell) } }, num(value(cell), measure === "score" ? 3 : 2), mark && h("sup", { "aria-hidden": "true" }, mark)));
  };
  const at = (/** @type {any} */ y, /** @type {any} */ x) => cells.filter((/** @type {any} */ each) => each.settings[down] === y && each.settings[across] === x);
  return h(
    "div",
    { class: "chart-box" },
    h("h3", {}, name),
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": `${name} by cell` },
      h(
        "table",
        { class: "heat" },
        h("thead", {}, h("tr", {}, h("th", {}, h("span", { class: "visually-hidden" }, down)), axis(across).map((each) => h("th", { scope: "col" }, String(each))))),
        h("tbody", {}, axis(down).map((y) => h("tr", {}, h("th", { scope: "row" }, String(y)), axis(across).map((x) => box(at(y, x)))))),
      ),
    ),
    h("p", { class: "hint" }, `${down} down, ${across} across`),
  );
}
