// @ts-check
/** The runs of a sweep as heat maps, those of a search as lines; any can be promoted. */

import { cellsOn, heatMap, valueWords, valuesOf } from "../charts/heat.js";
import { parallel } from "../charts/parallel.js";
import { fill, h, link } from "../dom.js";
import { figure } from "../figure.js";
import { count, measureName, measureWord, num } from "../format.js";
import { find, get, put } from "../http.js";
import { RUN_SENTENCES } from "../sentences.js";
import { action, badge, inline, note, problemBox, section, select } from "../parts.js";
import { go, to } from "../state.js";

/** Figures of the service that are shown beside, and what they answer. @type {Record<string, string>} */
const QUESTIONS = {
  pareto: "Does diversity pay here?",
  "tune-history": "Does the search still find better ones?",
  "tune-importances": "Which settings mattered?",
};

/**
 * @param {any} job a sweep or tune job
 * @param {string} path
 */
export function runsOf(job, path) {
  const body = h("div", { class: "stack", style: { "min-height": "220px" } }, h("p", { class: "faint" }, "Looking …"));
  const pictures = h("div", { class: "grid-2 even" });
  const problem = h("div", {});
  const show = job.kind === "sweep" ? sweepMaps(path) : trials(path);
  let seen = "";
  let drawn = "";
  /** @type {Promise<void>} */
  let asked = Promise.resolve();
  const look = async (/** @type {string} */ state) => {
    try {
      const found = await get(`${path}/${job.kind}`);
      fill(body, show(found));
      fill(problem);
      const figures = await find(`${path}/figures`, 404, 409);
      const wanted = (figures?.figures ?? []).filter((/** @type {any} */ each) => !each.why_absent && each.name in QUESTIONS);
      if (`${wanted.length} ${state}` === drawn) return;
      drawn = `${wanted.length} ${state}`;
      fill(pictures, wanted.map((/** @type {any} */ each) => section(QUESTIONS[each.name], figure(path, each, RUN_SENTENCES[each.name]?.(found)))));
    } catch (error) {
      fill(problem, problemBox(error));
    }
  };
  return {
    element: h("div", { class: "stack" }, section(job.kind === "sweep" ? "Cell by cell" : "Trial by trial", problem, body), pictures),
    /** @param {any} now @returns {Promise<void>} */
    update(now) {
      const state = `${now.status} ${now.progress.n_finished}`;
      if (state !== seen) asked = look(state);
      seen = state;
      return asked;
    },
  };
}

/** @param {string} path @param {Record<string, number>} which */
async function promote(path, which) {
  const made = await put("POST", `${path}/promote`, which);
  note("It becomes a model: this is its job.");
  go(to("jobs", made.id));
}

// ---------------------------------------------------------------------------
// Sweeps

/** @param {string} path */
function sweepMaps(path) {
  /** @type {import("../charts/heat.js").Chosen} */
  const chosen = { down: null, across: "", fixed: new Map(), cell: null };
  return (/** @type {any} */ { comparison, runs }) => {
    const names = axesOf(comparison);
    if (!chosen.across) [chosen.down, chosen.across] = names.length > 1 ? names : [null, names[0]];
    const measures = [
      { name: `${measureName(comparison.metric ?? "score")} on validation`, measure: "score", isLess: comparison.metric === "rmse" },
      { name: "Diversity of the members", measure: "diversity", isLess: false },
      { name: "Calibration error (ECE)", measure: "ece", isLess: true },
    ];
    const [controls, picture, others, detail] = ["row", "grid-3", "", ""].map((each) => h("div", { class: each }));
    const open = (/** @type {any} */ cell) => {
      chosen.cell = cell.cell;
      fill(detail, about(cell, runs[cell.cell], path, comparison));
      draw();
    };
    const draw = () => {
      const at = picture.contains(document.activeElement) ? [...picture.querySelectorAll("button")].indexOf(document.activeElement) : -1;
      fill(picture, measures.map((each) => heatMap(comparison, each, chosen, open)));
      fill(others, notOnMap(comparison, chosen, open));
      if (at >= 0) picture.querySelectorAll("button")[at]?.focus(); // it was drawn anew
    };
    const arrange = () => {
      const at = [...controls.querySelectorAll("select")].indexOf(document.activeElement);
      fill(controls, axisControls(comparison, names, chosen, arrange));
      controls.querySelectorAll("select")[at]?.focus(); // it was made anew
      draw();
    };
    arrange();
    const before = comparison.cells.find((/** @type {any} */ each) => each.cell === chosen.cell);
    if (before) open(before);
    return [
      sweepWords(comparison).map((each, i) => h("p", { class: i ? "said close" : "said strong" }, each)),
      names.length > 1 && controls,
      picture,
      h("p", { class: "hint" }, "Means over seeds on validation; bluer is better, and more diverse. ★ the best, ≈ within noise of it. Choose a cell to open it or to make a model of it."),
      others,
      detail,
    ];
  };
}

