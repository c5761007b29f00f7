// @ts-check
/** Asking for a model: what, how long, how the members differ; and what it will take. */

import { RANKS, SIGMAS, nearest, plane } from "../charts/plane.js";
import { fill, h, link } from "../dom.js";
import { bytes, capital, count, duration, num, shell } from "../format.js";
import { Problem, address, get, put } from "../http.js";
import { facts, field, problemBox, section, select, snippet, tabs, warningList } from "../parts.js";
import { draft, go, keepDraft, to } from "../state.js";

const TIMED = "time";
const PRESETS = [
  ["fast", "Fast", "A first answer in seconds to a minute."],
  ["default", "Default", "Sixteen members; minutes on a CPU."],
  ["paper", "Paper", "Thirty-two wide members, as in the paper. Hours on a CPU."],
  [TIMED, "By the clock", "A search that ends in time, with the best members it has found."],
];
const MINUTES = 10; // of a search by the clock, until somebody says otherwise
const TASKS = [["auto", "by its values"], ["regression", "a number (regression)"], ["binary", "one of two classes"], ["multiclass", "one of several classes"]];
const BASELINES = [
  ["tabm", "TabM"],
  ["deep-ensemble", "Deep ensemble"],
  ["additive", "Additive masks"],
  ["mlp", "One MLP"],
  ["catboost", "CatBoost"],
];
const MORE = [
  ["k", "Members (K)", 1, 256],
  ["n_blocks", "Hidden layers", 1, 8],
  ["d_block", "Width", 8, 4096],
  ["dropout", "Dropout", 0, 0.9],
  ["lr", "Learning rate", 0, 1],
  ["batch_size", "Batch size", 1, 65536],
  ["max_epochs", "Epochs at most", 1, 10000],
  ["patience", "Patience", 1, 10000],
  ["seed", "Seed", 0, 2147483647],
];

/** @param {string | undefined} id @param {URLSearchParams} query */
export async function trainView(id, query) {
  return id ? form(await get(`datasets/${encodeURIComponent(id)}`), query) : chooser();
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

/** @param {any} dataset @param {URLSearchParams} query */
function form(dataset, query) {
  const chosen = draft(dataset.id);
  /** What is asked for, without what is as the preset has it. @type {Record<string, any>} */
  const config = {
    dataset_id: dataset.id,
    target: chosen.target ?? dataset.suggestions[0]?.target ?? dataset.columns.at(-1).name,
    preset: "fast",
    hyperparameters: {},
  };
  let kind = query.get("kind") ?? "train";
  let isByClock = false;
  const sweep = { rank: "1, 4, 16", sigma_init: "0.1, 0.5, 1, 2", seeds: 1 };
  const tune = { n_trials: 20, seeds: 3, finalists: 3 };

  const build = () => {
    /** @type {Record<string, any>} */
    const body = { ...config };
    const kinds = { ...chosen.columns };
    delete kinds[config.target];
    if (Object.keys(kinds).length) body.columns = kinds;
    if (!Object.keys(body.hyperparameters).length) delete body.hyperparameters;
    if (isByClock) return body;
    if (kind !== "train") body.kind = kind;
    if (kind === "sweep") body.sweep = { grid: { rank: numbers(sweep.rank), sigma_init: numbers(sweep.sigma_init) }, seeds: sweep.seeds };
    if (kind === "tune") body.tune = { ...tune };
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
  plan.onPlan(knobs.show);
  knobs.show({ hyperparameters: { rank: 4, sigma_init: 1 } }); // until the service has told

  const parts = { train: knobs.element, sweep: sweepFields(sweep, () => changed()), tune: tuneFields(tune, () => changed()) };
  /** @type {HTMLElement} */
  let how;
  const time = (/** @type {boolean} */ isTimed) => {
    isByClock = isTimed;
    how.hidden = isTimed; // the search decides
    changed();
  };
  const choose = (/** @type {string} */ name) => {
    kind = name;
    for (const [each, part] of Object.entries(parts)) part.hidden = each !== name;
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
        section("How long", ...howLong(config, (isTimed) => time(isTimed))),
        (how = section("How", tabs(["Train", "Sweep", "Tune"], capital(kind), (name) => choose(name.toLowerCase()), "Kind of job"), parts.train, parts.sweep, parts.tune)),
        section("Side by side with", baselines(config, () => changed()), h("p", { class: "hint" }, "Trained on the same rows after the model, and reported beside it.")),
        more(config, () => changed()),
      ),
      h("aside", { class: "stack" }, plan.element, submit, problem, command.element),
    ),
  );
  choose(kind);
  return { title: "New job", element, close: plan.close };
}

/** @param {string} text */
function numbers(text) {
  return text.split(/[,;\s]+/).filter(Boolean).map(Number);
}

/** @param {any} body */
function curl(body) {
  return `curl ${address("jobs")} \\\n  -H 'Content-Type: application/json' \\\n  -d ${shell(JSON.stringify(body, null, 2))}`;
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
  const name = h("input", { type: "text", maxlength: 100, placeholder: "optional, such as churn", on: { input: () => set(config, "name", name.value.trim() || null, changed) } });
  return section(
    "What",
    h("div", { class: "fields" }, field("Predict", target), field("It is", task), field("Name of the model", name)),
    h("p", { class: "hint" }, "Kinds of columns are changed on the page of the ", link("table", to("data", dataset.id)), "."),
  );
}

/** @param {any} config @param {string} name @param {any} value null: as the service has it @param {() => void} [changed] */
function set(config, name, value, changed = () => {}) {
  if (value === null) delete config[name];
  else config[name] = value;
  changed();
}

