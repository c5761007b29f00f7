// @ts-check
/** What the page knows beyond one view: where it is, who asks, what was chosen. */

/** @typedef {{path: string[], query: URLSearchParams}} Route */

/** The address after the #: `#/jobs/job_x?tab=report`. @returns {Route} */
export function readRoute() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query ?? "") };
}

/** @param {...string} parts */
export function to(...parts) {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

/** @param {string} hash */
export function go(hash) {
  if (location.hash === hash) dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = hash;
}

// ---------------------------------------------------------------------------
// Light or dark: as the system has it, unless it was chosen here

const THEME = "lometab-theme";

/** @returns {"light" | "dark"} */
export function theme() {
  const chosen = localStorage.getItem(THEME);
  if (chosen === "light" || chosen === "dark") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** @param {"light" | "dark" | null} chosen */
export function setTheme(chosen) {
  if (chosen) localStorage.setItem(THEME, chosen);
  document.documentElement.dataset.theme = theme();
  dispatchEvent(new CustomEvent("theme"));
}

// ---------------------------------------------------------------------------
// Who asks: what a key may not do is not offered (see `data-needs` in style.css)

/** @param {any} session of `GET /session`; null: nobody is logged in */
export function setSession(session) {
  document.documentElement.dataset.may = session ? session.scopes.join(" ") : "";
  document.documentElement.dataset.key = session?.key_id ? "yes" : "no";
}

// ---------------------------------------------------------------------------
// What was chosen for a dataset, until the window is closed

/** @typedef {{target?: string, task?: string, columns: Record<string, string>}} Draft */

/** @param {string} datasetId @returns {Draft} */
export function draft(datasetId) {
  const kept = sessionStorage.getItem(`lometab-draft-${datasetId}`);
  return kept ? JSON.parse(kept) : { columns: {} };
}

/** @param {string} datasetId @param {Draft} value */
export function keepDraft(datasetId, value) {
  sessionStorage.setItem(`lometab-draft-${datasetId}`, JSON.stringify(value));
}

/** Files that were uploaded in this window, to be read otherwise. @type {Map<string, File>} */
export const files = new Map();

// ---------------------------------------------------------------------------

/**
 * Do something now and then, and not while nobody looks; the result ends it.
 * @param {number} seconds
 * @param {() => Promise<void>} action
 */
export function every(seconds, action) {
  let isOver = false;
  /** @type {number | undefined} */
  let timer;
  const run = async () => {
    if (isOver) return;
    if (!document.hidden) await action().catch(() => {});
    if (!isOver) timer = setTimeout(run, 1000 * seconds);
  };
  timer = setTimeout(run, 1000 * seconds);
  const look = () => {
    if (document.hidden || isOver) return;
    clearTimeout(timer);
    run();
  };
  document.addEventListener("visibilitychange", look);
  return () => {
    isOver = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", look);
  };
}

/** @param {number} seconds @returns {Promise<void>} */
export function pause(seconds) {
  return new Promise((done) => setTimeout(done, 1000 * seconds));
}
