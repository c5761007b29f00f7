// @ts-check
/** A whole file for a model: a small one is answered at once, others by the workers. */

import { fill, h } from "../dom.js";
import { bytes, count } from "../format.js";
import { upload } from "../http.js";
import { action, field, problemBox, progressBar, section, select } from "../parts.js";
import { go, to } from "../state.js";

const TYPES = /** @type {Record<string, string>} */ ({
  parquet: "application/vnd.apache.parquet",
  arrow: "application/vnd.apache.arrow.file",
  feather: "application/vnd.apache.arrow.file",
  ndjson: "application/x-ndjson",
  jsonl: "application/x-ndjson",
  json: "application/json",
  xlsx: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
});
const LARGE = 8e6; // bytes; beyond it workers share the rows

/** @typedef {{output: string, on_error: string}} Options as a prediction job has them */

/** @param {any} model @param {string} path */
export function predictFile(model, path) {
  const input = h("input", { type: "file", "aria-label": "The file to predict" });
  const bar = progressBar("Predicting");
  const [words, result] = [h("p", { class: "hint" }), h("div", {})];
  const progress = h("div", { hidden: true }, bar.element, words);
  /** @type {Options} */
  const options = { output: "csv", on_error: "fail" };
  const tell = (/** @type {string} */ name) => (/** @type {number} */ share, /** @type {number} */ received) => {
    bar.set(share < 1 ? share : null);
    fill(words, share < 1 ? `Sending ${name}: ${Math.round(100 * share)} %` : received ? `${bytes(received)} of answers have come` : `${name} is being read and answered …`);
  };
  const run = async () => {
    const file = input.files[0];
    if (!file) throw new Error("Choose a file first.");
    fill(result);
    progress.hidden = false;
    tell(file.name)(0, 0);
    try {
      if (isForWorkers(file, options)) go(to("jobs", (await askWorkers(file, path, options, tell(file.name))).id));
      else fill(result, saved(file.name, await askNow(file, path, tell(file.name))));
    } finally {
      progress.hidden = true;
    }
  };
  const choose = (/** @type {keyof Options} */ name) => (/** @type {string} */ value) => (options[name] = value);
  const output = select([["csv", "CSV"], ["parquet", "Parquet"], ["arrow", "Arrow"]], options.output, choose("output"));
  const onError = select([["fail", "nothing is answered"], ["skip", "the others are answered"]], options.on_error, choose("on_error"));
  const element = section(
    "A whole file",
    h("p", { class: "faint" }, `A table with the columns of the training data, with or without ${model.target}. CSV up to ${bytes(LARGE)} comes back at once; anything else becomes a job that the workers share.`),
    input,
    h("div", { class: "fields", data: { needs: "write" } }, field("Answers as", output), field("If a row cannot be read", onError)),
    h("div", { class: "row" }, action("Predict", run, { class: "primary", onError: (error) => fill(result, problemBox(error)) })),
    progress,
    result,
  );
  element.dataset.needs = "predict";
  return element;
}

/** @param {File} file @param {Options} options */
function isForWorkers({ size }, { output, on_error: onError }) {
  return size > LARGE || output !== "csv" || onError !== "fail";
}

/** @param {File} file @param {string} path @param {Options} options @param {(share: number, received: number) => void} tell */
function askWorkers(file, path, options, tell) {
  const form = new FormData();
  form.append("config", JSON.stringify(options));
  form.append("file", file, file.name);
  return upload(`${path}/predictions`, form, tell);
}

/** @param {File} file @param {string} path @param {(share: number, received: number) => void} tell @returns {Promise<Blob>} */
function askNow(file, path, tell) {
  const type = TYPES[file.name.split(".").at(-1)?.toLowerCase() ?? ""] ?? "text/csv";
  return upload(`${path}/predict?exclude=members`, file, tell, { type, accept: "text/csv" });
}

/** @param {string} name @param {Blob} answers */
function saved(name, answers) {
  const n = h("span", { class: "hint" });
  answers.text().then((text) => fill(n, `${count(text.trimEnd().split("\n").length - 1, "row")} answered`));
  const save = h("a", { class: "button", href: URL.createObjectURL(answers), download: `${name.replace(/\.[^.]*$/, "")}-predicted.csv` }, "Save the answers");
  return h("div", { class: "row" }, save, n);
}
