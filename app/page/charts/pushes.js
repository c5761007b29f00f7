// @ts-check
/** What pushes an answer up or down, column by column. */

import { h } from "../dom.js";
import { num } from "../format.js";

const SHOWN = 10;

/** @param {any} explanation of a row @param {Record<string, any>} row */
export function pushes({ label, base, values, standard_error: errors }, row) {
  const all = Object.entries(values).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const most = Math.max(...all.map(([, each]) => Math.abs(each)), 1e-12);
  const rest = all.slice(SHOWN).reduce((sum, [, each]) => sum + each, 0);
  const what = label === null || label === undefined ? "The answer" : `The probability of ${label}`;
  return h(
    "div",
    { class: "pushes" },
    h("p", { class: "hint" }, `${what} starts from ${num(base, 3)}, the mean over training rows; each column then pushes it.`),
    all.slice(0, SHOWN).map(([name, each]) => push(name, row[name], each, errors[name], most)),
    all.length > SHOWN && h("p", { class: "hint" }, all.length === SHOWN + 1 ? `The last column adds ${num(rest, 2)}.` : `The other ${all.length - SHOWN} columns add ${num(rest, 2)} together.`),
  );
}

/** @param {string} name @param {any} value @param {number} each @param {number} error @param {number} most */
function push(name, value, each, error, most) {
  const share = `${(50 * Math.abs(each)) / most}%`;
  const side = each < 0 ? { "margin-left": `calc(50% - ${share})` } : { "margin-left": "50%" };
  return h(
    "div",
    { class: "push" },
    h("span", { class: "push-name" }, name, " ", h("span", { class: "faint" }, value === null ? "missing" : String(value))),
    h("span", { class: "push-track", "aria-hidden": "true" }, h("i", { class: each < 0 ? "is-down" : "is-up", style: { width: share, ...side } })),
    h("b", { class: "numeric", title: `± ${num(error, 2)}` }, `${each > 0 ? "+" : "−"}${num(Math.abs(each), 2)}`),
  );
}
