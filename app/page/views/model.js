// @ts-check
/** One model: ask it, see what every member says, and take it elsewhere. */

import { classBars, memberDots } from "../charts/members.js";
import { pushes } from "../charts/pushes.js";
import { fill, h, link } from "../dom.js";
import { count, json, measureName, num, percent, shell } from "../format.js";
import { address, find, get, put } from "../http.js";
import { action, facts, inline, note, problemBox, section, select, snippet, tabs, warning } from "../parts.js";
import { to } from "../state.js";
import { predictFile } from "./batch.js";
import { inputFor } from "./inputs.js";
import { modelName } from "./models.js";

const MANY = 12;

/** @param {string} id */
export async function modelView(id) {
  const path = `models/${encodeURIComponent(id)}`;
  const model = await get(path);
  const dataset = await find(`datasets/${model.lineage.dataset_id}`, 404, 403);
  const element = h(
    "div",
    { class: "stack" },
    h(
      "div",
      { class: "row apart" },
      h(
        "div",
        {},
        h("h1", {}, modelName(model)),
        h("p", { class: "faint" }, `${model.k} members predict `, h("b", {}, model.target), ", ", model.task, ". ", link("Report", to("jobs", model.job_id, "report")), " · ", link("Job", to("jobs", model.job_id)), dataset && [" · ", link(dataset.filename, to("data", dataset.id))]),
      ),
      h(
        "div",
        { class: "row" },
        h("a", { class: "button", href: to("models", id, "monitor") }, "Monitor"),
        h("a", { class: "button", href: address(`${path}/card?format=html`), target: "_blank", rel: "noopener" }, "Card"),
        h("a", { class: "button", href: address(`${path}/onnx`), download: `${model.id}.onnx` }, "Download ONNX"),
      ),
    ),
    asking(model, path, dataset),
    h("div", { class: "grid-2" }, predictFile(model, path), section("On rows it has never seen", facts(Object.entries(model.metrics).map(([name, value]) => [measureName(name), num(/** @type {any} */ (value))])))),
    await versions(model),
  );
  return { title: modelName(model), element };
}

// ---------------------------------------------------------------------------
// One row

/** @param {any} model @param {string} path @param {any} dataset */
function asking(model, path, dataset) {
  const profile = new Map((dataset?.columns ?? []).map((/** @type {any} */ each) => [each.name, each]));
  const inputs = model.columns.map((/** @type {any} */ column) => inputFor(column, profile.get(column.name), () => ask()));
  const isClass = model.classes !== null;
  const picture = isClass ? classBars() : memberDots();
  const words = h("p", { class: "answer" });
  const time = h("span", { class: "hint" });
  const problem = h("div", {});
  const why = h("div", {});
  let coverage = 0.9;
  const usual = profile.get(model.target)?.range ?? null;
  const build = () => ({ rows: [Object.fromEntries(inputs.map((/** @type {any} */ each) => [each.name, each.value()]))], coverage });
  const code = snippets(path, build);

  /** @type {AbortController | undefined} */
  let running;
  const ask = async () => {
    running?.abort();
    const mine = (running = new AbortController());
    const begun = performance.now();
    code.update();
    fill(why);
    try {
      const answer = await put("POST", `${path}/predict`, build(), mine.signal);
      if (mine.signal.aborted) return;
      const [row] = answer.predictions;
      picture.update(row, isClass ? model.classes : usual);
      fill(words, isClass ? classWords(row, model.classes, coverage) : numberWords(row, coverage));
      fill(time, `answered in ${Math.round(performance.now() - begun)} ms`);
      fill(problem, answer.warnings.map(warning));
    } catch (error) {
      if (!mine.signal.aborted) fill(problem, problemBox(error));
    }
  };
  const level = select([["0.5", "50 %"], ["0.8", "80 %"], ["0.9", "90 %"], ["0.95", "95 %"], ["0.99", "99 %"]], "0.9", (value) => {
    coverage = Number(value);
    ask();
  }, { class: "small" });
  const explain = action(
    "Why?",
    async () => {
      const body = build();
      const answer = await put("POST", `${path}/predict`, { ...body, explain: true });
      fill(why, pushes(answer.predictions[0].explanation, body.rows[0]));
    },
    { class: "small", onError: (error) => fill(why, problemBox(error)) },
  );
  ask();
  return h(
    "div",
    { class: "with-aside asking", data: { needs: "predict" } },
    h(
      "div",
      { class: "stack answer-side" },
      h("section", { class: "card" }, h("div", { class: "row apart" }, h("h2", {}, "What the members say"), inline("Coverage", level)), words, picture.element, h("div", { class: "row apart" }, h("span", { class: "hint" }, legend(isClass)), time), h("div", { class: "row" }, explain), why, problem),
      code.element,
    ),
    h("aside", {}, section("One row", inputs.length > MANY && finder(inputs), h("div", { class: "inputs", tabindex: 0, role: "region", "aria-label": "Values of the row" }, inputs.map((/** @type {any} */ each) => each.element)))),
  );
}

