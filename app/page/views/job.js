// @ts-check
/** A job as it happens: curves, phases, warnings; and what can be asked of it. */

import { lineChart } from "../charts/line.js";
import { fill, h, link } from "../dom.js";
import { bytes, capital, clock, count, day, duration, num } from "../format.js";
import { ENDS, address, find, follow, get, put } from "../http.js";
import { kindWords, progressWords, scoreName, share, title } from "../jobs.js";
import { action, badge, facts, note, problemBox, progressBar, section, snippet, warningList } from "../parts.js";
import { every, pause, to } from "../state.js";
import { faultList } from "./faults.js";
import { runsOf } from "./runs.js";

const PATIENCE = 0.8; // seconds

/** @param {string} id */
export async function jobView(id) {
  const path = `jobs/${encodeURIComponent(id)}`;
  let job = await get(path);
  const dataset = await get(`datasets/${job.dataset_id}`).catch(() => null);
  const bar = progressBar("Progress of the job");
  const [state, words, buttons, problems] = [0, 1, 2, 3].map(() => h("div", {}));
  const warnings = warningList();
  words.className = "faint";
  buttons.className = "row";
  buttons.dataset.needs = "write";
  const curves = makeCurves(job);
  const runs = ["train", "predict"].includes(job.kind) ? null : runsOf(job, path);
  const faults = job.kind === "predict" ? faultList(path) : null;
  const log = makeLog();
  const done = h("div", {});
  const offline = h("p", { class: "hint", hidden: true }, "The connection is lost; it will be taken up where it was.");

  let shown = "";
  const show = () => {
    fill(state, badge(job.status));
    fill(words, progressWords(job));
    bar.set(share(job));
    bar.element.hidden = ENDS.includes(job.status);
    runs?.update(job);
    faults?.update(job).catch(() => {}); // they are asked for again with the next state
    if (job.status === shown) return; // a button stays the same while it is pressed
    shown = job.status;
    fill(buttons, commands(job, path, refresh, listen));
    fill(problems, job.error && problemBox(new Error(job.error.detail)));
    fill(done, results(job));
  };
  const refresh = async () => {
    const now = await get(path);
    const queue = now.status === "queued" && now.kind === "train" ? await find("queue", 403) : null;
    now.waiting = queue?.data.find((/** @type {any} */ each) => each.job_id === now.id);
    job = now;
    show();
  };
  let seen = 0;
  let leave = () => {};
  const listen = () => {
    leave();
    leave = follow(
      id,
      (event) => {
        if (event.seq <= seen) return; // it was told before a retry
        seen = event.seq;
        log.add(event);
        if (event.type === "epoch") {
          curves.add(event.data);
          Object.assign(job.progress, pick(event.data, job.progress));
          show();
        } else {
          if (event.type === "warning") warnings.add(event.data.detail);
          refresh().catch(() => {});
        }
      },
      (isOpen) => (offline.hidden = isOpen),
    );
  };
  show();
  if (job.status === "queued") refresh().catch(() => {});
  listen();
  const stopLooking = every(5, async () => {
    if (!ENDS.includes(job.status)) await refresh();
  });
  if (runs) await Promise.race([runs.update(job), pause(PATIENCE)]); // then nothing jumps
  const element = h(
    "div",
    { class: "stack" },
    h(
      "div",
      { class: "row apart" },
      h("div", {}, h("div", { class: "row" }, h("h1", {}, title(job, dataset?.filename)), state), h("p", { class: "faint" }, `${kindWords(job)} · `, dataset ? link(dataset.filename, to("data", dataset.id)) : "")),
      buttons,
    ),
    h("div", {}, bar.element, words, offline),
    problems,
    done,
    warnings.element,
    job.kind === "train" && section("While it learns", h("div", { class: "grid-3" }, curves.element)),
    runs?.element,
    faults?.element,
    h("div", { class: "grid-2" }, about(job), section("What happened", log.element)),
    snippet("The same events by curl", () => `curl -N ${address(`${path}/events`)} -H 'Accept: text/event-stream'`).element,
  );
  return {
    title: title(job, dataset?.filename),
    element,
    close() {
      leave();
      stopLooking();
    },
  };
}

