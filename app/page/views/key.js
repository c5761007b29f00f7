// @ts-check
/** Logging in with a key, and out again. */

import { fill, h } from "../dom.js";
import { find, logIn, put } from "../http.js";
import { action, facts, field, problemBox, section } from "../parts.js";
import { go, setSession, to } from "../state.js";

export async function keyView() {
  const session = await find("session", 401);
  const element = h("div", { class: "stack", style: { "max-width": "560px" } }, h("h1", {}, session ? "Your key" : "Log in"), session ? known(session) : form());
  return { title: session ? "Key" : "Log in", element };
}

function form() {
  const problem = h("div", {});
  const key = h("input", { type: "password", name: "key", autocomplete: "current-password", required: true, placeholder: "lmt_…" });
  const submit = h("button", { class: "primary", type: "submit" }, "Log in");
  const element = h(
    "form",
    { class: "card" },
    h("p", { class: "lead" }, "This service takes callers with an API key. It is kept in a cookie that scripts cannot read, until you log out."),
    field("API key", key, "Whoever runs the service makes one by: lometab keys create"),
    h("div", { class: "row" }, submit),
    problem,
  );
  element.addEventListener("submit", async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      setSession(await logIn(key.value.trim()));
      go(to());
    } catch (error) {
      fill(problem, problemBox(error));
    }
  });
  return element;
}

/** @param {any} session */
function known(session) {
  const leave = async () => {
    await put("DELETE", "session");
    setSession(null);
    go(to("key"));
  };
  const words = session.key_id ? null : h("p", { class: "faint" }, "This service runs without keys for programs of this machine: there is nothing to log in to.");
  return section(
    "What you may do here",
    facts([["Workspace", session.workspace_id], ["May", session.scopes.join(", ")], ...(session.key_id ? [["Key", h("span", { class: "mono small" }, session.key_id)]] : [])]),
    words,
    session.key_id && h("div", { class: "row" }, action("Log out", leave)),
  );
}
