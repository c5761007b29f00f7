// @ts-check
/** A model in use: what it was asked, whether that is like its training rows, and how it did. */

import { dayBars } from "../charts/days.js";
import { h, link } from "../dom.js";
import { count, measureName, num, percent } from "../format.js";
import { address, get } from "../http.js";
import { facts, section, snippet } from "../parts.js";
import { every, go, to } from "../state.js";
import { modelName } from "./models.js";

const SECONDS = 10;
const LISTED = 15;

/** @param {string} id */
export async function monitorView(id) {
  const path = `models/${encodeURIComponent(id)}`;
  const [model, seen] = await Promise.all([get(path), get(`${path}/monitor`)]);
  const { total, days } = seen;
  const element = h(
    "div",
    { class: "stack" },
    h(
      "div",
      { class: "row apart" },
      h("div", {}, h("div", { class: "row" }, h("h1", {}, `${modelName(model)} in use`), state(seen)), h("p", { class: "faint" }, link("The model", to("models", model.id)), " · ", link("Its report", to("jobs", model.job_id, "report")))),
    ),
    section("In short", told(seen).map((each, i) => h("p", { class: i ? "said" : "said strong" }, each)), total.n_rows > 0 && tiles(seen)),
    total.n_rows > 0 && section("Rows of each day", dayBars([...days].reverse()), h("p", { class: "hint" }, "In UTC, today so far. Orange: some column had moved.")),
    Object.keys(total.columns).length > 0 && columns(total),
    total.labels && labels(total.labels),
    outcomes(total.outcomes, path),
  );
  const close = every(SECONDS, async () => {
    const now = await get(`${path}/monitor`);
    if (now.total.n_rows !== total.n_rows || now.total.outcomes?.n !== total.outcomes?.n) go(location.hash);
  });
  return { title: `${modelName(model)} in use`, element, close };
}

/** @param {any} seen */
function state({ total, is_on: isOn }) {
  const [status, words] = !isOn ? ["idle", "Not counted"] : total.is_alarm ? ["failed", "Drift"] : total.n_rows ? ["succeeded", "No drift"] : ["idle", "Not asked yet"];
  return h("span", { class: "badge", data: { status } }, words);
}

/** @param {any} seen @returns {string[]} */
function told({ total, days, is_on: isOn, has_reference: hasReference, n_training_rows: nTraining, false_alarm_rate: rate }) {
  if (!isOn) return ["This service does not count what it predicts."];
  if (!total.n_rows) return ["Nobody has asked this model yet.", "Whatever is predicted is counted by column, and compared with the rows that it was trained on; no row is kept."];
  const said = [`${count(total.n_rows, "row")} on ${count(days.length, "day")}: ${total.drifted.length ? `${total.drifted.slice(0, 5).join(", ")} ${total.drifted.length > 1 ? "have" : "has"} moved away from training` : "the columns look like those it was trained on"}.`];
  if (!hasReference) said.push("It was trained before models knew the histograms of their rows: drift cannot be told.");
  else said.push(`Measured against ${count(nTraining ?? 0, "training row")}; by chance alone, some column would be called moved in at most ${percent(rate)} of looks.`);
  if (total.n_left_out) said.push(`${count(total.n_left_out, "row")} came too fast to be counted.`);
  return said;
}

/** @param {any} seen */
function tiles({ total }) {
  const { uncertainty, novel_share: novel, outcomes: truth, mean } = total;
  const all = [
    ["Rows", num(total.n_rows), ""],
    uncertainty && ["Mean trust", num(uncertainty.mean_trust, 2), `${num(uncertainty.expected_mean_trust, 2)} on calibration rows`],
    uncertainty && ["Least certain", percent(uncertainty.least_certain_share), `${percent(uncertainty.expected_least_certain_share)} on calibration rows`],
    novel !== null && ["Unlike training", percent(novel), "0.5 % by chance"],
    mean !== null && ["Mean answer", num(mean), ""],
    truth && ["Truth known of", num(truth.n), "rows"],
  ].filter((each) => Array.isArray(each));
  return h("div", { class: "tiles" }, all.map(([name, value, more]) => h("div", { class: "tile" }, h("span", {}, name), h("b", {}, value), h("span", {}, more))));
}

