// @ts-check
/** Small pieces that several views share. */

import { fill, h } from "./dom.js";
import { Problem } from "./http.js";
import { capital, count } from "./format.js";

/** @param {string} status */
export function badge(status) {
  return h("span", { class: "badge", data: { status } }, capital(status));
}

/** What went wrong, in the service's own words. @param {unknown} error */
export function problemBox(error) {
  const text = error instanceof Error ? error.message : String(error);
  const title = error instanceof Problem && error.status ? error.title : "That did not work";
  return h("div", { class: "problem", role: "alert" }, h("strong", {}, title), h("p", {}, text));
}

/** @param {string} text */
export function warning(text) {
  return h("p", { class: "warning" }, text);
}

const FEW = 3;

/** Few are shown as they are, many behind their number. */
export function warningList(/** @type {string[]} */ texts = []) {
  const list = h("ul", {});
  const head = h("summary", {});
  const element = h("details", { class: "warning", hidden: true, open: true }, head, list);
  let n = 0;
  const add = (/** @type {string} */ text) => {
    n += 1;
    element.hidden = false;
    if (n === FEW + 1) element.open = false;
    fill(head, count(n, "thing is", "things are"), " worth knowing");
    list.append(h("li", {}, text));
  };
  texts.forEach(add);
  return { element, add };
}

/** A note at the edge of the window that goes by itself. @param {string} text */
export function note(text) {
  const element = h("p", {}, text);
  document.getElementById("notes")?.append(element);
  setTimeout(() => element.remove(), 4000);
}

/** A bar that fills; null: nobody knows how far. */
export function progressBar(/** @type {string} */ label) {
  const inner = h("div", { class: "bar-fill" });
  const element = h("div", { class: "bar", role: "progressbar", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100 }, inner);
  return {
    element,
    /** @param {number | null} share */
    set(share) {
      element.classList.toggle("is-open", share === null);
      if (share === null) {
        element.removeAttribute("aria-valuenow");
        return;
      }
      const whole = Math.round(100 * Math.min(1, Math.max(0, share)));
      element.setAttribute("aria-valuenow", String(whole));
      inner.style.setProperty("width", `${whole}%`);
    },
  };
}

/**
 * Text to copy: a command, a piece of code.
 * @param {string} title
 * @param {() => string} read what is copied
 */
export function snippet(title, read) {
  const code = h("code", {}, read());
  const copy = h("button", { type: "button", class: "quiet small" }, "Copy");
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code.textContent ?? "");
    fill(copy, "Copied");
    setTimeout(() => fill(copy, "Copy"), 1500);
  });
  const element = h(
    "figure",
    { class: "snippet" },
    h("figcaption", {}, title, copy),
    h("pre", { tabindex: 0, "aria-label": title }, code),
  );
  return { element, update: () => fill(code, read()) };
}

let nFields = 0;

/** The same in one line. @param {string} label @param {HTMLElement} control */
export function inline(label, control) {
  nFields += 1;
  control.id ||= `field-${nFields}`;
  return h("span", { class: "row small" }, h("label", { for: control.id }, label), control);
}

/**
 * A labelled control. Its name is the label alone; the hint is what is told of it.
 * @param {string} label
 * @param {HTMLElement} control
 * @param {string} [hint]
 */
export function field(label, control, hint) {
  nFields += 1;
  control.id ||= `field-${nFields}`;
  const about = hint && h("span", { class: "hint", id: `${control.id}-hint` }, hint);
  if (about) control.setAttribute("aria-describedby", about.id);
  return h("div", { class: "field" }, h("label", { class: "label", for: control.id }, label), control, about);
}

/** @param {string} text @param {(isOn: boolean) => void} onChange */
export function checkBox(text, onChange) {
  const box = h("input", { type: "checkbox", on: { change: () => onChange(box.checked) } });
  return h("label", { class: "check" }, box, text);
}

/**
 * @param {[string, string][]} options value and text
 * @param {string} value
 * @param {(value: string) => void} onChange
 * @param {Record<string, any>} [props]
 */
export function select(options, value, onChange, props = {}) {
  const control = h(
    "select",
    { ...props, on: { change: () => onChange(control.value) } },
    options.map(([each, text]) => h("option", { value: each, selected: each === value }, text)),
  );
  return control;
}

/** @param {any[][]} pairs names and values */
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/**
 * A button that does something slow: it cannot be pressed twice.
 * @param {string} text
 * @param {() => Promise<unknown>} action
 * @param {{class?: string, onError?: (error: unknown) => void, [name: string]: any}} [props]
 */
export function action(text, action, { onError = (error) => note(String(error)), ...props } = {}) {
  const element = h("button", { type: "button", ...props }, text);
  element.addEventListener("click", async () => {
    element.disabled = true;
    try {
      await action();
    } catch (error) {
      onError(error);
    } finally {
      element.disabled = false;
    }
  });
  return element;
}

/**
 * The same for what cannot be undone: it asks first, in its own place.
 * @param {string} text
 * @param {string} question
 * @param {() => Promise<unknown>} act
 * @param {{class?: string, onError?: (error: unknown) => void, [name: string]: any}} [props]
 */
export function confirmed(text, question, act, props = {}) {
  const element = h("span", { class: "row" });
  const ask = h("button", { type: "button", ...props, onError: null }, text);
  const rest = () => {
    fill(element, ask);
    ask.focus();
  };
  const no = h("button", { type: "button", on: { click: rest } }, "No");
  const yes = action("Yes", async () => {
    await act();
    fill(element, ask);
  }, { ...props, class: `${props.class ?? ""}` });
  ask.addEventListener("click", () => {
    fill(element, h("span", { class: "small" }, question), yes, no);
    no.focus();
  });
  fill(element, ask);
  return element;
}

/** @param {string} title @param {...import("./dom.js").Child} children */
export function section(title, ...children) {
  return h("section", { class: "card" }, h("h2", {}, title), ...children);
}

/**
 * @param {string[]} names
 * @param {string} current
 * @param {(name: string) => void} onChange
 * @param {string} label
 */
export function tabs(names, current, onChange, label) {
  const buttons = names.map((name) =>
    h("button", { type: "button", role: "tab", "aria-selected": String(name === current), tabindex: name === current ? 0 : -1 }, name),
  );
  const choose = (/** @type {number} */ i) => {
    buttons.forEach((button, j) => {
      button.setAttribute("aria-selected", String(i === j));
      button.tabIndex = i === j ? 0 : -1;
    });
    onChange(names[i]);
  };
  buttons.forEach((button, i) => {
    button.addEventListener("click", () => choose(i));
    button.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = (i + step + names.length) % names.length;
      choose(next);
      buttons[next].focus();
    });
  });
  return h("div", { role: "tablist", class: "tabs", "aria-label": label }, buttons);
}
