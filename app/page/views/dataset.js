// @ts-check
/** One table: how it was read, what is in each column, and what is to be predicted. */

import { columnBars } from "../charts/column.js";
import { fill, h } from "../dom.js";
import { bytes, count, num, percent } from "../format.js";
import { get } from "../http.js";
import { action, facts, field, problemBox, select, warning } from "../parts.js";
import { draft, files, go, keepDraft, to } from "../state.js";
import { sendFile } from "./data.js";

const KINDS = ["numeric", "categorical", "datetime", "ignore"];
const MANY = 30;

/** @param {string} id */
export async function datasetView(id) {
  const dataset = await get(`datasets/${encodeURIComponent(id)}`);
  const chosen = draft(id);
  chosen.target ??= dataset.suggestions[0]?.target;
  const train = h("a", { class: "button primary", href: to("train", id), data: { needs: "write" } });
  const general = dataset.warnings.filter((/** @type {string} */ each) => !each.startsWith("column "));

  const changed = () => {
    keepDraft(id, chosen);
    fill(train, chosen.target ? `Train on ${shorten(chosen.target)}` : "Train");
  };
  changed();
  const element = h(
    "div",
    { class: "stack" },
    h(
      "div",
      { class: "row apart" },
      h("div", {}, h("h1", {}, dataset.filename), h("p", { class: "faint" }, `${count(dataset.n_rows, "row")}, ${count(dataset.n_columns, "column")}, ${bytes(dataset.size)}`)),
      train,
    ),
    general.map(warning),
    reading(dataset),
    columns(dataset, chosen, changed),
    head(dataset),
  );
  return { title: dataset.filename, element };
}

/** @param {string} text */
function shorten(text) {
  return text.length > 28 ? `${text.slice(0, 27)}…` : text;
}

// ---------------------------------------------------------------------------
// Columns

/** @param {any} dataset @param {any} chosen @param {() => void} changed */
function columns(dataset, chosen, changed) {
  const rows = dataset.columns.map((/** @type {any} */ column) => columnRow(column, dataset.n_rows, chosen));
  const refresh = () => {
    for (const each of rows) each.update();
    changed();
  };
  for (const each of rows) each.onChange(refresh);
  const search = h("input", { type: "search", placeholder: "Find a column", "aria-label": "Find a column" });
  search.addEventListener("input", () => {
    const wanted = search.value.toLowerCase();
    for (const each of rows) each.element.hidden = !each.name.toLowerCase().includes(wanted);
  });
  return h(
    "section",
    { class: "card flush" },
    h("div", { class: "row apart" }, h("h2", {}, "Columns"), dataset.columns.length > MANY && h("div", {}, search)),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "columns" },
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Predict"), ["Column", "Used as", "Values"].map((each) => h("th", { scope: "col" }, each)), ["Missing", "Distinct"].map((each) => h("th", { class: "numeric", scope: "col" }, each)), h("th", { scope: "col" }, "Example"))),
        h("tbody", {}, rows.map((/** @type {any} */ each) => each.element)),
      ),
    ),
  );
}

/** @param {any} column @param {number} nRows @param {any} chosen */
function columnRow(column, nRows, chosen) {
  let tell = () => {};
  const radio = h("input", { type: "radio", name: "target", "aria-label": `Predict ${column.name}`, checked: chosen.target === column.name });
  radio.addEventListener("change", () => {
    chosen.target = column.name;
    tell();
  });
  const kind = select(
    KINDS.map((each) => [each, each]),
    chosen.columns[column.name] ?? column.kind,
    (value) => {
      if (value === column.kind) delete chosen.columns[column.name];
      else chosen.columns[column.name] = value;
      tell();
    },
    { class: "small", "aria-label": `${column.name} is used as` },
  );
  const aim = h("span", { class: "tag" }, "predicted");
  const notes = [column.reason, column.note, column.format && `written like ${column.format}`].filter(Boolean);
  const element = h(
    "tr",
    {},
    h("td", { class: "keep" }, radio),
    h("td", {}, h("div", { class: "wrap", style: { "font-weight": 600, "min-width": "120px" } }, column.name), notes.map((each) => h("div", { class: "hint" }, each))),
    h("td", { class: "keep" }, kind, aim),
    h("td", {}, columnBars(column, nRows)),
    h("td", { class: "numeric nowrap", data: { name: "Missing" } }, column.n_missing ? percent(column.missing_share) : "none"),
    h("td", { class: "numeric", data: { name: "Distinct" } }, num(column.n_distinct)),
    h("td", { class: "mono wrap", data: { name: "Such as" }, style: { "max-width": "220px" } }, column.example ?? ""),
  );
  const update = () => {
    const isTarget = chosen.target === column.name;
    element.classList.toggle("is-target", isTarget);
    element.classList.toggle("is-ignored", !isTarget && kind.value === "ignore");
    kind.hidden = isTarget;
    aim.hidden = !isTarget;
  };
  update();
  return { name: column.name, element, update, onChange: (/** @type {() => void} */ listener) => (tell = listener) };
}

