// @ts-check
/** What came of a job: in words, then in figures, each with what it says of this model. */

import { pairMatrix } from "../charts/matrix.js";
import { h, link } from "../dom.js";
import { capital, num } from "../format.js";
import { find, get } from "../http.js";
import { figure } from "../figure.js";
import { title } from "../jobs.js";
import { facts, section } from "../parts.js";
import { SENTENCES, pairWords, summarise } from "../sentences.js";
import { to } from "../state.js";

const FIRST = ["members", "reliability", "predicted", "risk-coverage", "confusion", "coverage", "decomposition", "importance", "effects", "slices", "naive", "training"];

/** @param {string} id */
export async function reportView(id) {
  const path = `jobs/${encodeURIComponent(id)}`;
  const job = await get(path);
  const [report, diversity, calibration, figures, dataset] = await Promise.all([
    find(`${path}/report`, 404, 409),
    find(`${path}/diversity`, 404, 409),
    find(`${path}/calibration`, 404, 409),
    find(`${path}/figures`, 404, 409),
    find(`datasets/${job.dataset_id}`, 404),
  ]);
  const name = title(job, dataset?.filename);
  const head = h(
    "div",
    { class: "row apart" },
    h("div", {}, h("h1", {}, `Report on ${name}`), h("p", { class: "faint" }, link("The job", to("jobs", id)), job.model_id && [" · ", link("The model", to("models", job.model_id))])),
    job.model_id && h("a", { class: "button primary", href: to("models", job.model_id) }, "Ask the model"),
  );
  if (report === null) return { title: "Report", element: h("div", { class: "stack" }, head, h("p", {}, "This job has no report yet.")) };
  const reports = { report, diversity, calibration };
  const known = new Map((figures?.figures ?? []).map((/** @type {any} */ each) => [each.name, each]));
  const absent = [...known.values()].filter((each) => each.why_absent);
  const drawn = FIRST.map((each) => known.get(each)).filter((each) => each && !each.why_absent);
  const element = h(
    "div",
    { class: "stack" },
    head,
    section("In short", told(reports).map((each) => h("p", { class: "said" }, each)), scores(report)),
    report.baselines?.length > 1 && baselines(report),
    pairs(diversity),
    h("div", { class: "grid-2" }, drawn.map((each) => section(capital(each.name.replace("-", " and ")), figure(path, each, SENTENCES[each.name]?.(reports))))),
    absent.length > 0 && h("section", { class: "card" }, h("details", {}, h("summary", {}, "What this report does not have"), h("ul", {}, absent.map((each) => h("li", {}, `${capital(each.name)}: ${each.why_absent}.`))))),
  );
  return { title: `Report on ${name}`, element };
}

/** In the service's own words where it has them. @param {any} reports @returns {string[]} */
function told(reports) {
  const { summary } = reports.report;
  return summary?.length ? summary.map((/** @type {any} */ each) => each.text) : summarise(reports);
}

/** @param {any} report */
function scores(report) {
  const { ensemble } = report.scores.test;
  return facts([...Object.entries(ensemble).map(([name, value]) => [name.toUpperCase(), num(/** @type {any} */ (value))]), ["Test rows", num(report.n_rows)], ["Members", num(report.k)], ["Parameters", num(report.n_parameters)]]);
}

/** @param {any} report */
function baselines({ baselines: all }) {
  const rows = all.map((/** @type {any} */ each) =>
    h(
      "tr",
      { class: each.name === "lometab" ? "is-target" : null },
      h("td", {}, h("b", {}, each.name)),
      h("td", { class: "numeric" }, num(each.score), each.std ? ` ± ${num(each.std, 2)}` : ""),
      h("td", { class: "numeric" }, each.delta_percent === null ? "" : `${each.delta_percent > 0 ? "+" : ""}${num(each.delta_percent, 2)} %`),
      h("td", { class: "numeric" }, num(each.ece, 3)),
      h("td", { class: "numeric" }, num(each.diversity, 3)),
      h("td", { class: "numeric" }, num(each.n_parameters)),
      h("td", { class: "numeric" }, `${num(each.seconds, 3)} s`),
    ),
  );
  const heads = [all[0].metric, "Against ours", "ECE", "Diversity", "Parameters", "Trained in"];
  return h("section", { class: "card flush" }, h("h2", {}, "Side by side on the test rows"), h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Model"), heads.map((each) => h("th", { class: "numeric", scope: "col" }, each)))), h("tbody", {}, rows))));
}

/** @param {any} diversity */
function pairs(diversity) {
  const [name, words] = diversity?.pairwise_kl ? ["pairwise_kl", "pairwise KL"] : ["squared_difference", "squared difference"];
  const found = diversity?.[name];
  if (!found?.matrix || found.matrix.length < 2) return null;
  return section(
    "How far each pair of members differs",
    h("div", { class: "grid-2" }, pairMatrix(found.matrix, `The ${words} of each pair of ${found.matrix.length} members`), h("div", { class: "stack" }, h("p", { class: "said" }, pairWords(found.matrix)), h("p", { class: "faint" }, `Darker is further apart, by ${words}; similar members lie side by side, so that groups of them show as light squares along the diagonal.`), facts([["Mean", num(found.mean)], ["Regime", diversity.regime ?? "–"]]))),
  );
}
