// @ts-check
/** The shell: navigation, light and dark, and one view at a time. */

import { fill, h, link } from "./dom.js";
import { Problem, find, onUnauthorized } from "./http.js";
import { problemBox } from "./parts.js";
import { go, readRoute, setSession, setTheme, theme, to } from "./state.js";

/**
 * @typedef {{title: string, element: Element, close?: () => void}} View
 * @typedef {(...names: any[]) => Promise<View>} MakeView
 */

/**
 * The first part of an address, and what is shown there. Each waits for its own modules
 * alone: the document has asked for all of them already.
 * @type {Record<string, MakeView>}
 */
const VIEWS = {
  "": async () => (await import("./views/home.js")).homeView(),
  data: async (id) => (id ? (await import("./views/dataset.js")).datasetView(id) : (await import("./views/data.js")).dataView()),
  train: async (id) => (await import("./views/train.js")).trainView(id, readRoute().query),
  jobs: async (id, part) => (part === "report" ? (await import("./views/report.js")).reportView(id) : id ? (await import("./views/job.js")).jobView(id) : VIEWS[""]()),
  models: async (id, part) => (part === "monitor" ? (await import("./views/monitor.js")).monitorView(id) : id ? (await import("./views/model.js")).modelView(id) : (await import("./views/models.js")).modelsView()),
  webhooks: async (id) => (id ? (await import("./views/webhooks.js")).webhookView(id) : (await import("./views/webhooks.js")).webhooksView()),
  key: async () => (await import("./views/key.js")).keyView(),
};

/** Address, name, and the scope without which it is not offered. */
const NAV = [
  ["", "Home", "read"],
  ["data", "Data", "read"],
  ["train", "Train", "write"],
  ["models", "Models", "read"],
  ["webhooks", "Webhooks", "write"],
  ["key", "Key", "key"],
];

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
/** @type {View | null} */
let shown = null;
let turn = 0;
const SECONDS = 3;

async function show() {
  const mine = ++turn;
  const { path } = readRoute();
  const isFirst = shown === null;
  mark(path[0] ?? "");
  /** @type {View} */
  let view;
  try {
    const make = VIEWS[path[0] ?? ""];
    view = make ? await make(...path.slice(1)) : notFound();
  } catch (error) {
    view = notShown(error, () => mine === turn && show());
  }
  if (mine !== turn) {
    view.close?.(); // somebody went elsewhere meanwhile
    return;
  }
  shown?.close?.();
  shown = view;
  document.title = view.title === "LoMETab" ? view.title : `${view.title} · LoMETab`;
  fill(main, view.element);
  main.dataset.route = path.join("/"); // which view it is that stands there now
  performance.mark("view");
  if (!isFirst) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
}

/** What may pass is tried again. @param {unknown} error @param {() => void} again @returns {View} */
function notShown(error, again) {
  const mayPass = error instanceof Problem && (error.status === 0 || error.status === 429 || error.status >= 500);
  const timer = mayPass ? setTimeout(again, 1000 * SECONDS) : undefined;
  const words = mayPass && h("p", { class: "hint" }, "It is tried again in a few seconds.");
  return { title: "Not shown", element: h("div", { class: "stack" }, h("h1", {}, "Not shown"), problemBox(error), words), close: () => clearTimeout(timer) };
}

/** @returns {View} */
function notFound() {
  return {
    title: "No such page",
    element: h("div", {}, h("h1", {}, "No such page"), h("p", {}, "There is nothing at this address. ", link("Go home", to()))),
  };
}

/** @param {string} current */
function mark(current) {
  const here = current === "jobs" ? "" : current;
  for (const each of document.querySelectorAll("#nav a")) {
    const isHere = each.getAttribute("href") === to(here);
    if (isHere) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
}

function furnish() {
  document.querySelector(".skip")?.addEventListener("click", (event) => {
    event.preventDefault(); // the address after the # is a view's
    main.focus();
  });
  const nav = /** @type {Element} */ (document.getElementById("nav"));
  fill(nav, ...NAV.map(([path, text, needs]) => link(text, to(...(path ? [path] : [])), { data: { needs } })), link("API", "docs"));
  const toggle = h("button", { class: "quiet", type: "button" });
  const name = () => fill(toggle, theme() === "dark" ? "Light" : "Dark");
  toggle.addEventListener("click", () => {
    setTheme(theme() === "dark" ? "light" : "dark");
    name();
  });
  setTheme(null);
  name();
  fill(/** @type {Element} */ (document.getElementById("foot")), toggle);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    setTheme(null);
    name();
  });
}

onUnauthorized(() => {
  if (readRoute().path[0] !== "key") go(to("key"));
});
addEventListener("hashchange", show);
furnish();
find("session", 401).then(setSession, () => {});
show();