/** Those settings that more than one cell has, and not alike. @param {any} comparison @returns {string[]} */
function axesOf({ cells }) {
  const all = [...new Set(cells.flatMap((/** @type {any} */ each) => Object.keys(each.settings)))];
  const varied = all.filter((name) => valuesOf(cells, name).length > 1);
  return varied.length ? varied : all;
}

/**
 * Which two settings span the map, and what the others are.
 * @param {any} comparison
 * @param {string[]} names
 * @param {import("../charts/heat.js").Chosen} chosen
 * @param {() => void} changed
 */
function axisControls(comparison, names, chosen, changed) {
  const axis = (/** @type {"down" | "across"} */ name, /** @type {"down" | "across"} */ other) =>
    select(names.map((each) => [each, each]), chosen[name] ?? "", (value) => {
      if (chosen[other] === value) chosen[other] = /** @type {string} */ (chosen[name]); // they change places
      chosen[name] = value;
      chosen.fixed.delete(value);
      changed();
    }, { class: "small" });
  const rest = names.filter((each) => each !== chosen.down && each !== chosen.across);
  const fix = (/** @type {string} */ name) => {
    const values = valuesOf(comparison.cells, name);
    const now = chosen.fixed.has(name) ? String(values.indexOf(chosen.fixed.get(name))) : "";
    return select([["", "the best of all"], .../** @type {[string, string][]} */ (values.map((each, i) => [String(i), valueWords(each)]))], now, (value) => {
      if (value === "") chosen.fixed.delete(name);
      else chosen.fixed.set(name, values[Number(value)]);
      changed();
    }, { class: "small" });
  };
  return [inline("Down", axis("down", "across")), inline("Across", axis("across", "down")), rest.map((name) => inline(name, fix(name)))];
}

/** Cells that lack a setting of the map, as baselines do. @param {any} comparison @param {import("../charts/heat.js").Chosen} chosen @param {(cell: any) => void} open */
function notOnMap(comparison, chosen, open) {
  const shown = new Set(cellsOn(comparison, { ...chosen, fixed: new Map() }));
  const rest = comparison.cells.filter((/** @type {any} */ each) => !shown.has(each));
  if (!rest.length) return null;
  const button = (/** @type {any} */ cell) => h("button", { type: "button", class: "small", on: { click: () => open(cell) } }, `${settingWords(cell.settings)}: ${num(cell.val?.score?.mean, 3)}`);
  return h("div", { class: "row" }, h("span", { class: "hint" }, `Beside the map, by ${measureWord(comparison.metric ?? "score")}:`), rest.map(button));
}

/** What stands out. @param {any} comparison */
function sweepWords({ cells, tied, best_score: first, best_model: best, recommended, collapsed, metric }) {
  const words = (/** @type {number} */ cell) => settingWords(cells[cell].settings);
  const ahead = first === best ? [] : [`${words(first)} is ahead, with ${measureWord(metric)} ${num(cells[first].val.score.mean)} on validation; it is there for comparison, and no model can be made of it.`];
  if (best === null) return [...ahead, first === null ? "No cell is finished yet." : "No other cell is finished yet."];
  const said = [...ahead, `The best ${ahead.length ? "other " : ""}cell is ${words(best)}, with ${measureWord(metric)} ${num(cells[best].val.score.mean)} on validation; ${tied.length > 1 ? `${count(tied.length - 1, "other cell is", "other cells are")} within noise of it` : "no other is within noise of it"}.`];
  if (recommended !== null && recommended !== best) said.push(`Of these, ${words(recommended)} is the smallest: take it unless you know better.`);
  for (const each of collapsed) said.push(`With ${each.setting} ${each.values.join(", ")} the members are nearly the same: the ensemble has collapsed.`);
  return said;
}

/** @param {any} settings */
function settingWords(settings) {
  return Object.entries(settings).map(([name, each]) => `${name} ${valueWords(each)}`).join(", ");
}