/** @param {any[]} inputs */
function finder(inputs) {
  const search = h("input", { type: "search", placeholder: `Find one of ${inputs.length} columns`, "aria-label": "Find a column" });
  search.addEventListener("input", () => {
    for (const each of inputs) each.element.hidden = !each.name.toLowerCase().includes(search.value.toLowerCase());
  });
  return search;
}

/** @param {boolean} isClass */
function legend(isClass) {
  return isClass ? "Bars: the ensemble. Marks: each member." : "Dots: each member. Line: their mean. Band: the interval.";
}

/** @param {any} row @param {any[]} classes @param {number} coverage */
function classWords({ label, mean, disagreement, set }, classes, coverage) {
  const shares = typeof mean === "number" ? [1 - mean, mean] : mean;
  const share = shares[classes.findIndex((each) => String(each) === String(label))];
  const parts = [h("b", {}, String(label)), share === undefined ? "" : ` with ${percent(share)}`];
  if (disagreement !== undefined) parts.push(disagreement ? `; ${percent(disagreement, 0)} of pairs of members disagree` : "; all members agree");
  if (set) parts.push(`. ${setWords(set)}: such sets hold the truth for ${percent(coverage, 0)} of rows`);
  return [...parts, "."];
}

/** @param {any[]} set */
function setWords(set) {
  return set.length === 1 ? "Nothing else is in the set" : set.length ? `${count(set.length, "class is", "classes are")} in the set` : "No class is in the set";
}

/** @param {any} row @param {number} coverage */
function numberWords({ mean, member_std: std, interval }, coverage) {
  const parts = [h("b", {}, num(mean)), std === undefined ? "" : `, members ± ${num(std, 3)}`];
  if (interval) parts.push(`; ${percent(coverage, 0)} of rows lie within such an interval: here between ${num(interval[0])} and ${num(interval[1])}`);
  return [...parts, "."];
}

/** @param {string} path @param {() => any} build */
function snippets(path, build) {
  const url = address(`${path}/predict`);
  const text = () => json(build());
  /** @type {Record<string, () => string>} */
  const languages = {
    curl: () => `curl ${url} \\\n  -H 'Content-Type: application/json' \\\n  -d ${shell(text())}`,
    Python: () => `import httpx\n\nanswer = httpx.post(\n    ${JSON.stringify(url)},\n    json=${python(build())},\n)\nprint(answer.json()["predictions"][0])`,
    JavaScript: () => `const answer = await fetch(${JSON.stringify(url)}, {\n  method: "POST",\n  headers: { "Content-Type": "application/json" },\n  body: JSON.stringify(${text()}),\n});\nconsole.log((await answer.json()).predictions[0]);`,
  };
  let language = "curl";
  const shown = snippet("With the row above", () => languages[language]());
  const choice = tabs(Object.keys(languages), language, (name) => {
    language = name;
    shown.update();
  }, "Language");
  return { element: section("Exactly this call", choice, shown.element), update: shown.update };
}

/** A value as Python writes it. @param {any} value */
function python(value) {
  return json(value, 4).replaceAll(/(^|[\s[:])(null|true|false)(?=[\s,\]}]|$)/gm, (_, before, word) => before + { null: "None", true: "True", false: "False" }[/** @type {"null"} */ (word)]);
}

// ---------------------------------------------------------------------------
// Versions

/** @param {any} model */
async function versions(model) {
  if (!model.name) return null;
  const page = await get(`models?name=${encodeURIComponent(model.name)}&limit=100`);
  const rows = page.data.map((/** @type {any} */ each) => {
    const isChampion = each.aliases.includes("champion");
    const promote = action("Make it the champion", async () => {
      await put("PUT", `models/${model.name}/aliases/champion`, { version: each.version });
      note(`${model.name}@champion is now version ${each.version}.`);
      dispatchEvent(new HashChangeEvent("hashchange"));
    }, { class: "small", data: { needs: "write" }, onError: (error) => note(/** @type {any} */ (error).message) });
    return h(
      "tr",
      {},
      h("td", {}, link(`${each.name}@${each.version}`, to("models", each.id))),
      h("td", {}, each.aliases.map((/** @type {string} */ alias) => h("span", { class: "tag" }, alias))),
      Object.values(each.metrics).map((value) => h("td", { class: "numeric" }, num(/** @type {any} */ (value)))),
      h("td", {}, isChampion ? "" : promote),
    );
  });
  const names = Object.keys(page.data[0]?.metrics ?? {});
  return h("section", { class: "card flush" }, h("h2", {}, "Versions"), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Versions" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "Version"), h("th", {}, "Aliases"), names.map((each) => h("th", { class: "numeric" }, measureName(each))), h("th", {}, h("span", { class: "visually-hidden" }, "Champion")))), h("tbody", {}, rows))));
}