/** A preset, or a time. @param {any} config @param {(isTimed: boolean) => void} changed */
function howLong(config, changed) {
  let isTimed = false;
  const [limit, budget] = [h("input", { type: "number", min: 1, max: 100000, placeholder: "no limit" }), h("input", { type: "number", min: 1, max: 10000, value: MINUTES })];
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
    config.preset = isTimed ? "default" : value;
    update();
  };
  for (const each of [limit, budget]) each.addEventListener("input", update);
  fields[1].hidden = true;
  const choices = PRESETS.map(([value, text, about]) => {
    const radio = h("input", { type: "radio", name: "preset", value, checked: value === config.preset, on: { change: () => choose(value) } });
    return h("label", { class: "choice" }, radio, h("strong", {}, text), h("span", {}, about));
  });
  return [h("div", { class: "choices", role: "radiogroup", "aria-label": "Preset" }, choices), h("div", { class: "fields" }, fields)];
}

/** @param {any} config @param {() => void} changed */
function baselines(config, changed) {
  return h(
    "div",
    { class: "row" },
    BASELINES.map(([value, text]) => {
      const box = h("input", { type: "checkbox" });
      box.addEventListener("change", () => {
        const others = (config.baselines ?? []).filter((/** @type {string} */ each) => each !== value);
        const all = box.checked ? [...others, value] : others;
        set(config, "baselines", all.length ? all : null, changed);
      });
      return h("label", { class: "check" }, box, text);
    }),
  );
}

/** @param {any} config @param {() => void} changed */
function more(config, changed) {
  const controls = MORE.map(([name, text, min, max]) => {
    const input = h("input", { type: "number", min, max, step: "any", placeholder: "as the preset" });
    input.addEventListener("input", () => {
      set(config.hyperparameters, String(name), input.value === "" ? null : Number(input.value), changed);
    });
    return field(String(text), input);
  });
  return h("section", { class: "card" }, h("details", {}, h("summary", {}, "Every other setting"), h("div", { class: "fields" }, controls)));
}

// ---------------------------------------------------------------------------
// How the members differ

/** @param {any} config @param {() => void} changed */
function makeKnobs(config, changed) {
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

/** @param {any} sweep @param {() => void} changed */
function sweepFields(sweep, changed) {
  const text = (/** @type {string} */ name) => h("input", { type: "text", value: sweep[name], on: { input: (/** @type {any} */ event) => ((sweep[name] = event.target.value), changed()) } });
  const seeds = h("input", { type: "number", min: 1, max: 100, value: sweep.seeds, on: { input: () => ((sweep.seeds = Number(seeds.value)), changed()) } });
  return h(
    "div",
    { class: "stack" },
    h("p", { class: "faint" }, "Every rank with every sigma_init, side by side."),
    h("div", { class: "fields" }, field("Ranks", text("rank")), field("Values of sigma_init", text("sigma_init")), field("Seeds of each", seeds)),
  );
}

/** @param {any} tune @param {() => void} changed */
function tuneFields(tune, changed) {
  const fields = [["n_trials", "Trials", 1000], ["finalists", "Finalists", 10], ["seeds", "Seeds of the winner", 16]].map(([name, label, max]) => {
    const input = h("input", { type: "number", min: 1, max, value: tune[name], on: { input: () => ((tune[name] = Number(input.value)), changed()) } });
    return field(String(label), input);
  });
  return h("div", { class: "stack" }, h("p", { class: "faint" }, "A search through the paper's space; the best few are tried again with other seeds, and the winner becomes the model."), h("div", { class: "fields" }, fields));
}

// ---------------------------------------------------------------------------
// What it will take

/** @param {() => any} build */
function planner(build) {
  const body = h("div", { class: "stack", style: { "min-height": "132px" } }, h("p", { class: "faint" }, "Looking …"));
  /** @type {number | undefined} */
  let timer;
  /** @type {AbortController | undefined} */
  let running;
  let tell = (/** @type {any} */ _) => {};
  const look = async () => {
    running?.abort();
    running = new AbortController();
    try {
      const plan = await put("POST", "jobs/plan", build(), running.signal);
      fill(body, estimate(plan));
      tell(plan);
    } catch (error) {
      if (error instanceof Problem) fill(body, problemBox(error));
    }
  };
  return {
    element: section("What it will take", body),
    update() {
      clearTimeout(timer);
      timer = setTimeout(look, running ? 250 : 0); // the first look is at once
    },
    onPlan: (/** @type {(plan: any) => void} */ listener) => (tell = listener),
    close() {
      clearTimeout(timer);
      running?.abort();
    },
  };
}

/** @param {any} plan */
function estimate(plan) {
  const { estimate: cost, hyperparameters: settings, warnings } = plan;
  const used = Object.values(plan.columns).filter((each) => !each.startsWith("ignored")).length;
  return [
    facts([
      ["Task", plan.task],
      ["Columns used", num(used)],
      ["Members", num(settings.k)],
      ["Parameters", num(cost.n_parameters)],
      ["Memory", bytes(cost.memory_bytes)],
      ["Time at most", cost.max_seconds < 60 ? "under a minute" : duration(cost.max_seconds)],
      ...(plan.n_runs > 1 ? [["Runs", num(plan.n_runs)]] : []),
    ]),
    h("p", { class: "hint" }, `${duration(cost.seconds_per_epoch)} for an epoch, ${cost.basis === "workers" ? "by what workers have measured" : "as a guess"}; training stops early when it gets no better.`),
    warningList(warnings).element,
  ];
}
