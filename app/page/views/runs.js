// @ts-check
/** The runs of a sweep as heat maps, those of a search as a list; any can be promoted. */

import { fill, h, link } from "../dom.js";
import { figure } from "../figure.js";
import { num } from "../format.js";
import { find, get, put } from "../http.js";
import { action, badge, note, problemBox, section, select } from "../parts.js";
import { go, to } from "../state.js";

/**
 * @param {any} job a sweep or tune job
 * @param {string} path
 */
export function runsOf(job, path) {
  const body = h("div", { class: "stack" });
  const pictures = h("div", { class: "grid-2" });
  const problem = h("div", {});
  const show = job.kind === "sweep" ? sweepTable(path) : trialTable(path);
  let seen = "";
  return {
    element: h("div", { class: "stack" }, section(job.kind === "sweep" ? "Cells" : "Trials", problem, body), pictures),
    /** @param {any} now */
    async update(now) {
      const state = `${now.status} ${now.progress.n_finished}`;
      if (state === seen) return;
      seen = state;
      try {
        fill(body, show(await get(`${path}/${job.kind}`)));
        const figures = await find(`${path}/figures`, 404, 409);
        const drawn = (figures?.figures ?? []).filter((/** @type {any} */ each) => !each.why_absent);
        fill(pictures, drawn.map((/** @type {any} */ each) => section(each.name.replace("-", ": "), figure(path, each, null))));
      } catch (error) {
        fill(problem, problemBox(error));
      }
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

const MEASURES = { score: "Score", diversity: "Diversity", ece: "ECE" };

/** @param {string} path */
function sweepTable(path) {
  const chosen = { measure: "score", down: "", across: "" };
  return (/** @type {any} */ { comparison, runs }) => {
    const names = [...new Set(comparison.cells.flatMap((/** @type {any} */ each) => Object.keys(each.settings)))];
    chosen.down ||= names[0];
    chosen.across ||= names[1] ?? names[0];
    const picture = h("div", {});
    const detail = h("div", {});
    const draw = () => fill(picture, heatMap(comparison, chosen, (/** @type {any} */ cell) => fill(detail, about(cell, runs[cell.cell], path, comparison))));
    const control = (/** @type {"measure" | "down" | "across"} */ name, /** @type {[string, string][]} */ options, /** @type {string} */ label) =>
      h("label", { class: "row small" }, label, select(options, chosen[name], (value) => ((chosen[name] = value), draw()), { class: "small" }));
    const settings = names.map((each) => /** @type {[string, string]} */ ([each, each]));
    draw();
    return [h("div", { class: "row" }, control("measure", Object.entries(MEASURES), "Show"), control("down", settings, "Down"), control("across", settings, "Across")), picture, h("p", { class: "hint" }, "Mean over seeds on validation. The best cell has a full border; those within its noise a faint one."), detail];
  };
}

/** @param {any} comparison @param {any} chosen @param {(cell: any) => void} open */
function heatMap(comparison, { measure, down, across }, open) {
  const value = (/** @type {any} */ cell) => cell.val?.[measure]?.mean ?? null;
  const cells = comparison.cells.filter((/** @type {any} */ each) => down in each.settings && across in each.settings);
  const known = cells.map(value).filter((/** @type {any} */ each) => each !== null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const axis = (/** @type {string} */ name) => [...new Set(cells.map((/** @type {any} */ each) => each.settings[name]))].sort((a, b) => Number(a) - Number(b));
  const isLess = (measure === "score" && comparison.metric === "rmse") || measure === "ece";
  const best = comparison.cells.find((/** @type {any} */ each) => each.cell === comparison.best_score);
  const isNear = (/** @type {any} */ cell) => {
    const [mine, first] = [cell.val?.score, best?.val?.score];
    return mine && first && Math.abs(mine.mean - first.mean) <= Math.max(mine.std ?? 0, first.std ?? 0);
  };
  const box = (/** @type {any} */ cell) => {
    const found = cell && value(cell);
    if (found === null || found === undefined) return h("td", {}, h("span", { class: "faint" }, "…"));
    const share = high > low ? (isLess ? (high - found) / (high - low) : (found - low) / (high - low)) : 0.5;
    const look = [share > 0.6 && "is-strong", cell === best ? "is-best" : isNear(cell) && "is-near"].filter(Boolean).join(" ");
    return h("td", {}, h("button", { type: "button", class: look, style: { "--share": `${Math.round(100 * share)}%` }, on: { click: () => open(cell) } }, num(found, 3)));
  };
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: "heat" },
      h("thead", {}, h("tr", {}, h("th", {}, `${down} \\ ${across}`), axis(across).map((each) => h("th", { scope: "col" }, String(each))))),
      h("tbody", {}, axis(down).map((y) => h("tr", {}, h("th", { scope: "row" }, String(y)), axis(across).map((x) => box(cells.find((/** @type {any} */ each) => each.settings[down] === y && each.settings[across] === x)))))),
    ),
  );
}

/** @param {any} cell @param {any[]} runs @param {string} path @param {any} comparison */
function about(cell, runs, path, comparison) {
  const spread = (/** @type {any} */ each) => (each ? `${num(each.mean)}${each.std === null ? "" : ` ± ${num(each.std, 2)}`}` : "–");
  return h(
    "div",
    { class: "row apart chosen" },
    h("p", {}, h("b", {}, Object.entries(cell.settings).map(([name, each]) => `${name} ${each}`).join(", ")), ` · ${comparison.metric} ${spread(cell.val?.score)} on validation, ${spread(cell.test?.score)} on test · diversity ${spread(cell.val?.diversity)} · `, runs.map((each) => [link(`seed ${each.seed}`, to("jobs", each.job_id)), " "])),
    action("Make a model of it", () => promote(path, { cell: cell.cell }), { class: "primary", data: { needs: "write" }, onError: (error) => note(/** @type {any} */ (error).message) }),
  );
}

// ---------------------------------------------------------------------------

/** @param {string} path */
function trialTable(path) {
  return (/** @type {any} */ { trials, best, metric, importances }) => {
    const tried = trials.filter((/** @type {any} */ each) => each.settings);
    const names = [...new Set(tried.flatMap((/** @type {any} */ each) => Object.keys(each.settings)))];
    const rows = tried.map((/** @type {any} */ each) =>
      h(
        "tr",
        { class: each.trial === best ? "is-target" : null },
        h("td", {}, link(String(each.trial), to("jobs", each.job_id))),
        h("td", {}, badge(each.is_pruned ? "pruned" : each.status)),
        h("td", { class: "numeric" }, num(each.outcome?.val.score)),
        names.map((name) => h("td", { class: "numeric" }, setting(each.settings[name]))),
        h("td", {}, each.outcome && !each.is_pruned && action("Make a model", () => promote(path, { trial: each.trial }), { class: "small", data: { needs: "write" }, onError: (error) => note(/** @type {any} */ (error).message) })),
      ),
    );
    const mattered = Object.entries(importances).sort((a, b) => b[1] - a[1]).slice(0, 3).map(([name, share]) => `${name} (${Math.round(100 * share)} %)`);
    return [
      mattered.length > 0 && h("p", { class: "said" }, `What mattered most: ${mattered.join(", ")}.`),
      h("div", { class: "scroll" }, h("table", { class: "small" }, h("thead", {}, h("tr", {}, h("th", {}, "Trial"), h("th", {}, "State"), h("th", { class: "numeric" }, metric), names.map((each) => h("th", { class: "numeric" }, each)), h("th", {}, h("span", { class: "visually-hidden" }, "Promote")))), h("tbody", {}, rows))),
    ];
  };
}

/** @param {any} value */
function setting(value) {
  return typeof value === "number" ? num(value, 3) : String(value ?? "–");
}
