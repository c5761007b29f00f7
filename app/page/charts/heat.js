// @ts-check
/** The cells of a sweep over two of its settings, shaded by one measure. */

import { h } from "../dom.js";
import { even, num } from "../format.js";

/**
 * @typedef {{name: string, measure: string, isLess: boolean}} Shown
 * @typedef {{down: string | null, across: string, fixed: Map<string, any>, cell: number | null}} Chosen
 * `down`: null of a sweep over one setting; `fixed`: other settings and their one value.
 */

/** Those cells of a sweep that have a place on the map. @param {any} comparison @param {Chosen} chosen @returns {any[]} */
export function cellsOn({ cells }, { down, across, fixed }) {
  return cells.filter((/** @type {any} */ { settings }) => across in settings && (down === null || down in settings) && [...fixed].every(([name, value]) => settings[name] === value));
}

/** The values of a setting, in their order. @param {any[]} cells @param {string} name @returns {any[]} */
export function valuesOf(cells, name) {
  const values = [...new Set(cells.filter(({ settings }) => name in settings).map(({ settings }) => settings[name]))];
  return values.every((each) => typeof each === "number") ? values.sort((a, b) => a - b) : values;
}

/** A value in words. @param {any} value */
export function valueWords(value) {
  return value === true ? "yes" : value === false ? "no" : String(value ?? "none");
}

/**
 * @param {any} comparison of a sweep
 * @param {Shown} shown what is shaded, and whether less of it is better
 * @param {Chosen} chosen
 * @param {(cell: any) => void} open
 */
export function heatMap(comparison, shown, chosen, open) {
  const { name, measure } = shown;
  const { down, across } = chosen;
  const cells = cellsOn(comparison, chosen);
  const known = cells.map((each) => valueOf(each, measure)).filter((each) => each !== null);
  if (!known.length) return null;
  const range = [Math.min(...known), Math.max(...known)];
  const rows = down === null ? [null] : valuesOf(cells, down);
  const columns = valuesOf(cells, across);
  const at = (/** @type {any} */ y, /** @type {any} */ x) => cells.filter(({ settings }) => (down === null || settings[down] === y) && settings[across] === x);
  const box = (/** @type {any[]} */ found) => h("td", {}, button(comparison, found, shown, { range, chosen, open }));
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
        h("thead", {}, h("tr", {}, down !== null && h("th", {}, h("span", { class: "visually-hidden" }, down)), columns.map((each) => h("th", { scope: "col" }, valueWords(each))))),
        h("tbody", {}, rows.map((y) => h("tr", {}, down !== null && h("th", { scope: "row" }, valueWords(y)), columns.map((x) => box(at(y, x)))))),
      ),
    ),
    h("p", { class: "hint" }, down === null ? `${across} across` : `${down} down, ${across} across`),
  );
}

/** @param {any} cell @param {string} measure @returns {number | null} */
function valueOf(cell, measure) {
  return cell.val?.[measure]?.mean ?? null;
}

/**
 * @param {any} comparison
 * @param {any[]} found the cells at one place, which differ in other settings: the best is shown
 * @param {Shown} shown
 * @param {{range: number[], chosen: Chosen, open: (cell: any) => void}} map
 */
function button(comparison, found, { name, measure, isLess }, { range: [low, high], chosen: { cell: chosen, down, across }, open }) {
  const ended = found.filter((each) => valueOf(each, measure) !== null);
  if (!ended.length) return h("span", { class: "faint" }, found.length ? "…" : "");
  const value = (/** @type {any} */ cell) => /** @type {number} */ (valueOf(cell, measure));
  const cell = ended.reduce((a, b) => ((isLess ? value(b) < value(a) : value(b) > value(a)) ? b : a));
  const share = high > low ? (isLess ? high - value(cell) : value(cell) - low) / (high - low) : 0.5;
  const best = measure === "ece" ? comparison.best_calibration : measure === "score" ? comparison.best_model : null;
  const isTied = measure === "score" && comparison.tied.includes(cell.cell);
  const mark = cell.cell === best ? "★" : isTied ? "≈" : "";
  // No shade between those on which dark words can be read, and light ones.
  const shade = share < 0.5 ? 0.64 * share : 0.74 + 0.52 * (share - 0.5);
  const look = [share >= 0.5 && "is-strong", cell.cell === best ? "is-best" : isTied && "is-near", cell.cell === chosen && "is-chosen"].filter(Boolean).join(" ");
  const place = [down, across].filter((each) => each !== null).map((each) => `${each} ${valueWords(cell.settings[/** @type {string} */ (each)])}`).join(", ");
  const words = `${name} ${num(value(cell), 3)} at ${place}${mark === "★" ? ", the best" : mark ? ", within noise of the best" : ""}`;
  return h("button", { type: "button", class: look, "aria-label": words, style: { "--share": `${Math.round(100 * shade)}%` }, on: { click: () => open(cell) } }, even(value(cell), measure === "score" ? 3 : 2), mark && h("sup", { "aria-hidden": "true" }, mark));
}