/** Those values of an event that the progress has too. @param {any} data @param {any} progress */
function pick(data, progress) {
  return Object.fromEntries(Object.keys(progress).filter((each) => each in data).map((each) => [each, data[each]]));
}

/**
 * @param {any} job
 * @param {string} path
 * @param {() => Promise<void>} refresh
 * @param {() => void} listen
 */
function commands(job, path, refresh, listen) {
  const ask = (/** @type {string} */ verb, /** @type {string} */ said) => async () => {
    await put("POST", `${path}/${verb}`);
    note(said);
    await refresh();
  };
  const onError = (/** @type {any} */ error) => note(error.message);
  if (job.status === "queued") return [action("Cancel", ask("cancel", "Cancelled."), { class: "danger", onError })];
  if (job.status === "running") {
    return [
      job.kind !== "predict" && action("Stop and keep the best", ask("stop", "It stops after this epoch, and keeps the best one."), { onError }),
      action("Cancel", ask("cancel", "It will be cancelled within seconds."), { class: "danger", onError }),
    ];
  }
  if (!["failed", "cancelled"].includes(job.status)) return [];
  const retry = async () => {
    await ask("retry", "It is tried again.")();
    listen(); // its stream was over
  };
  return [action("Try again", retry, { class: "primary", onError })];
}

/** Where a job that has ended leads. @param {any} job */
function results(job) {
  if (job.status !== "succeeded") return null;
  const ways = [];
  if (job.links.report) ways.push(h("a", { class: "button primary", href: to("jobs", job.id, "report") }, "Read the report"));
  if (job.result?.expires_at) ways.push(h("a", { class: "button primary", href: address(job.links.result), download: `${job.id}.${job.result.output}` }, `Download the answers (${bytes(job.result.size)})`));
  else if (job.result) return h("p", { class: "hint" }, "The answers were kept for as long as the service is set to, and are gone. Predict the table once more to have them again.");
  if (job.model_id) ways.push(h("a", { class: "button", href: to("models", job.model_id) }, "Ask the model"));
  return ways.length ? h("div", { class: "row" }, ways) : null;
}

// ---------------------------------------------------------------------------

/** @param {any} job */
function makeCurves(job) {
  const isRegression = job.config.task === "regression";
  const loss = lineChart({ title: "Training loss", x: "epoch" });
  const score = lineChart({ title: `${scoreName(job.config.task)} on validation`, x: "epoch" });
  const diversity = lineChart({ title: isRegression ? "Diversity of the members (ambiguity)" : "Diversity of the members (pairwise KL)", x: "epoch" });
  /** Epochs by number and seed: one that is told again takes the place of the first. @type {Map<string, any>} */
  const epochs = new Map();
  let isDue = false;
  const draw = () => {
    isDue = false;
    const seed = Math.max(0, ...[...epochs.values()].map((each) => each.seed ?? 0));
    const all = [...epochs.values()].filter((each) => (each.seed ?? 0) === seed).sort((a, b) => a.epoch - b.epoch);
    /** @type {(name: string) => [number, number][]} */
    const points = (name) => all.filter((each) => each[name] !== null).map((each) => [each.epoch, each[name]]);
    const best = all.at(-1)?.best_epoch ?? null;
    loss.update([{ name: "loss", look: "other", points: points("train_loss") }], best);
    score.update(
      [
        { name: "ensemble", look: "main", points: points("val_score") },
        { name: "a member, on average", look: "other", points: points("member_score") },
      ],
      best,
    );
    diversity.update([{ name: "diversity", look: "good", points: points("diversity") }], best);
  };
  draw();
  return {
    element: [loss.element, score.element, diversity.element],
    /** @param {any} data */
    add(data) {
      epochs.set(`${data.seed ?? 0} ${data.epoch}`, data);
      if (isDue) return;
      isDue = true;
      requestAnimationFrame(draw);
    },
  };
}