/** @param {any} dataset */
function head(dataset) {
  return h(
    "section",
    { class: "card flush" },
    h("h2", {}, "First rows"),
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "First rows" },
      h(
        "table",
        { class: "small" },
        h("thead", {}, h("tr", {}, dataset.columns.map((/** @type {any} */ each) => h("th", { scope: "col" }, shorten(each.name))))),
        h("tbody", {}, dataset.head.map((/** @type {any[]} */ row) => h("tr", {}, row.map((cell) => h("td", { class: "nowrap" }, cell === null ? h("span", { class: "faint" }, "missing") : shorten(cell)))))),
      ),
    ),
  );
}

// ---------------------------------------------------------------------------
// How the file was read, and reading it otherwise

const NAMES = { ",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "space" };
const CHOICES = {
  delimiter: [["", "by itself"], [",", "comma"], [";", "semicolon"], ["\t", "tab"], ["|", "bar"]],
  encoding: [["", "by itself"], ["utf-8", "UTF-8"], ["windows-1252", "Windows-1252"], ["latin-1", "Latin-1"], ["utf-16", "UTF-16"]],
  date_format: [["", "by itself"], ["d/m/y", "day/month/year"], ["m/d/y", "month/day/year"]],
  header: [["", "by itself"], ["true", "the first line has names"], ["false", "there is no header"]],
  number_format: [["", "by itself"], ["1234.5", "1234.5"], ["1,234.5", "1,234.5"], ["1.234,5", "1.234,5"]],
};
const LABELS = /** @type {Record<string, string>} */ ({ delimiter: "Delimiter", encoding: "Encoding", header: "Header", number_format: "Numbers", date_format: "Dates", sheet: "Sheet", skip_lines: "Lines above", skip_footer: "Lines below" });
/** What can be told of a file of this format. @type {Record<string, string[]>} */
const OFFERED = {
  csv: [...Object.keys(CHOICES), "skip_lines", "skip_footer"],
  xlsx: ["sheet", "header", "skip_lines", "skip_footer"],
};

/** @param {any} dataset */
function reading(dataset) {
  const { reading: found } = dataset;
  const shown = [["Format", found.compression ? `${found.format}, ${found.compression}` : found.format]];
  for (const name of ["sheet", "delimiter", "encoding", "header", "skip_lines", "skip_footer"]) {
    const guess = found[name];
    if (guess && !(name.startsWith("skip") && guess.value === 0)) shown.push([LABELS[name], guessWords(guess)]);
  }
  return h("section", { class: "card" }, h("h2", {}, "How it was read"), facts(/** @type {any} */ (shown)), found.format in OFFERED && otherwise(dataset));
}

/** @param {{value: any, confidence: number}} guess */
function guessWords({ value, confidence }) {
  const text = value === true ? "yes" : value === false ? "no" : (/** @type {any} */ (NAMES)[value] ?? String(value));
  return confidence < 0.9 ? `${text} (${percent(confidence, 0)} sure)` : text;
}

/** @param {string} name @param {Record<string, any>} options */
function control(name, options) {
  const isCount = name.startsWith("skip");
  const tell = (/** @type {string} */ value) => {
    if (value === "") delete options[name];
    else options[name] = name === "header" ? value === "true" : isCount ? Number(value) : value;
  };
  const now = String(options[name] ?? "");
  if (name in CHOICES) return select(/** @type {any} */ (CHOICES)[name], now, tell);
  const input = h("input", { type: isCount ? "number" : "text", min: 0, value: now, placeholder: "by itself", on: { input: () => tell(input.value) } });
  return input;
}

/** @param {any} dataset */
function otherwise(dataset) {
  /** @type {Record<string, any>} */
  const options = Object.fromEntries(Object.entries(dataset.read_options).filter(([, each]) => each !== null && String(each) !== ""));
  const problem = h("div", {});
  const again = h("input", { type: "file", "aria-label": "The file" });
  const controls = OFFERED[dataset.reading.format].map((name) => field(LABELS[name], control(name, options)));
  const read = action(
    "Read it so",
    async () => {
      const file = files.get(dataset.id) ?? again.files[0];
      if (!file) throw new Error("Choose the file once more: this window does not have it any longer.");
      const made = await sendFile(file, options, () => {});
      go(to("data", made.id));
    },
    { onError: (error) => fill(problem, problemBox(error)) },
  );
  return h(
    "details",
    { data: { needs: "write" } },
    h("summary", {}, "Read it otherwise"),
    h("div", { class: "stack" }, h("div", { class: "fields" }, controls), !files.has(dataset.id) && field("The file, once more", again), h("div", { class: "row" }, read), problem),
  );
}
