// @ts-check
/** What a job is called and how far it is, wherever jobs are shown. */

import { capital, count, duration, measureWord, num } from "./format.js";

export const OPEN = ["queued", "running", "stopping", "cancelling"];

/** @param {any} job @param {string | undefined} filename */
export function title(job, filename) {
  if (job.name) return job.name;
  if (job.kind === "predict") return `Answers to ${filename ?? job.dataset_id}`;
  return filename ? `${job.config.target} in ${filename}` : job.config.target;
}

/** @param {any} job */
export function kindWords(job) {
  const { kind, config, progress } = job;
  if (kind === "sweep") return `Sweep of ${count(progress.n_runs, "run")}`;
  if (kind === "tune") return `Search over ${count(progress.n_runs, "trial")}`;
  if (kind === "predict") return `Prediction of ${count(progress.n_rows, "row")}`;
  if (!config.hyperparameters) return "A part of a prediction";
  const k = config.hyperparameters.k * config.n_seeds;
  return `${capital(config.task)}, ${count(k, "member")}`;
}

/** How far a job is, from 0 to 1; null: nobody knows. @param {any} job */
export function share({ status, progress, phase, kind, config }) {
  if (status === "succeeded") return 1;
  if (status === "queued") return 0;
  if (kind === "predict") return progress.n_rows ? progress.rows_done / progress.n_rows : null;
  if (kind !== "train") return progress.n_runs ? progress.n_finished / progress.n_runs : null;
  if (phase === null || phase === "preparing") return null;
  if (phase !== "training") return 1;
  if (!progress.epoch) return null;
  const seeds = config.n_seeds ?? 1;
  return ((progress.seed ?? 0) + progress.epoch / progress.max_epochs) / seeds;
}

/** @param {any} job */
export function progressWords(job) {
  const { status, phase, progress, kind, error } = job;
  if (status === "failed") return error?.detail ?? "It failed.";
  if (status === "queued") return waitingWords(job);
  if (kind === "predict") return `${rowWords(progress)}${restWords(job)}`;
  if (kind !== "train") return `${num(progress.n_finished)} of ${num(progress.n_runs)} runs${bestWords(job)}${restWords(job)}`;
  if (status === "succeeded" || status === "cancelled") return epochWords(job);
  if (phase !== "training") return `${capital(phase ?? "starting")} …`;
  if (!progress.epoch) return "Training begins …";
  const eta = progress.eta_seconds === null ? "" : `, at most ${duration(progress.eta_seconds)} to go`;
  return `Epoch ${progress.epoch} of at most ${progress.max_epochs}${eta}`;
}

/** @param {any} progress of a prediction */
function rowWords({ rows_done: done, n_rows: n, n_faults: nFaults }) {
  return `${num(done - (nFaults ?? 0))} of ${num(n)} rows answered${nFaults ? `, ${num(nFaults)} could not be read` : ""}`;
}

/** @param {any} job a sweep or a search */
function bestWords({ progress: { best_score: best }, config: { task } }) {
  return typeof best === "number" ? `, the best run with ${measureWord(scoreName(task).toLowerCase())} ${num(best)} on validation` : "";
}

/** How long the rest takes at the pace of its parts so far. @param {any} job */
function restWords({ status, phase, progress: { eta_seconds: eta } }) {
  if (status !== "running") return "";
  if (phase === "assembling") return "; the answers are put together …";
  return eta >= 1 ? `, about ${duration(eta)} to go` : "";
}

/** Why it waits, and until when. @param {any} job with what `GET /queue` says of it */
function waitingWords({ waiting, notice }) {
  if (!waiting) return notice ? `${capital(notice)}.` : "It waits for a worker.";
  const { why, starts_in_seconds: seconds } = waiting;
  return `${capital(why)}${seconds ? `; it begins in at most ${duration(seconds)}` : ""}.`;
}

/** @param {any} job */
function epochWords({ progress, config }) {
  if (progress.best_score === null || progress.best_score === undefined) return "";
  return `${scoreName(config.task)} ${num(progress.best_score)} on validation, epoch ${progress.best_epoch}`;
}

/** @param {string} task */
export function scoreName(task) {
  return task === "regression" ? "RMSE" : "Accuracy";
}
