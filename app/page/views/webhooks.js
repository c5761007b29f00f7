// @ts-check
/** Webhooks: who is told of what happens here, and what became of each message. */

import { fill, h, link } from "../dom.js";
import { ago, clock, count, num } from "../format.js";
import { get, put } from "../http.js";
import { action, confirmed, facts, field, note, problemBox, section, snippet } from "../parts.js";
import { choices, readSchemas } from "../schema.js";
import { every, go, to } from "../state.js";

const SECONDS = 3;
const LISTED = 20;

/** What each event means, where its name does not say enough. @type {Record<string, string>} */
const EVENTS = {
  "job.succeeded": "A job has succeeded",
  "job.failed": "A job has failed",
  "model.promoted": "An alias points at another model",
  "monitor.alarm": "Rows of a day are unlike training",
};

export async function webhooksView() {
  const [page, schemas] = await Promise.all([get("webhooks"), readSchemas()]);
  const made = h("div", {});
  const element = h(
    "div",
    { class: "stack" },
    h("div", {}, h("h1", {}, "Webhooks"), h("p", { class: "lead" }, "Addresses that are told when something happens here: each message is signed, and sent again until it is taken.")),
    made,
    page.data.length > 0 && h("section", { class: "card flush" }, h("h2", {}, "Who is told"), h("ul", { class: "list" }, page.data.map(row))),
    form(choices(schemas, "WebhookEvent"), schemas.WebhookCreate.example?.url, (webhook) => fill(made, secretBox(webhook))),
  );
  return { title: "Webhooks", element };
}

/** @param {any} webhook */
function row(webhook) {
  return h(
    "li",
    {},
    h(
      "a",
      { class: "item", href: to("webhooks", webhook.id) },
      h("div", {}, h("div", { class: "item-title" }, webhook.description || webhook.url), h("div", { class: "item-sub" }, webhook.description ? webhook.url : `made ${ago(webhook.created_at)}`)),
      h("div", { class: "item-sub" }, webhook.events.join(", ")),
      state(webhook),
    ),
  );
}

/** @param {any} webhook */
function state({ is_enabled: isOn, n_failed: nFailed }) {
  const [look, text] = !isOn ? ["idle", "Off"] : nFailed ? ["stopping", "Failing"] : ["succeeded", "On"];
  return h("span", { class: "badge", data: { status: look } }, text);
}

/** @param {string[]} events @param {string | undefined} example @param {(webhook: any) => void} tell */
function form(events, example, tell) {
  const problem = h("div", {});
  const url = h("input", { type: "url", required: true, maxlength: 2000, placeholder: example });
  const about = h("input", { type: "text", maxlength: 200, placeholder: "optional" });
  const boxes = events.map((each) => h("input", { type: "checkbox", value: each, checked: each.startsWith("job.") }));
  const element = h(
    "form",
    { class: "card" },
    h("h2", {}, "Tell another address"),
    h("div", { class: "fields" }, field("Address", url, "https, and a public one."), field("What it is for", about)),
    h("fieldset", {}, h("legend", { class: "label" }, "Tell it when"), h("div", { class: "stack close" }, boxes.map((box, i) => h("label", { class: "check" }, box, EVENTS[events[i]] ?? events[i], " ", h("span", { class: "hint mono" }, EVENTS[events[i]] ? events[i] : ""))))),
    h("div", { class: "row" }, h("button", { class: "primary", type: "submit" }, "Add the webhook")),
    problem,
  );
  element.addEventListener("submit", async (/** @type {Event} */ event) => {
    event.preventDefault();
    fill(problem);
    const body = { url: url.value.trim(), events: boxes.filter((box) => box.checked).map((box) => box.value), description: about.value.trim() || null };
    try {
      const webhook = await put("POST", "webhooks", body);
      tell(webhook);
      element.reset();
      scrollTo(0, 0);
    } catch (error) {
      fill(problem, problemBox(error));
    }
  });
  return element;
}

/** The secret, this once. @param {any} webhook */
function secretBox(webhook) {
  return h(
    "section",
    { class: "card is-new", role: "status" },
    h("h2", {}, "Keep this secret now: it is not shown again"),
    h("p", { class: "faint" }, "Whoever gets messages at ", h("b", { class: "wrap" }, webhook.url), " checks their signature with it, as Standard Webhooks has it."),
    snippet("Secret", () => webhook.secret).element,
    h("div", { class: "row" }, h("a", { class: "button", href: to("webhooks", webhook.id) }, "Go to the webhook")),
  );
}

// ---------------------------------------------------------------------------
// One of them

/** @param {string} id */
export async function webhookView(id) {
  const path = `webhooks/${encodeURIComponent(id)}`;
  const [secret, head, log] = [h("div", {}), h("div", {}), deliveries(path)];
  let shown = "";
  const update = async () => {
    const [webhook, page] = await Promise.all([get(path), get(`${path}/deliveries?limit=${LISTED}`)]);
    log.update(page);
    if (JSON.stringify(webhook) === shown) return; // a button stays the same while it is pressed
    shown = JSON.stringify(webhook);
    fill(head, about(webhook, path, update, (made) => fill(secret, secretBox(made))));
  };
  await update();
  const element = h("div", { class: "stack" }, head, secret, log.element);
  return { title: "Webhook", element, close: every(SECONDS, update) };
}

