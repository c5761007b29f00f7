// @ts-check
/** What runs, what waits, what has finished, and who works on it. */

import { fill, h, keep, link } from "../dom.js";
import { ago, bytes, count, duration, num } from "../format.js";
import { find, get, readOwn, upload } from "../http.js";
import { OPEN, kindWords, progressWords, share, title } from "../jobs.js";
import { action, badge, problemBox, progressBar, section } from "../parts.js";
import { every, go, to } from "../state.js";
import { dropZone } from "./data.js";

const SECONDS = 2;
const EXAMPLE = "wine_quality.csv";
const LISTED = 50;
const ASKED = 5; // names of tables that are asked for at once

/** Names of tables that were seen. @type {Map<string, string>} */
const names = new Map();

export async function homeView() {
  const problem = h("div", {});
  const body = h("div", { class: "stack" });
  const [heading, lead] = [h("h1", {}), h("p", { class: "lead" })];
  const element = h(
    "div",
    { class: "stack" },
    h("div", {}, heading, lead),
    problem,
    body,
  );
  const open = jobList("Running and waiting");
  const ended = jobList("Finished");
  const [tiles, workers] = [h("div", { class: "tiles" }), h("ul", { class: "list" })];
  const summary = h("p", { class: "faint small" });
  const older = olderJobs(ended);
  /** @type {boolean | null} */
  let isEmpty = null;

  const update = async () => {
    try {
      const [recent, running, queued, alive, queue] = await Promise.all(
        [`jobs?limit=${LISTED}`, "jobs?status=running&limit=100", "jobs?status=queued&limit=100", "workers", "queue"].map((each) => get(each)),
      );
      const known = new Map([...queued.data, ...running.data, ...recent.data].map((/** @type {any} */ each) => [each.id, each]));
      const all = [...known.values()];
      await learnNames(all);
      fill(problem);
      const now = inOrder(all.filter((job) => OPEN.includes(job.status)), queue.data);
      const done = recent.data.filter((/** @type {any} */ job) => !OPEN.includes(job.status));
      open.update(now);
      older.update(done, recent.next_cursor);
      showWorkers(workers, summary, alive.data, known);
      showTiles(tiles, now, done, alive.data, queued.next_cursor !== null);
      arrange(all.length === 0, now.length === 0, done.length === 0);
    } catch (error) {
      fill(problem, problemBox(error));
      if (isEmpty === null) throw error;
    }
  };

  /** @param {boolean} hasNone @param {boolean} isIdle @param {boolean} hasNoEnd */
  const arrange = (hasNone, isIdle, hasNoEnd) => {
    open.element.hidden = isIdle;
    ended.element.hidden = hasNoEnd;
    if (hasNone === isEmpty) return;
    isEmpty = hasNone;
    fill(heading, hasNone ? "See your ensemble think" : "What is going on");
    fill(lead, hasNone ? "Give it a table and say what to predict. Many small networks learn it together, and each answer shows what every one of them says." : "Jobs of this workspace, and the workers that train them.");
    const team = h("section", { class: "card flush" }, h("div", { class: "row apart" }, h("h2", {}, "Workers"), summary), workers);
    fill(body, hasNone ? welcome() : [tiles, open.element, ended.element], team);
  };

  await update();
  return { title: "LoMETab", element, close: every(SECONDS, update) };
}

/** @param {any[]} jobs */
async function learnNames(jobs) {
  const unknown = () => [...new Set(jobs.map((job) => job.dataset_id))].filter((id) => !names.has(id));
  if (unknown().length > 1) {
    for (const each of (await get("datasets?limit=100")).data) names.set(each.id, each.filename);
  }
  const found = await Promise.all(unknown().slice(0, ASKED).map((id) => find(`datasets/${id}`, 403, 404).then((each) => [id, each?.filename ?? ""])));
  for (const [id, name] of found) names.set(id, name);
}

