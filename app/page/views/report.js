// @ts-check
/** What came of a job: in words, then in figures, each with what it says of this model. */

import { effectCharts } from "../charts/effect.js";
import { pairMatrix } from "../charts/matrix.js";
import { h, link } from "../dom.js";
import { capital, measureName, methodName, num, percent } from "../format.js";
import { find, get } from "../http.js";
import { figure } from "../figure.js";
import { title } from "../jobs.js";
import { facts, section, warning } from "../parts.js";
import { SENTENCES, baselineWords, deltaWords, effectWords, pairWords, summarise, verdict } from "../sentences.js";
import { to } from "../state.js";

/** What each figure answers; those of a row are about as tall as each other. */
const QUESTIONS = {
  predicted: "How near is it?",
  reliability: "Does its confidence hold?",
  confusion: "Which classes does it mix up?",
  "risk-coverage": "What is gained by abstaining?",
  coverage: "Do its intervals hold?",
  importance: "What does it go by?",
  slices: "Where is it worse?",
  training: "How did it learn?",
};
const LOW = {
  members: "Is a member better alone?",
  decomposition: "What does averaging take off?",
  naive: "Is it better than a guess?",
};
const OWN = ["effects", "pairs"]; // drawn here, where they can be read point by point

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
  const draw = (/** @type {Record<string, string>} */ all) =>
    Object.entries(all)
      .filter(([each]) => known.has(each) && !known.get(each).why_absent)
      .map(([each, question]) => section(question, figure(path, known.get(each), SENTENCES[each]?.(reports))));
  const element = h(
    "div",
    { class: "stack" },
    head,
    inShort(reports),
    report.baselines?.length > 1 && baselines(report),
    pairs(diversity),
    h("div", { class: "stack rows" }, draw(LOW)),
    h("div", { class: "grid-2 even" }, draw("rmse" in report.scores.test.ensemble ? QUESTIONS : { ...QUESTIONS, coverage: "Do its sets of classes hold?" })),
    report.effects?.columns.length > 0 && section("How does the answer move?", h("p", { class: "said" }, effectWords(report.effects)), effectCharts(report.effects)),
    lacks(reports, known),
  );
  return { title: `Report on ${name}`, element };
}

/** The verdict, then the service's own words where it has them, then numbers. @param {any} reports */
function inShort(reports) {
  const { report } = reports;
  const found = verdict(reports);
  /** @type {{about: string, text: string}[]} */
  const all = report.summary?.length ? report.summary : summarise(reports).map((text) => ({ about: "", text }));
  const doubts = all.filter((each) => each.about === "warning").map((each) => warning(each.text));
  const [first, ...rest] = all.filter((each) => each.about !== "warning").map((each) => each.text);
  const { ensemble } = report.scores.test;
  const tiles = Object.entries(ensemble).slice(0, 4).map(([name, value]) => tile(measureName(name), num(/** @type {any} */ (value))));
  const more = [...Object.entries(ensemble).slice(4).map(([name, value]) => [measureName(name), num(/** @type {any} */ (value))]), ["Test rows", num(report.n_rows)], ["Members", num(report.k)], ["Parameters", num(report.n_parameters)]];
  return section(
    "In short",
    found && h("p", { class: "verdict", data: { tone: found.tone } }, found.words),
    h("p", { class: found ? "said" : "said strong" }, first),
    doubts,
    h("ul", { class: "told" }, rest.map((each) => h("li", {}, each))),
    h("div", { class: "tiles" }, tiles),
    facts(more),
  );
}

/** @param {string} name @param {string} value */
function tile(name, value) {
  return h("div", { class: "tile" }, h("span", {}, name), h("b", {}, value));
}

/** What a report of before has not. @param {any} reports @param {Map<string, any>} known */
function lacks({ report, diversity, calibration }, known) {
  const drawn = [...Object.keys(LOW), ...Object.keys(QUESTIONS), ...OWN];
  const absent = [...known.values()].filter((each) => each.why_absent && drawn.includes(each.name)).map((each) => `${capital(each.name.replace("-", " and "))}: ${each.why_absent}.`);
  if (!report.summary?.length) absent.push("A summary in words: it was made before reports had one; the sentences above are the page's own.");
  if (diversity === null) absent.push("Diversity: this job has no such report.");
  if (calibration === null) absent.push("Calibration: this job has no such report.");
  if (!known.size) absent.push("Figures: the service has none of this job.");
  if (!absent.length) return null;
  return h("section", { class: "card" }, h("details", {}, h("summary", {}, "What this report does not have"), h("ul", {}, absent.map((each) => h("li", {}, each)))));
}

/** @param {any} report */
function baselines({ baselines: all }) {
  const scores = all.map((/** @type {any} */ each) => each.score).filter((/** @type {any} */ each) => each !== null);
  const most = Math.max(...scores.map(Math.abs), 1e-12);
  const rows = all.map((/** @type {any} */ each) =>
    h(
      "tr",
      { class: each.name === "lometab" ? "is-target" : null },
      h("td", {}, h("b", {}, methodName(each.name))),
      h("td", {}, h("span", { class: "score-bar", "aria-hidden": "true" }, h("i", { class: each.name === "lometab" ? "main" : null, style: { width: `${(100 * Math.abs(each.score ?? 0)) / most}%` } }))),
      h("td", { class: "numeric nowrap" }, num(each.score), each.std ? ` ± ${num(each.std, 2)}` : ""),
      h("td", { class: "numeric nowrap" }, each.name === "lometab" ? "" : deltaWords(each)),
      h("td", { class: "numeric" }, each.ece === null ? "–" : percent(each.ece)),
      h("td", { class: "numeric" }, num(each.diversity, 3)),
      h("td", { class: "numeric" }, num(each.n_parameters)),
      h("td", { class: "numeric nowrap" }, `${num(each.seconds, 3)} s`),
    ),
  );
  const heads = [measureName(all[0].metric), "Against this model", "ECE", "Diversity", "Parameters", "Trained in"];
  return h("section", { class: "card flush" }, h("h2", {}, "Side by side on the test rows"), h("div", { class: "inset" }, h("p", { class: "said" }, baselineWords(all))), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Baselines" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Model"), h("th", {}, h("span", { class: "visually-hidden" }, "As a bar")), heads.map((each) => h("th", { class: "numeric", scope: "col" }, each)))), h("tbody", {}, rows))));
}

/** @param {any} diversity */
function pairs(diversity) {
  const [name, words] = diversity?.pairwise_kl ? ["pairwise_kl", "pairwise KL"] : ["squared_difference", "squared difference"];
  const found = diversity?.[name];
  if (!found?.matrix || found.matrix.length < 2) return null;
  const aside = [h("p", { class: "said strong" }, pairWords(found.matrix)), diversity.advice && h("p", { class: "said" }, `${capital(diversity.advice)}.`), h("p", { class: "faint" }, `The stronger the colour, the further apart, by ${words}. Similar members lie side by side: groups of them show as squares of weak colour along the diagonal.`), facts([["Mean", num(found.mean)]])];
  return section("How far does each pair of members differ?", h("div", { class: "grid-2" }, pairMatrix(found.matrix, `The ${words} of each pair of ${found.matrix.length} members`), h("div", { class: "stack" }, aside)));
}