/** @param {any} total */
function columns(total) {
  const ratio = (/** @type {any} */ each) => (each.bound ? each.psi / each.bound : 0);
  const all = Object.entries(total.columns).sort((a, b) => ratio(b[1]) - ratio(a[1]));
  const rows = all.map(([name, each], i) =>
    h(
      "tr",
      { class: each.is_drifted ? "is-drifted" : null, hidden: i >= LISTED },
      h("td", { class: "wrap", style: { "min-width": "110px" } }, h("b", {}, name)),
      h("td", {}, h("span", { class: "score-bar", "aria-hidden": "true" }, h("i", { class: each.is_drifted ? "other" : "main", style: { width: `${Math.min(100, 100 * ratio(each))}%` } }))),
      h("td", { class: "numeric nowrap" }, `${num(each.psi, 2)} of ${num(each.bound, 2)}`),
      [each.missing, each.unseen, each.out_of_range].map((share) => h("td", { class: "numeric" }, share === null ? "–" : share ? percent(share) : "none")),
      h("td", {}, each.is_drifted ? h("span", { class: "badge", data: { status: "failed" } }, "moved") : h("span", { class: "faint" }, "as in training")),
    ),
  );
  const more = h("button", { type: "button", class: "quiet", hidden: all.length <= LISTED }, `Show all ${all.length}`);
  more.addEventListener("click", () => {
    for (const each of rows) each.hidden = false;
    more.hidden = true;
  });
  const heads = ["PSI, and its bound", "Missing", "Unseen level", "Out of range"].map((each) => h("th", { class: "numeric", scope: "col" }, each));
  return h("section", { class: "card flush" }, h("h2", {}, "Column by column"), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Columns" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Column"), h("th", {}, h("span", { class: "visually-hidden" }, "As a bar")), heads, h("th", { scope: "col" }, "So"))), h("tbody", {}, rows))), h("div", { class: "more" }, more));
}

/** @param {any[]} all */
function labels(all) {
  const shown = [...all].sort((a, b) => b.share - a.share).slice(0, LISTED);
  return section(
    "What it answers",
    h("div", { class: "class-bars is-four" }, shown.map(({ label, share, expected }) => h("div", { class: "class-row" }, h("span", { class: "class-name" }, String(label)), h("span", { class: "score-bar wide", "aria-hidden": "true" }, h("i", { class: "main", style: { width: `${100 * share}%` } })), h("b", { class: "numeric" }, percent(share)), h("span", { class: "hint" }, expected === null ? "" : `${percent(expected)} expected`)))),
    h("p", { class: "hint" }, "Beside each share, that on calibration rows."),
  );
}

/** @param {any} found @param {string} path */
function outcomes(found, path) {
  const call = () => `curl ${address(`${path}/outcomes`)} \\\n  -H 'Content-Type: application/json' \\\n  -d '{"outcomes": [{"id": "row-1", "value": …}]}'`;
  if (!found) return section("How it did", h("p", { class: "faint" }, "Nothing is known of how its answers turned out. Give rows an id when you predict, and send the truth later:"), snippet("Sending the truth", call).element);
  const { n, coverage, measured_coverage: measured, ...scores } = found;
  return section("How it did", h("p", { class: "said" }, `The truth of ${count(n, "row")} is known${measured === null ? "" : `: ${percent(measured)} of it is inside intervals or sets of ${percent(coverage, 0)}`}.`), facts(Object.entries(scores).filter(([, value]) => value !== null).map(([name, value]) => [measureName(name), num(/** @type {any} */ (value))])));
}
