// @ts-check
/** How the members differ, and which settings a sweep or a search tries. */

import { RANKS, SIGMAS, nearest, plane } from "../charts/plane.js";
import { fill, h } from "../dom.js";
import { count } from "../format.js";
import { field, select } from "../parts.js";
import { bounds, parse, suggest } from "../schema.js";

/** @param {any} config @param {() => void} changed */
export function makeKnobs(config, changed) {
  const rank = h("input", { type: "range", min: 0, max: RANKS.length - 1, step: 1, "aria-label": "Rank" });
  const sigma = h("input", { type: "range", min: 0, max: SIGMAS.length - 1, step: 1, "aria-label": "sigma_init" });
  const [rankText, sigmaText] = [h("b", {}), h("b", {})];
  const picture = plane((r, sd) => choose(r, sd));
  const choose = (/** @type {number} */ r, /** @type {number} */ sd) => {
    config.hyperparameters.rank = r;
    config.hyperparameters.sigma_init = sd;
    draw(r, sd);
    changed();
  };
  const draw = (/** @type {number} */ r, /** @type {number} */ sd) => {
    rank.value = String(nearest(RANKS, r));
    sigma.value = String(nearest(SIGMAS, Math.max(sd, SIGMAS[0])));
    rank.setAttribute("aria-valuetext", String(r));
    sigma.setAttribute("aria-valuetext", String(sd));
    fill(rankText, String(r));
    fill(sigmaText, String(sd));
    picture.update(r, sd);
  };
  for (const each of [rank, sigma]) each.addEventListener("input", () => choose(RANKS[rank.value], SIGMAS[sigma.value]));
  return {
    element: h(
      "div",
      { class: "knobs" },
      picture.element,
      h(
        "div",
        { class: "stack" },
        h("label", { class: "field" }, h("span", { class: "label" }, "Rank ", rankText), rank, h("span", { class: "hint" }, "How freely each member's mask can bend the shared weights.")),
        h("label", { class: "field" }, h("span", { class: "label" }, "sigma_init ", sigmaText), sigma, h("span", { class: "hint" }, "How far apart the members start: more gives more diverse members.")),
      ),
    ),
    /** As the service would have it. @param {any} plan */
    show: (plan) => draw(plan.hyperparameters.rank, plan.hyperparameters.sigma_init),
  };
}

/** @typedef {{name: string, text: string}} Axis a setting of a sweep, and its values as they are written */

/**
 * Any settings, each with its values; all of them are crossed.
 * @param {{axes: Axis[], seeds: number}} sweep
 * @param {import("../schema.js").Setting[]} settings
 * @param {() => void} changed
 */
export function sweepFields(sweep, settings, changed) {
  const [rows, words] = [h("div", { class: "stack close" }), h("p", { class: "said" })];
  const seeds = h("input", { type: "number", min: 1, max: 100, value: sweep.seeds, on: { input: () => ((sweep.seeds = Number(seeds.value)), update()) } });
  const update = () => {
    fill(words, sweepWords(sweep));
    changed();
  };
  const free = (/** @type {Axis | null} */ own) => settings.filter(({ name }) => name === own?.name || !sweep.axes.some((each) => each.name === name));
  const draw = (/** @type {number} */ focused = -1) => {
    fill(rows, sweep.axes.map((axis) => axisRow(axis, free(axis), sweep, { draw, update })));
    more.hidden = free(null).length === 0;
    fill(words, sweepWords(sweep));
    rows.children[focused]?.querySelector("select").focus(); // it was drawn anew
  };
  const more = h("button", { type: "button", class: "small" }, "Add a setting");
  more.addEventListener("click", () => {
    const [next] = free(null);
    sweep.axes.push({ name: next.name, text: suggest(next) });
    draw(sweep.axes.length - 1);
    changed();
  });
  draw();
  return h("div", { class: "stack" }, h("p", { class: "faint" }, "Each value of every setting with each of the others, side by side."), rows, h("div", { class: "row" }, more), h("div", { class: "fields" }, field("Seeds of each cell", seeds, "With more than one the noise is measured.")), words);
}

/**
 * @param {Axis} axis
 * @param {import("../schema.js").Setting[]} settings those that it can be
 * @param {{axes: Axis[]}} sweep
 * @param {{draw: (focused: number) => void, update: () => void}} told
 */
function axisRow(axis, settings, sweep, { draw, update }) {
  const about = (/** @type {string} */ name) => settings.find((each) => each.name === name);
  const found = about(axis.name);
  const values = h("input", { type: "text", value: axis.text, "aria-label": `Values of ${axis.name}`, on: { input: () => ((axis.text = values.value), update()) } });
  const name = select(settings.map((each) => [each.name, each.label]), axis.name, (value) => {
    const next = about(value);
    Object.assign(axis, { name: value, text: next ? suggest(next) : "" });
    draw(sweep.axes.indexOf(axis));
    update();
  }, { "aria-label": "Setting" });
  const remove = h("button", { type: "button", class: "quiet", "aria-label": `Leave out ${axis.name}`, disabled: sweep.axes.length === 1 }, "Leave out");
  remove.addEventListener("click", () => {
    sweep.axes.splice(sweep.axes.indexOf(axis), 1);
    draw(0);
    update();
  });
  return h("div", { class: "axis-row" }, name, values, remove, found && h("p", { class: "hint" }, `${found.about} Values: ${bounds(found)}.`));
}

/** The grid as it is sent. @param {Axis[]} axes @param {import("../schema.js").Setting[]} settings */
export function gridOf(axes, settings) {
  return Object.fromEntries(
    axes.map(({ name, text }) => {
      const setting = settings.find((each) => each.name === name);
      return [name, split(text).map((each) => (setting ? parse(setting, each) : each))];
    }),
  );
}

/** @param {string} text */
function split(text) {
  return text.split(/[,;\s]+/).filter(Boolean);
}

/** @param {{axes: Axis[], seeds: number}} sweep */
function sweepWords({ axes, seeds }) {
  const sizes = axes.map(({ text }) => new Set(split(text)).size);
  const n = sizes.reduce((product, each) => product * each, 1);
  const crossed = sizes.length > 1 ? `${sizes.join(" × ")} = ` : "";
  return `${crossed}${count(n, "cell")}${seeds > 1 ? `, ${count(n * seeds, "run")}` : ""}.`;
}

/** @param {any} tune @param {() => void} changed */
export function tuneFields(tune, changed) {
  const fields = [["n_trials", "Trials", 1000], ["finalists", "Finalists", 10], ["seeds", "Seeds of the winner", 16]].map(([name, label, max]) => {
    const input = h("input", { type: "number", min: 1, max, value: tune[name], on: { input: () => ((tune[name] = Number(input.value)), changed()) } });
    return field(String(label), input);
  });
  return h("div", { class: "stack" }, h("p", { class: "faint" }, "A search through the paper's space; the best few are tried again with other seeds, and the winner becomes the model."), h("div", { class: "fields" }, fields));
}