/** @param {any} webhook @param {string} path @param {() => Promise<void>} update @param {(made: any) => void} tell */
function about(webhook, path, update, tell) {
  const onError = (/** @type {any} */ error) => note(error.message);
  const turn = async () => {
    await put("PATCH", path, { is_enabled: !webhook.is_enabled });
    await update();
  };
  const remove = async () => {
    await put("DELETE", path);
    note("The webhook is deleted.");
    go(to("webhooks"));
  };
  return h(
    "div",
    { class: "stack" },
    h(
      "div",
      { class: "row apart" },
      h("div", {}, h("div", { class: "row" }, h("h1", {}, webhook.description || "Webhook"), state(webhook)), h("p", { class: "faint wrap" }, webhook.url, " · ", link("All webhooks", to("webhooks")))),
      h(
        "div",
        { class: "row" },
        action(webhook.is_enabled ? "Turn it off" : "Turn it on", turn, { onError }),
        confirmed("New secret", "Make a new secret?", async () => tell(await put("POST", `${path}/rotate`)), { onError }),
        confirmed("Delete", "Delete it for good?", remove, { class: "danger", onError }),
      ),
    ),
    section(
      "What it is told of",
      facts([["Events", webhook.events.join(", ")], ["Made", ago(webhook.created_at)], ["Failed in a row", num(webhook.n_failed)], ["Sent to again", webhook.not_before && webhook.is_enabled ? `at ${clock(webhook.not_before)}` : webhook.is_enabled ? "at once" : "not while it is off"]]),
    ),
  );
}

/** @param {string} path */
function deliveries(path) {
  const body = h("tbody", {});
  const [none, more] = [h("p", { class: "hint" }, "Nothing has happened yet that it is told of."), h("button", { type: "button", class: "quiet" }, "Show older ones")];
  const table = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Messages" }, h("table", {}, h("thead", {}, h("tr", {}, ["Message", "State", "Last attempt"].map((each) => h("th", { scope: "col" }, each)), h("th", {}, h("span", { class: "visually-hidden" }, "Send again")))), body));
  /** @type {Map<string, any>} */
  const known = new Map();
  /** @type {string | null | undefined} */
  let cursor;
  let drawn = "";
  const draw = () => {
    const all = [...known.values()].sort((a, b) => b.created_at.localeCompare(a.created_at));
    [none.hidden, table.hidden, more.hidden] = [all.length > 0, all.length === 0, !cursor];
    if (JSON.stringify(all) === drawn) return;
    drawn = JSON.stringify(all);
    fill(body, all.map((each) => deliveryRow(each, path, (changed) => learn([changed]))));
  };
  const learn = (/** @type {any[]} */ all) => {
    for (const each of all) known.set(each.id, each);
    draw();
  };
  more.addEventListener("click", async () => {
    const page = await get(`${path}/deliveries?limit=${LISTED}&cursor=${encodeURIComponent(cursor ?? "")}`);
    cursor = page.next_cursor;
    learn(page.data);
  });
  return {
    element: h("section", { class: "card flush" }, h("h2", {}, "Messages"), h("div", { class: "inset" }, none), table, h("div", { class: "more" }, more)),
    /** @param {any} page */
    update(page) {
      if (cursor === undefined) cursor = page.next_cursor;
      learn(page.data);
    },
  };
}

const STATES = /** @type {Record<string, string>} */ ({ pending: "running", delivered: "succeeded", dead: "failed" });

/** @param {any} delivery @param {string} path @param {(changed: any) => void} tell */
function deliveryRow(delivery, path, tell) {
  const again = action("Send again", async () => tell(await put("POST", `${path}/deliveries/${encodeURIComponent(delivery.id)}/redeliver`)), { class: "small nowrap", onError: (error) => note(/** @type {any} */ (error).message) });
  const last = delivery.attempts.at(-1);
  return h(
    "tr",
    {},
    h("td", {}, h("b", {}, delivery.type), h("div", { class: "hint mono" }, delivery.id)),
    h("td", {}, h("span", { class: "badge", data: { status: STATES[delivery.status] } }, delivery.status), h("div", { class: "hint" }, ago(delivery.created_at))),
    h("td", {}, last ? attemptWords(last) : h("span", { class: "faint" }, "none yet"), delivery.attempts.length > 1 && older(delivery)),
    h("td", {}, delivery.status !== "pending" && again),
  );
}

/** @param {any} attempt */
function attemptWords({ attempt, at, status, error, seconds }) {
  return `${clock(at)}, number ${attempt}: ${error ?? `answered ${status}`} in ${num(seconds, 2)} s`;
}

/** @param {any} delivery */
function older({ attempts, attempt }) {
  return h("details", {}, h("summary", { class: "small" }, count(attempt, "attempt")), h("ul", { class: "small" }, attempts.map((/** @type {any} */ each) => h("li", {}, attemptWords(each)))));
}
