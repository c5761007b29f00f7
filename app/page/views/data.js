// @ts-check
/** Tables that were uploaded, and a place to drop another. */

import { fill, h } from "../dom.js";
import { ago, bytes, count } from "../format.js";
import { get, upload } from "../http.js";
import { problemBox, progressBar } from "../parts.js";
import { files, go, to } from "../state.js";

export async function dataView() {
  const page = await get("datasets?limit=100");
  const list = h("ul", { class: "list" }, page.data.map(row));
  const element = h(
    "div",
    { class: "stack" },
    h("div", {}, h("h1", {}, "Data"), h("p", { class: "lead" }, "A table is uploaded once and serves any number of jobs.")),
    dropZone("Drop a table here", "CSV, Excel, Parquet, Arrow or JSON, plain or packed by gzip or zstd."),
    page.data.length > 0 && h("section", { class: "card flush" }, h("h2", {}, "Uploaded"), list),
  );
  return { title: "Data", element };
}

/** @param {any} dataset */
function row(dataset) {
  return h(
    "li",
    {},
    h(
      "a",
      { class: "item", href: to("data", dataset.id) },
      h("div", {}, h("div", { class: "item-title" }, dataset.filename), h("div", { class: "item-sub" }, ago(dataset.created_at))),
      h("div", { class: "item-sub" }, `${count(dataset.n_rows, "row")}, ${count(dataset.n_columns, "column")}`),
      h("span", { class: "faint small" }, bytes(dataset.size)),
    ),
  );
}

/**
 * Where a file can be dropped or chosen; then it is sent, and its dataset is shown.
 * @param {string} title
 * @param {string} text
 */
export function dropZone(title, text) {
  const input = h("input", { type: "file", class: "visually-hidden", id: "file", accept: ".csv,.tsv,.txt,.xlsx,.parquet,.arrow,.feather,.json,.jsonl,.ndjson,.gz,.zst" });
  const bar = progressBar("Upload");
  const words = h("p", { class: "faint small" }, text);
  const problem = h("div", {});
  const zone = h("div", { class: "drop", data: { needs: "write" } }, h("h2", {}, title), words, bar.element, input, h("label", { class: "button", for: "file" }, "Choose a file"), problem);
  bar.element.hidden = true;

  const take = async (/** @type {File | undefined} */ file) => {
    if (!file) return;
    fill(problem);
    bar.element.hidden = false;
    try {
      const dataset = await sendFile(file, {}, (share) => {
        bar.set(share < 1 ? share : null);
        fill(words, share < 1 ? `Sending ${file.name}: ${Math.round(100 * share)} %` : `Reading ${file.name} …`);
      });
      go(to("data", dataset.id));
    } catch (error) {
      fill(problem, problemBox(error));
      fill(words, text);
    } finally {
      bar.element.hidden = true;
      input.value = "";
    }
  };
  input.addEventListener("change", () => take(input.files[0]));
  for (const type of ["dragenter", "dragover"]) {
    zone.addEventListener(type, (/** @type {DragEvent} */ event) => {
      event.preventDefault();
      zone.classList.add("is-over");
    });
  }
  zone.addEventListener("dragleave", () => zone.classList.remove("is-over"));
  zone.addEventListener("drop", (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    zone.classList.remove("is-over");
    take(event.dataTransfer?.files[0]);
  });
  return zone;
}

/**
 * @param {File} file
 * @param {Record<string, any>} options how it is to be read
 * @param {(share: number) => void} onProgress
 */
export async function sendFile(file, options, onProgress) {
  const form = new FormData();
  form.append("read_options", JSON.stringify(options));
  form.append("file", file, file.name);
  const dataset = await upload("datasets", form, onProgress);
  files.set(dataset.id, file);
  return dataset;
}
