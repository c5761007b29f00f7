// @ts-check
/** Asking for a model: what, how long, how the members differ; and what it will take. */

import { fill, h, link } from "../dom.js";
import { capital, count, duration, json, methodName, shell } from "../format.js";
import { address, get, put } from "../http.js";
import { checkBox, field, problemBox, section, select, snippet, tabs } from "../parts.js";
import { choices, parse, readSchemas, settings as readSettings } from "../schema.js";
import { draft, go, keepDraft, to } from "../state.js";
import { makeKnobs } from "./knobs.js";
import { planner } from "./plan.js";
import { gridOf, sweepFields, tuneFields } from "./settings.js";

const TIMED = "time";
const MINUTES = 10; // of a search by the clock, until somebody says otherwise
const FIRST = "fast"; // the preset of a first look, if there is one
const TASKS = [["auto", "by its values"], ["regression", "a number (regression)"], ["binary", "one of two classes"], ["multiclass", "one of several classes"]];

/** @param {string | undefined} id @param {URLSearchParams} query */
export async function trainView(id, query) {
  if (!id) return chooser();
  const [dataset, schemas] = await Promise.all([get(`datasets/${encodeURIComponent(id)}`), readSchemas()]);
  return form(dataset, schemas, query);
}

async function chooser() {
  const page = await get("datasets?limit=100");
  const items = page.data.map((/** @type {any} */ each) =>
    h("li", {}, h("a", { class: "item", href: to("train", each.id) }, h("div", { class: "item-title" }, each.filename), h("div", { class: "item-sub" }, `${count(each.n_rows, "row")}, ${count(each.n_columns, "column")}`), h("span", { class: "faint" }, "Train"))),
  );
  const empty = h("p", {}, "There is no table yet. ", link("Upload one", to("data")), " first.");
  const element = h("div", { class: "stack" }, h("div", {}, h("h1", {}, "Train"), h("p", { class: "lead" }, "On which table?")), items.length ? h("section", { class: "card flush" }, h("ul", { class: "list" }, items)) : empty);
  return { title: "Train", element };
}

