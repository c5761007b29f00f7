// @ts-check
/** A control for each column that a model takes, made from its schema. */

import { fill, h } from "../dom.js";
import { num } from "../format.js";

const STEPS = 200;

/**
 * @param {any} column of the model
 * @param {any} profile of the dataset, if it is still there
 * @param {() => void} changed
 * @returns {{name: string, element: Element, value: () => any}}
 */
export function inputFor(column, profile, changed) {
  if (column.kind === "categorical") return categories(column, profile, changed);
  if (column.kind === "datetime") return moment(column, changed);
  return numbers(column, profile, changed);
}

/** @param {any} column @param {any} profile @param {() => void} changed */
function numbers({ name, range }, profile, changed) {
  const [low, high] = (profile?.range ?? range ?? [0, 1]).map(plain);
  const start = profile?.quantiles?.["0.5"] ?? (low + high) / 2;
  const isWhole = Number.isInteger(low) && Number.isInteger(high) && high - low <= STEPS && Number.isInteger(start);
  const step = isWhole ? 1 : (high - low) / STEPS || 1;
  const slider = h("input", { type: "range", min: low, max: high, step: isWhole ? 1 : "any", value: start, "aria-label": `${name}, slider` });
  const exact = h("input", { type: "number", step: "any", value: round(start, step), placeholder: "missing", "aria-label": name });
  slider.addEventListener("input", () => {
    exact.value = round(Number(slider.value), step);
    changed();
  });
  exact.addEventListener("input", () => {
    if (exact.value !== "") slider.value = exact.value;
    changed();
  });
  const element = h("div", { class: "input" }, h("span", { class: "input-name" }, name), exact, slider, h("span", { class: "hint ends" }, h("span", {}, num(low, 3)), h("span", {}, num(high, 3))));
  return { name, element, value: () => (exact.value === "" ? null : Number(exact.value)) };
}

/** Without the noise of a number that was kept in few bits. @param {number} x */
function plain(x) {
  return Number(x.toPrecision(5));
}

/** @param {number} x @param {number} step */
function round(x, step) {
  const digits = Math.max(0, Math.min(10, 1 - Math.floor(Math.log10(step))));
  return String(Number(Number(x).toFixed(digits)));
}

/** @param {any} column @param {any} profile @param {() => void} changed */
function categories({ name, categories: all, n_rare: nRare }, profile, changed) {
  const first = profile?.top?.[0]?.value;
  const known = all.filter((/** @type {string} */ each) => each !== "");
  const control = h("select", { "aria-label": name }, known.map((/** @type {string} */ each) => h("option", { value: each, selected: each === first }, each)), h("option", { value: "" }, "missing"));
  control.addEventListener("change", changed);
  const about = nRare ? h("span", { class: "hint" }, `and ${nRare} rare ones that share an input`) : null;
  return { name, element: h("div", { class: "input is-wide" }, h("span", { class: "input-name" }, name), control, about), value: () => (control.value === "" ? null : control.value) };
}

/** @param {any} column @param {() => void} changed */
function moment({ name, range }, changed) {
  const toText = (/** @type {number} */ seconds) => new Date(1000 * seconds).toISOString().slice(0, 16);
  const [low, high] = range ?? [0, 0];
  const control = h("input", { type: "datetime-local", value: toText((low + high) / 2), "aria-label": name });
  const slider = h("input", { type: "range", min: low, max: high, step: Math.max(1, Math.round((high - low) / STEPS)), value: (low + high) / 2, "aria-label": `${name}, slider` });
  slider.addEventListener("input", () => {
    control.value = toText(Number(slider.value));
    changed();
  });
  control.addEventListener("input", changed);
  const ends = h("span", { class: "hint ends" });
  fill(ends, h("span", {}, toText(low).slice(0, 10)), h("span", {}, toText(high).slice(0, 10)));
  return { name, element: h("div", { class: "input" }, h("span", { class: "input-name" }, name), control, slider, ends), value: () => (control.value === "" ? null : control.value) };
}