const EVENTS = /** @type {Record<string, string>} */ ({ running: "Started", child: "Run", released: "Given back", lost: "Worker lost" });

function makeLog() {
  const element = h("ol", { class: "log", tabindex: 0, "aria-label": "Events" });
  return {
    element,
    /** @param {any} event */
    add(event) {
      if (event.type === "epoch") return; // they are in the curves
      element.append(h("li", {}, h("time", {}, clock(event.created_at)), h("span", {}, EVENTS[event.type] ?? capital(event.type)), h("span", { class: "faint" }, eventWords(event))));
      element.scrollTop = element.scrollHeight;
    },
  };
}

/** @param {any} event */
function eventWords({ type, data }) {
  if (type === "phase") return data.phase;
  if (type === "queued" && data.queue) return `for ${data.queue.toUpperCase()} workers`;
  if (type === "running") return data.worker ? `attempt ${data.attempt} on ${data.worker}` : "";
  if (type === "child") return [link(`number ${data.position}`, to("jobs", data.job_id)), ` has ${data.status}`];
  if (type === "refitting") return [`with the settings of trial ${data.trial}: `, link("its job", to("jobs", data.job_id))];
  if (type === "succeeded" && data.model_id) return link("its model", to("models", data.model_id));
  if (type === "checkpoint" || type === "resumed") return `epoch ${data.epoch}`;
  if (typeof data.detail === "string") return data.detail;
  return Object.entries(data).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
}

/** @param {any} job */
function aboutPrediction({ config, id, model_id: modelId, result }) {
  return section(
    "Settings",
    facts([
      ["Model", modelId ? link(config.model_id, to("models", modelId), { class: "mono small" }) : config.model_id],
      ["Answers as", config.output],
      ["A row that cannot be read", config.on_error === "skip" ? "has no answer" : "fails the job"],
      ...(result?.expires_at ? [["Kept until", day(result.expires_at)]] : []),
      ["Job", h("span", { class: "mono small" }, id)],
    ]),
  );
}

/** Settings that the runs of a sweep or a search differ in. @param {any} config @returns {string[]} */
function variedBy({ sweep, tune }) {
  const told = Object.entries(tune?.space ?? {}).filter(([, each]) => each !== null).map(([name]) => name);
  return [...new Set([...[sweep?.grid ?? []].flat().flatMap((each) => Object.keys(each)), ...told])].sort();
}

/** @param {any} job */
function about(job) {
  const { config, estimate, columns } = job;
  if (job.kind === "predict") return aboutPrediction(job);
  const settings = config.hyperparameters;
  const varied = variedBy(config);
  /** What each run has of its own is no fact of the whole. */
  const given = (/** @type {[string, any, string[]][]} */ all) => all.filter(([, , names]) => !names.some((each) => varied.includes(each))).map(([name, value]) => [name, value]);
  const unused = Object.entries(columns).filter(([, each]) => each.startsWith("ignored"));
  return section(
    "Settings",
    facts([
      ["Predicts", config.target],
      ["Task", config.task],
      ["Preset", config.preset],
      ...(varied.length ? [["Tries values of", varied.join(", ")]] : []),
      ...given([
        ["Members", num(settings.k * config.n_seeds), ["k"]],
        ["Rank", num(settings.rank), ["rank"]],
        ["sigma_init", num(settings.sigma_init), ["sigma_init"]],
        ["Layers", `${settings.n_blocks} × ${settings.d_block}`, ["n_blocks", "d_block"]],
      ]),
      ["Split", config.split.kind],
      ["Parameters", num(estimate.n_parameters)],
      ["Memory", bytes(estimate.memory_bytes)],
      ["Epoch, estimated", duration(estimate.seconds_per_epoch)],
      ["Job", h("span", { class: "mono small" }, job.id)],
    ]),
    unused.length > 0 &&
      h("details", {}, h("summary", {}, `${count(unused.length, "column is", "columns are")} not used`), h("ul", {}, unused.map(([name, why]) => h("li", {}, h("b", {}, name), `: ${why.replace("ignored: ", "")}`)))),
  );
}