/** What runs, then what waits, the next one first. @param {any[]} jobs @param {any[]} queue */
function inOrder(jobs, queue) {
  const place = new Map(queue.map((each, i) => [each.job_id, i]));
  for (const job of jobs) job.waiting = queue[place.get(job.id) ?? -1];
  const rank = (/** @type {any} */ job) => (job.status === "queued" ? 1 + (place.get(job.id) ?? queue.length) : 0);
  return jobs.sort((a, b) => rank(a) - rank(b));
}

/** @param {Element} tiles @param {any[]} now @param {any[]} done @param {any[]} alive @param {boolean} isMore */
function showTiles(tiles, now, done, alive, isMore) {
  const waiting = now.filter((job) => job.status === "queued");
  const next = waiting.find((job) => job.waiting?.starts_in_seconds);
  const longest = Math.max(0, ...now.map((job) => (job.status === "running" && job.progress.eta_seconds) || 0));
  const failed = done.filter((job) => job.status === "failed").length;
  const tile = (/** @type {string} */ name, /** @type {any} */ value, /** @type {string} */ more) => h("div", { class: "tile" }, h("span", {}, name), h("b", {}, value), h("span", {}, more));
  fill(
    tiles,
    tile("Running", num(now.length - waiting.length), longest ? `at most ${duration(longest)} to go` : now.length > waiting.length ? "its pace is being measured" : "nothing at the moment"),
    tile("Waiting", `${num(waiting.length)}${isMore ? "+" : ""}`, next ? `the next begins in at most ${duration(next.waiting.starts_in_seconds)}` : waiting.length ? "" : "the queue is empty"),
    tile("Finished lately", num(done.length), failed ? `${num(failed)} of them failed` : done.length ? "none of them failed" : "nothing yet"),
    tile("Workers", num(alive.length), alive.length ? `${num(alive.filter((each) => each.is_busy).length)} at work` : "nothing trains without one"),
  );
}

/** Those of before, a page at a time. @param {ReturnType<typeof jobList>} list */
function olderJobs(list) {
  /** @type {any[]} */
  let before = [];
  /** @type {string | null | undefined} */
  let cursor;
  /** @type {any[]} */
  let latest = [];
  const show = () => {
    const shown = new Set(latest.map((job) => job.id));
    list.update([...latest, ...before.filter((job) => !shown.has(job.id))]);
    more.hidden = !cursor;
  };
  const more = action("Show older ones", async () => {
    const page = await get(`jobs?limit=${LISTED}&cursor=${encodeURIComponent(cursor ?? "")}`);
    before = [...before, ...page.data.filter((/** @type {any} */ job) => !OPEN.includes(job.status))];
    cursor = page.next_cursor;
    await learnNames(page.data);
    show();
  }, { class: "quiet" });
  list.element.append(h("div", { class: "more" }, more));
  return {
    /** @param {any[]} jobs @param {string | null} next */
    update(jobs, next) {
      latest = jobs;
      if (cursor === undefined) cursor = next;
      show();
    },
  };
}

/** @param {string} name */
function jobList(name) {
  const list = h("ul", { class: "list" });
  return {
    element: h("section", { class: "card flush" }, h("h2", {}, name), list),
    /** @param {any[]} jobs */
    update: (jobs) => keep(list, jobs, (job) => job.id, jobRow),
  };
}

function jobRow() {
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

/** @param {Element} list @param {Element} summary @param {any[]} alive @param {Map<string, any>} jobs those that are known */
function showWorkers(list, summary, alive, jobs) {
  const work = (/** @type {string} */ id) => {
    const job = jobs.get(id);
    return [link(job ? title(job, names.get(job.dataset_id)) : id, to("jobs", id), { class: job ? "" : "mono" }), " "];
  };
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
        h("div", { class: "item-sub" }, each.job_ids.length ? each.job_ids.map(work) : each.is_busy ? "a job of another workspace" : "waits for a job"),
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
      h("p", { class: "lead" }, "6,497 wines with eleven measurements each: how good did people find them? A small ensemble learns it in seconds to a minute, and shows how sure it is."),
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
