// @ts-check
/** Rows that a prediction job could not answer, and why. */

import { fill, h } from "../dom.js";
import { count, num } from "../format.js";
import { get } from "../http.js";

const LISTED = 50;

/** @param {string} path of the job */
export function faultList(path) {
  const [words, body] = [h("p", { class: "said" }), h("tbody", {})];
  const more = h("button", { type: "button", class: "quiet", hidden: true }, "Show more");
  const table = h("table", { class: "small" }, h("thead", {}, h("tr", {}, h("th", { class: "numeric", scope: "col" }, "Row"), ["Column", "What is wrong"].map((each) => h("th", { scope: "col" }, each)))), body);
  const element = h(
    "section",
    { class: "card flush", hidden: true },
    h("h2", {}, "Rows without an answer"),
    h("div", { class: "inset" }, words),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Rows without an answer" }, table),
    h("div", { class: "more" }, more),
  );
  let known = 0;
  /** @type {number | null} */
  let after = 0;
  const load = async () => {
    const page = await get(`${path}/faults?limit=${LISTED}&after=${after ?? 0}`);
    body.append(...page.data.map(row));
    after = page.next_after;
    more.hidden = after === null;
  };
  more.addEventListener("click", () => load().catch(() => {}));
  return {
    element,
    /** @param {any} job */
    async update({ progress: { n_faults: n, n_rows: nRows } }) {
      if (!n || n === known) return;
      known = n;
      element.hidden = false;
      fill(words, `${count(n, "row")} of ${num(nRows)} could not be read; their place in the file has no answer, and all others have theirs.`);
      fill(body);
      after = 0;
      await load();
    },
  };
}

/** @param {{row: number, column: string | null, detail: string}} fault */
function row({ row: number, column, detail }) {
  return h("tr", {}, h("td", { class: "numeric" }, num(number)), h("td", { class: "wrap" }, column ?? "–"), h("td", { class: "wrap" }, detail));
}
