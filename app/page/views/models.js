// @ts-check
/** Models that were trained. */

import { h, link } from "../dom.js";
import { ago, count, measureName, num } from "../format.js";
import { get } from "../http.js";
import { to } from "../state.js";

export async function modelsView() {
  const page = await get("models?limit=100");
  const items = page.data.map((/** @type {any} */ model) =>
    h(
      "li",
      {},
      h(
        "a",
        { class: "item", href: to("models", model.id) },
        h("div", {}, h("div", { class: "item-title" }, modelName(model), " ", model.aliases.map((/** @type {string} */ each) => h("span", { class: "tag" }, each))), h("div", { class: "item-sub" }, modelWords(model))),
        h("div", { class: "item-sub" }, Object.entries(model.metrics).slice(0, 4).map(([name, value]) => `${measureName(name)} ${num(/** @type {any} */ (value), 3)}`).join(" · ")),
        h("span", { class: "faint small" }, "Open"),
      ),
    ),
  );
  const none = h("p", {}, "There is no model yet. ", link("Train one", to("train")), ".");
  const element = h("div", { class: "stack" }, h("div", {}, h("h1", {}, "Models"), h("p", { class: "lead" }, "Each is one ONNX file that answers raw rows, every member included.")), items.length ? h("section", { class: "card flush" }, h("ul", { class: "list" }, items)) : none);
  return { title: "Models", element };
}

/** @param {any} model */
function modelWords({ target, k, created_at: made }) {
  return target === null ? ago(made) : `predicts ${target}, ${count(k, "member")} · ${ago(made)}`;
}

/** @param {any} model */
export function modelName({ name, version, id }) {
  return name ? `${name}@${version}` : id;
}