/** @param {any} dataset @param {Record<string, any>} schemas @param {URLSearchParams} query */
function form(dataset, schemas, query) {
  const chosen = draft(dataset.id);
  const presets = choices(schemas, "Preset");
  const settings = readSettings(schemas);
  /** What is asked for, without what is as the preset has it. @type {Record<string, any>} */
  const config = {
    dataset_id: dataset.id,
    target: chosen.target ?? dataset.suggestions[0]?.target ?? dataset.columns.at(-1).name,
    preset: presets.includes(FIRST) ? FIRST : presets[0],
    hyperparameters: {},
  };
  let kind = ["sweep", "tune"].find((each) => each === query.get("kind")) ?? "train";
  let isByClock = false;
  const sweep = { axes: [{ name: "rank", text: "1, 4, 16" }, { name: "sigma_init", text: "0.1, 0.5, 1, 2" }], seeds: 1 };
  const tune = { n_trials: 20, seeds: 3, finalists: 3 };

  const search = tuneFields(tune, settings, () => changed());
  const build = () => {
    /** @type {Record<string, any>} */
    const body = { ...config };
    const kinds = { ...chosen.columns };
    delete kinds[config.target];
    if (Object.keys(kinds).length) body.columns = kinds;
    if (!Object.keys(body.hyperparameters).length) delete body.hyperparameters;
    if (isByClock) return body;
    if (kind !== "train") body.kind = kind;
    if (kind === "sweep") body.sweep = { grid: gridOf(sweep.axes, settings), seeds: sweep.seeds };
    const space = search.space();
    if (kind === "tune") body.tune = { ...tune, ...(space && { space }) };
    return body;
  };

  const command = snippet("The same by curl", () => curl(build()));
  const plan = planner(build);
  const knobs = makeKnobs(config, () => changed());
  const problem = h("div", {});
  const submit = h("button", { class: "primary", type: "button" }, "Train");
  submit.addEventListener("click", async () => {
    submit.disabled = true;
    try {
      go(to("jobs", (await put("POST", "jobs", build())).id));
    } catch (error) {
      fill(problem, problemBox(error));
      submit.disabled = false;
    }
  });

  const changed = () => {
    keepDraft(dataset.id, { ...chosen, target: config.target });
    fill(problem);
    fill(submit, isByClock ? "Search until then" : kind === "train" ? "Train" : kind === "sweep" ? "Start the sweep" : "Start the search");
    command.update();
    plan.update();
  };
  const planned = new Promise((done) => {
    plan.onPlan((each) => {
      knobs.show(each);
      search.show(each);
      done(each); // then presets may be asked about
    });
  });
  knobs.show({ hyperparameters: { rank: 4, sigma_init: 1 } }); // until the service has told

  const part = h("div", {});
  const parts = /** @type {Record<string, HTMLElement>} */ ({ train: knobs.element, sweep: sweepFields(sweep, settings, () => changed()), tune: search.element });
  /** @type {HTMLElement} */
  let how;
  const time = (/** @type {boolean} */ isTimed) => {
    isByClock = isTimed;
    how.hidden = isTimed; // the search decides
    changed();
  };
  const choose = (/** @type {string} */ name) => {
    kind = name;
    fill(part, parts[name]); // the others are kept as they are
    changed();
  };
  const element = h(
    "div",
    { class: "stack" },
    h("div", {}, h("h1", {}, "New job"), h("p", { class: "lead" }, "On ", link(dataset.filename, to("data", dataset.id)), `, ${count(dataset.n_rows, "row")}.`)),
    h(
      "div",
      { class: "with-aside" },
      h(
        "div",
        { class: "stack" },
        what(dataset, config, () => changed()),
        section("How long", ...howLong(config, presets, planned, (isTimed) => time(isTimed))),
        (how = section("How", tabs(["Train", "Sweep", "Tune"], capital(kind), (name) => choose(name.toLowerCase()), "Kind of job"), part)),
        section("Side by side with", baselines(config, choices(schemas, "BaselineName"), () => changed()), h("p", { class: "hint" }, "Trained on the same rows after the model, and reported beside it.")),
        more(config, settings, () => changed()),
      ),
      h("aside", { class: "stack" }, plan.element, submit, problem, command.element),
    ),
  );
  choose(kind);
  return { title: "New job", element, close: plan.close };
}

/** @param {any} body */
function curl(body) {
  return `curl ${address("jobs")} \\\n  -H 'Content-Type: application/json' \\\n  -d ${shell(json(body))}`;
}

// ---------------------------------------------------------------------------
// What is asked

/** @param {any} dataset @param {any} config @param {() => void} changed */
function what(dataset, config, changed) {
  const target = select(dataset.columns.map((/** @type {any} */ each) => [each.name, each.name]), config.target, (value) => {
    config.target = value;
    changed();
  });
  const task = select(/** @type {any} */ (TASKS), "auto", (value) => {
    if (value === "auto") delete config.task;
    else config.task = value;
    changed();
  });
  const name = h("input", { type: "text", maxlength: 100, placeholder: "such as churn", on: { input: () => set(config, "name", name.value.trim() || null, changed) } });
  return section(
    "What",
    h("div", { class: "fields" }, field("Predict", target), field("It is", task), field("Name of the model", name)),
    h("div", { class: "row" }, checkBox("Keep copies of a row in one part", (isOn) => set(config, "split", isOn ? { group_duplicates: true } : null, changed)), checkBox("Leave out rows that lack it", (isOn) => set(config, "drop_missing_target", isOn || null, changed))),
    h("p", { class: "hint" }, "Kinds of columns are changed on the page of the ", link("table", to("data", dataset.id)), "."),
  );
}

/** @param {any} config @param {string} name @param {any} value null: as the service has it @param {() => void} [changed] */
function set(config, name, value, changed = () => {}) {
  if (value === null) delete config[name];
  else config[name] = value;
  changed();
}

