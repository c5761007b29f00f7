// @ts-check
/** What a job will take, asked of the service whenever the form changes. */

import { fill, h } from "../dom.js";
import { bytes, duration, num } from "../format.js";
import { Problem, put } from "../http.js";
import { facts, problemBox, section, warningList } from "../parts.js";

/** @param {() => any} build */
export function planner(build) {
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
      plan.n_runs > 1 ? ["Runs", num(plan.n_runs)] : ["Members", num(settings.k)],
      ["Parameters", num(cost.n_parameters)],
      ["Memory", bytes(cost.memory_bytes)],
      ["Time at most", cost.max_seconds < 60 ? "under a minute" : duration(cost.max_seconds)],
    ]),
    plan.n_runs > 1 && h("p", { class: "hint" }, "Parameters and memory are those of its largest run, the time is that of all."),
    h("p", { class: "hint" }, `${duration(cost.seconds_per_epoch)} for an epoch, ${cost.basis === "workers" ? "by what workers have measured" : "as a guess"}; training stops early when it gets no better.`),
    warningList(warnings).element,
  ];
}
