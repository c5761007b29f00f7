// @ts-check
/** Which settings a sweep or a search tries: one line for each, as it is written. */

import { fill, h } from "../dom.js";
import { count } from "../format.js";
import { field, select } from "../parts.js";
import { bounds, parse, suggest } from "../schema.js";

/**
 * @typedef {{name: string, text: string}} Axis a setting, and its values as they are written
 * @typedef {import("../schema.js").Setting} Setting
 * @typedef {{values: any[]} | {low: number, high: number, step?: number | null, log?: boolean, or_zero?: boolean}} Distribution
 */

/**
 * A list of settings that people add to and take from.
 * @param {Axis[]} axes changed in place
 * @param {Setting[]} settings all that there are
 * @param {() => void} changed
 */
function axisRows(axes, settings, changed) {
  const rows = h("div", { class: "stack close" });
  const more = h("button", { type: "button", class: "small" }, "Add a setting");
  const free = (/** @type {Axis | null} */ own) => settings.filter(({ name }) => name === own?.name || !axes.some((each) => each.name === name));
  const draw = (/** @type {number} */ focused = -1) => {
    fill(rows, axes.map((axis) => axisRow(axis, free(axis), axes, { draw, changed })));
    more.hidden = free(null).length === 0;
    rows.children[focused]?.querySelector("select").focus(); // it was drawn anew
  };
  more.addEventListener("click", () => {
    const [next] = free(null);
    axes.push({ name: next.name, text: suggest(next) });
    draw(axes.length - 1);
    changed();
  });
  draw();
  return { elements: [rows, h("div", { class: "row" }, more)], draw };
}

/**
 * @param {Axis} axis
 * @param {Setting[]} settings those that it can be
 * @param {Axis[]} axes
 * @param {{draw: (focused: number) => void, changed: () => void}} told
 */
function axisRow(axis, settings, axes, { draw, changed }) {
  const about = (/** @type {string} */ name) => settings.find((each) => each.name === name);
  const found = about(axis.name);
  const values = h("input", { type: "text", value: axis.text, "aria-label": `Values of ${axis.name}`, on: { input: () => ((axis.text = values.value), changed()) } });
  const name = select(settings.map((each) => [each.name, each.label]), axis.name, (value) => {
    const next = about(value);
    Object.assign(axis, { name: value, text: next ? suggest(next) : "" });
    draw(axes.indexOf(axis));
    changed();
  }, { "aria-label": "Setting" });
  const remove = h("button", { type: "button", class: "quiet", "aria-label": `Leave out ${axis.name}`, disabled: axes.length === 1 }, "Leave out");
  remove.addEventListener("click", () => {
    axes.splice(axes.indexOf(axis), 1);
    draw(0);
    changed();
  });
  return h("div", { class: "axis-row" }, name, values, remove, found && h("p", { class: "hint" }, `${found.about} Values: ${bounds(found)}.`));
}

/** @param {string} text */
function split(text) {
  return text.split(/[,;\s]+/).filter(Boolean);
}

/** @param {Setting | undefined} setting @param {string} text */
function valuesOf(setting, text) {
  return split(text).map((each) => (setting ? parse(setting, each) : each));
}

// ---------------------------------------------------------------------------
// Sweeps

/**
 * Any settings, each with its values; all of them are crossed.
 * @param {{axes: Axis[], seeds: number}} sweep
 * @param {Setting[]} settings
 * @param {() => void} changed
 */
export function sweepFields(sweep, settings, changed) {
  const words = h("p", { class: "said" });
  const seeds = h("input", { type: "number", min: 1, max: 100, value: sweep.seeds, on: { input: () => ((sweep.seeds = Number(seeds.value)), update()) } });
  const tell = () => fill(words, sweepWords(sweep));
  const update = () => {
    tell();
    changed();
  };
  tell();
  return h("div", { class: "stack" }, h("p", { class: "faint" }, "Each value of every setting with each of the others, side by side."), axisRows(sweep.axes, settings, update).elements, h("div", { class: "fields" }, field("Seeds of each cell", seeds, "With more than one the noise is measured.")), words);
}

/** The grid as it is sent. @param {Axis[]} axes @param {Setting[]} settings */
export function gridOf(axes, settings) {
  return Object.fromEntries(axes.map(({ name, text }) => [name, valuesOf(settings.find((each) => each.name === name), text)]));
}

