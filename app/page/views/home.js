// @ts-check
/** What runs, what waits, what has finished, and who works on it. */

import { fill, h, keep, link } from "../dom.js";
import { ago, bytes, count } from "../format.js";
import { get, readOwn, upload } from "../http.js";
import { OPEN, kindWords, progressWords, share, title } from "../jobs.js";
import { badge, problemBox, progressBar, section } from "../parts.js";
import { every, go, to } from "../state.js";
import { dropZone } from "./data.js";

const SECONDS = 2;
const EXAMPLE = "wine_quality.csv";

export async function homeView() {
  const problem = h("div", {});
  const body = h("div", { class: "stack" });
  const element = h(
    "div",
    { class: "stack" },
    h("div", {}, h("h1", {}, "What is going on"), h("p", { class: "lead" }, "Jobs of this workspace, and the workers that train them.")),
    problem,
    body,
  );
  const open = jobList();
  const ended = jobList();
  const workers = h("ul", { class: "list" });
  const summary = h("p", { class: "faint" });
  /** @type {boolean | null} */
  let isEmpty = null;

  const update = async () => {
    try {
      const [jobs, alive, datasets] = await Promise.all([get("jobs?limit=50"), get("workers"), get("datasets?limit=100")]);
      const names = new Map(datasets.data.map((/** @type {any} */ each) => [each.id, each.filename]));
      fill(problem);
      const now = jobs.data.filter((/** @type {any} */ job) => OPEN.includes(job.status));
      place(now);
      open.update(now, names);
      ended.update(jobs.data.filter((/** @type {any} */ job) => !OPEN.includes(job.status)), names);
      showWorkers(workers, summary, alive.data);
      arrange(jobs.data.length === 0, now.length === 0);
    } catch (error) {
      fill(problem, problemBox(error));
      if (isEmpty === null) throw error;
    }
  };

  /** @param {boolean} hasNone @param {boolean} isIdle */
  const arrange = (hasNone, isIdle) => {
    open.element.hidden = isIdle;
    if (hasNone === isEmpty) return;
    isEmpty = hasNone;
    const team = h("section", { class: "card flush" }, h("div", { class: "row apart" }, h("h2", {}, "Workers"), summary), workers);
    fill(body, hasNone ? welcome() : [open.element, ended.element], team);
  };

  open.name("Running and waiting");
  ended.name("Finished");
  await update();
  return { title: "LoMETab", element, close: every(SECONDS, update) };
}

/** Say of each job that waits how many are before it. @param {any[]} jobs */
function place(jobs) {
  const waiting = jobs.filter((job) => job.status === "queued").reverse();
  waiting.forEach((job, i) => {
    if (job.notice === null && i > 0) job.notice = `It waits behind ${count(i, "other job")} of this workspace.`;
  });
}

function jobList() {
  const list = h("ul", { class: "list" });
  const head = h("h2", {});
  return {
    element: h("section", { class: "card flush" }, head, list),
    /** @param {string} text */
    name: (text) => fill(head, text),
    /** @param {any[]} jobs @param {Map<string, string>} names */
    update: (jobs, names) => keep(list, jobs, (job) => job.id, () => jobRow(names)),
  };
}

/** @param {Map<string, string>} names */
export function jobRow(names) {
  const bar = progressBar("Progress of the job");
  const [head, sub, words, state] = ["item-title", "item-sub", "item-sub", ""].map((each) => h("div", { class: each }));
  const anchor = h("a", { class: "item" }, h("div", {}, head, sub), h("div", {}, bar.element, words), state);
  return {
    element: h("li", {}, anchor),
    /** @param {any} job */
    update(job) {
      anchor.setAttribute("href", to("jobs", job.id));
      fill(head, title(job, names.get(job.dataset_id)));
      fill(sub, `${kindWords(job)} · ${ago(job.finished_at ?? job.created_at)}`);
      fill(words, progressWords(job));
      bar.element.hidden = !OPEN.includes(job.status);
      bar.set(share(job));
      fill(state, badge(job.status));
    },
  };
}

/** @param {Element} list @param {Element} summary @param {any[]} alive */
function showWorkers(list, summary, alive) {
  const nBusy = alive.filter((each) => each.is_busy).length;
  fill(summary, alive.length ? `${alive.length} alive, ${nBusy} at work` : "");
  if (!alive.length) {
    fill(list, h("li", { class: "item" }, h("p", {}, "No worker is heard of: nothing trains until one is started by ", h("code", {}, "lometab worker"), ".")));
    return;
  }
  fill(
    list,
    alive.map((each) =>
      h(
        "li",
        { class: "item" },
        h("div", {}, h("div", { class: "item-title mono" }, each.id), h("div", { class: "item-sub" }, resources(each))),
        h("div", { class: "item-sub" }, each.job_ids.length ? each.job_ids.map((/** @type {string} */ id) => [link(id, to("jobs", id), { class: "mono" }), " "]) : each.is_busy ? "a job of another workspace" : "waits for a job"),
        h("span", { class: "badge", data: { status: each.is_busy ? "running" : "idle" } }, each.is_busy ? "At work" : "Idle"),
      ),
    ),
  );
}

/** @param {any} worker */
function resources({ queue, threads, memory_bytes: memory }) {
  const parts = [queue.toUpperCase()];
  if (threads) parts.push(count(threads, "thread"));
  if (memory) parts.push(`${bytes(memory)} of memory`);
  return parts.join(" · ");
}

// ---------------------------------------------------------------------------
// An empty service

function welcome() {
  const problem = h("div", {});
  const button = h("button", { class: "primary", type: "button" }, "Train on the wine example");
  button.addEventListener("click", async () => {
    button.disabled = true;
    fill(button, "Sending …");
    try {
      go(to("jobs", (await trainExample()).id));
    } catch (error) {
      fill(problem, problemBox(error));
      fill(button, "Train on the wine example");
      button.disabled = false;
    }
  });
  return [
    dropZone("Drop a table to begin", "CSV, Excel, Parquet, Arrow or JSON: the columns are looked at, and you choose what to predict."),
    section(
      "No table at hand?",
      h("p", { class: "lead" }, "6497 wines with eleven measurements each: how good did people find them? A small ensemble learns it in seconds to a minute, and shows how sure it is."),
      h("div", { class: "row", data: { needs: "write" } }, button),
      problem,
    ),
  ];
}

async function trainExample() {
  const form = new FormData();
  form.append("file", await readOwn(EXAMPLE), EXAMPLE);
  form.append("config", JSON.stringify({ target: "quality", preset: "fast", split: { group_duplicates: true } }));
  return upload("jobs", form, () => {});
}