/** A preset, or a time. @param {any} config @param {string[]} presets @param {Promise<unknown>} planned @param {(isTimed: boolean) => void} changed */
function howLong(config, presets, planned, changed) {
  let isTimed = false;
  const [limit, budget] = [h("input", { type: "number", min: 1, max: 100000, placeholder: "no limit" }), h("input", { type: "number", min: 0.2, max: 10000, step: "any", value: MINUTES })];
  const seconds = (/** @type {any} */ input) => (Number(input.value) > 0 ? Math.round(60 * Number(input.value)) : null);
  const fields = [field("Minutes at most", limit, "Then the best epoch so far is kept."), field("Minutes", budget, "Counted from its start, on all workers.")];
  const update = () => {
    [fields[0].hidden, fields[1].hidden] = [isTimed, !isTimed];
    set(config, "max_runtime_seconds", isTimed ? null : seconds(limit));
    set(config, "time_budget_seconds", isTimed ? seconds(budget) : null);
    changed(isTimed);
  };
  const choose = (/** @type {string} */ value) => {
    isTimed = value === TIMED;
    config.preset = !isTimed ? value : presets.includes("default") ? "default" : presets[0];
    update();
  };
  for (const each of [limit, budget]) each.addEventListener("input", update);
  fields[1].hidden = true;
  const card = (/** @type {string} */ value, /** @type {string} */ text, /** @type {any} */ about) => {
    const radio = h("input", { type: "radio", name: "preset", value, checked: value === config.preset, on: { change: () => choose(value) } });
    return h("label", { class: "choice" }, radio, h("strong", {}, text), about);
  };
  const cards = [...presets.map((each) => card(each, capital(each), aboutPreset(config, each, planned))), card(TIMED, "By the clock", h("span", {}, "A search that ends in time, with the best members it has found."))];
  return [h("div", { class: "choices", role: "radiogroup", "aria-label": "Preset" }, cards), h("div", { class: "fields" }, fields)];
}

/** What a preset comes to on this table, by the service. @param {any} config @param {string} preset @param {Promise<unknown>} planned */
function aboutPreset({ dataset_id, target }, preset, planned) {
  const words = h("span", { class: "many-lines" }, " ");
  const tell = (/** @type {any} */ { hyperparameters: { k, n_blocks, d_block }, estimate: { max_seconds: most } }) => {
    const time = most < 60 ? "under a minute" : `at most ${duration(most)}`;
    fill(words, `${count(k, "member")}, ${count(n_blocks, "layer")} of ${d_block}; ${time} on this table.`);
  };
  planned.then(() => put("POST", "jobs/plan", { dataset_id, target, preset })).then(tell, () => {}); // what is wrong is told beside
  return words;
}

/** @param {any} config @param {string[]} names @param {() => void} changed */
function baselines(config, names, changed) {
  return h(
    "div",
    { class: "row" },
    names.map((value) => {
      return checkBox(methodName(value), (isOn) => {
        const others = (config.baselines ?? []).filter((/** @type {string} */ each) => each !== value);
        const all = isOn ? [...others, value] : others;
        set(config, "baselines", all.length ? all : null, changed);
      });
    }),
  );
}

const KNOBS = ["rank", "sigma_init"]; // they are the plane

/** @param {any} config @param {import("../schema.js").Setting[]} settings @param {() => void} changed */
function more(config, settings, changed) {
  const controls = settings.filter(({ name }) => !KNOBS.includes(name)).map((each) => {
    const tell = (/** @type {any} */ value) => set(config.hyperparameters, each.name, value === "" ? null : parse(each, value), changed);
    return field(each.label, control(each, tell), each.about);
  });
  return h("section", { class: "card" }, h("details", {}, h("summary", {}, "Every other setting"), h("div", { class: "fields" }, controls)));
}

/** @param {import("../schema.js").Setting} setting @param {(value: string) => void} tell */
function control({ type, choices: all, low, high }, tell) {
  const words = type === "boolean" ? ["yes", "no"] : all;
  if (words) return select([["", "as the preset"], .../** @type {[string, string][]} */ (words.map((each) => [each, each]))], "", tell);
  const input = h("input", { type: "number", min: low, max: high, step: "any", placeholder: "as the preset", on: { input: () => tell(input.value) } });
  return input;
}