/** @param {{axes: Axis[], seeds: number}} sweep */
function sweepWords({ axes, seeds }) {
  const sizes = axes.map(({ text }) => new Set(split(text)).size);
  const n = sizes.reduce((product, each) => product * each, 1);
  const crossed = sizes.length > 1 ? `${sizes.join(" × ")} = ` : "";
  return `${crossed}${count(n, "cell")}${seeds > 1 ? `, ${count(n * seeds, "run")}` : ""}.`;
}

// ---------------------------------------------------------------------------
// Searches

/** Spaces by their names in the service's plan, and what they are for. */
const SPACES = /** @type {[string, string][]} */ ([
  ["paper", "the paper's whole space"],
  ["near", "near the settings of the preset"],
]);

/**
 * How long a search is, and where it looks.
 * @param {{n_trials: number, seeds: number, finalists: number}} tune
 * @param {Setting[]} settings
 * @param {() => void} changed
 */
export function tuneFields(tune, settings, changed) {
  const numbers = [["n_trials", "Trials", 1000], ["finalists", "Finalists", 10], ["seeds", "Seeds of the winner", 16]].map(([name, label, max]) => {
    const input = h("input", { type: "number", min: 1, max, value: /** @type {any} */ (tune)[name], on: { input: () => ((/** @type {any} */ (tune)[name] = Number(input.value)), changed()) } });
    return field(String(label), input);
  });
  /** @type {Axis[]} */
  const axes = [];
  /** As the service has told them. @type {Record<string, Record<string, Distribution>>} */
  let spaces = {};
  let [chosen, isOwn] = ["paper", false];
  const rows = axisRows(axes, settings, () => {
    isOwn = true;
    changed();
  });
  const take = () => {
    axes.splice(0, axes.length, ...Object.entries(spaces[chosen] ?? {}).map(([name, each]) => ({ name, text: write(each) })));
    rows.draw();
  };
  const where = select(SPACES, chosen, (value) => {
    [chosen, isOwn] = [value, false];
    take();
    changed();
  });
  const element = h(
    "div",
    { class: "stack" },
    h("p", { class: "faint" }, "Trial by trial, each drawn by what the others came to. The best few are tried again with other seeds, and the winner becomes the model."),
    h("div", { class: "fields" }, numbers),
    h("div", { class: "fields" }, field("It looks in", where, "A choice to begin with: change what you like.")),
    rows.elements,
    h("p", { class: "hint" }, "Some values, as in “1, 2, 4”; or “64 to 1024”, with “step 16” or “log” after it, or “0 or” before it."),
  );
  return {
    element,
    /** What a search may draw from, by the service. @param {any} plan */
    show(plan) {
      const isNew = JSON.stringify(plan.spaces) !== JSON.stringify(spaces);
      spaces = plan.spaces;
      if (isNew && !isOwn) take();
    },
    /** Where it departs from the paper's space; null: nowhere. @returns {Record<string, Distribution | null> | null} */
    space() {
      const paper = spaces.paper ?? {};
      if (!axes.length) return null; // nothing was told yet
      const own = axes.filter(({ name, text }) => !(name in paper) || text !== write(paper[name])).map(({ name, text }) => [name, readText(settings.find((each) => each.name === name), text)]);
      const out = Object.keys(paper).filter((name) => !axes.some((each) => each.name === name)).map((name) => [name, null]);
      return own.length + out.length ? Object.fromEntries([...own, ...out]) : null;
    },
  };
}

const RANGE = /^\s*(0\s+or\s+)?([-+.\de]+)\s+to\s+([-+.\de]+)(?:\s+step\s+([-+.\de]+))?(\s+log)?\s*$/i;

/** As people write it. @param {Distribution} space */
function write(space) {
  if ("values" in space) return space.values.map((each) => (typeof each === "boolean" ? (each ? "yes" : "no") : (each ?? "none"))).join(", ");
  const { low, high, step, log, or_zero: orZero } = space;
  return `${orZero ? "0 or " : ""}${low} to ${high}${step ? ` step ${step}` : ""}${log ? " log" : ""}`;
}

/** What is no range is values; if it is none of these either, the service says so. @param {Setting | undefined} setting @param {string} text @returns {Distribution} */
function readText(setting, text) {
  const found = RANGE.exec(text);
  if (!found) return { values: valuesOf(setting, text) };
  const [, orZero, low, high, step, log] = found;
  return { low: Number(low), high: Number(high), ...(step && { step: Number(step) }), ...(log && { log: true }), ...(orZero && { or_zero: true }) };
}