/** @param {any} cell @param {any[]} runs @param {string} path @param {any} comparison */
function about(cell, runs, path, comparison) {
  const spread = (/** @type {any} */ each) => (each ? `${num(each.mean)}${each.std === null ? "" : ` ± ${num(each.std, 2)}`}` : "–");
  return h(
    "div",
    { class: "row apart chosen" },
    h("p", {}, h("b", {}, settingWords(cell.settings)), ` · ${measureWord(comparison.metric)} ${spread(cell.val?.score)} on validation, ${spread(cell.test?.score)} on test · diversity ${spread(cell.val?.diversity)} · `, runs.map((each) => [link(`seed ${each.seed}`, to("jobs", each.job_id)), " "])),
    action("Make a model of it", () => promote(path, { cell: cell.cell }), { class: "primary", data: { needs: "write" }, onError: (error) => note(/** @type {any} */ (error).message) }),
  );
}

// ---------------------------------------------------------------------------
// Searches

const LISTED = 12;

/** @param {string} path */
function trials(path) {
  let isWhole = false;
  return (/** @type {any} */ { trials: all, best, tied, metric, parallel_coordinates: axes, refit_job_id: refit }) => {
    const isLess = metric === "rmse";
    const score = (/** @type {any} */ each) => each.outcome?.val.score ?? (isLess ? Infinity : -Infinity);
    const tried = all.filter((/** @type {any} */ each) => each.settings).sort((/** @type {any} */ a, /** @type {any} */ b) => (isLess ? 1 : -1) * (score(a) - score(b)));
    const names = [...new Set(tried.flatMap((/** @type {any} */ each) => Object.keys(each.settings)))];
    const open = (/** @type {number} */ number) => go(to("jobs", all.find((/** @type {any} */ each) => each.trial === number).job_id));
    const body = h("tbody", {});
    const draw = () => fill(body, tried.slice(0, isWhole ? undefined : LISTED).map((/** @type {any} */ each) => trialRow(each, names, path, { best, tied })));
    draw();
    const more = h("button", { type: "button", class: "quiet", hidden: isWhole || tried.length <= LISTED }, `Show all ${tried.length}`);
    more.addEventListener("click", () => {
      [isWhole, more.hidden] = [true, true];
      draw();
    });
    const heads = ["Trial", "State"].map((each) => h("th", { scope: "col" }, each));
    return [
      h("p", { class: "said strong" }, trialWords(tried, best, tied, metric)),
      refit && h("p", { class: "said close" }, link("The winner's own job and report", to("jobs", refit))),
      parallel(axes, { isLess, best, metric: measureName(metric) }, open),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Trials" }, h("table", { class: "small" }, h("thead", {}, h("tr", {}, heads, h("th", { class: "numeric", scope: "col" }, measureName(metric)), h("th", {}, h("span", { class: "visually-hidden" }, "Promote")), names.map((each) => h("th", { class: "numeric", scope: "col" }, each)))), body)),
      more,
    ];
  };
}

/** @param {any[]} tried @param {number | null} best @param {number[]} tied @param {string} metric */
function trialWords(tried, best, tied, metric) {
  const first = tried.find((each) => each.trial === best);
  if (!first?.outcome) return "No trial is finished yet.";
  const others = tied.filter((each) => each !== best).length;
  return `Trial ${best} is the best with ${measureWord(metric)} ${num(first.outcome.val.score)} on validation; ${others ? `${count(others, "other trial is", "other trials are")} within noise of it` : "no other is within noise of it"}.`;
}

/** @param {any} trial @param {string[]} names @param {string} path @param {{best: number | null, tied: number[]}} marks */
function trialRow(trial, names, path, { best, tied }) {
  const mark = trial.trial === best ? " ★" : tied.includes(trial.trial) ? " ≈" : "";
  return h(
    "tr",
    { class: trial.trial === best ? "is-target" : null },
    h("td", {}, link(String(trial.trial), to("jobs", trial.job_id))),
    h("td", {}, badge(trial.is_pruned ? "pruned" : trial.status)),
    h("td", { class: "numeric nowrap" }, num(trial.outcome?.val.score), mark),
    h("td", {}, trial.outcome && !trial.is_pruned && action("Make a model", () => promote(path, { trial: trial.trial }), { class: "small nowrap", data: { needs: "write" }, onError: (error) => note(/** @type {any} */ (error).message) })),
    names.map((name) => h("td", { class: "numeric" }, setting(trial.settings[name]))),
  );
}

/** @param {any} value */
function setting(value) {
  return typeof value === "number" ? num(value, 3) : String(value ?? "–");
}
