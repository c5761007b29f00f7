// @ts-check
/** Numbers, times and sizes as people read them. */

/** @param {number | null | undefined} x @param {number} [digits] significant ones */
export function num(x, digits = 4) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  if (Number.isInteger(x) && Math.abs(x) < 1e12) return x.toLocaleString("en-US");
  const size = Math.abs(x);
  if (size !== 0 && (size >= 1e7 || size < 1e-4)) return x.toExponential(2);
  return Number(x.toPrecision(digits)).toLocaleString("en-US", { maximumFractionDigits: 8 });
}

/** The same with as many digits everywhere, for numbers that stand side by side. @param {number} x @param {number} digits */
export function even(x, digits) {
  const size = Math.abs(x);
  return size >= 1e4 || (size !== 0 && size < 1e-4) ? num(x, digits) : x.toPrecision(digits);
}

/** @param {number | null | undefined} share */
export function percent(share, digits = 1) {
  if (share === null || share === undefined) return "–";
  const shown = (100 * share).toFixed(digits);
  if (share > 0 && Number(shown) === 0) return `< ${(10 ** -digits).toFixed(digits)} %`;
  return `${Number(shown)} %`;
}

/** @param {number | null | undefined} n */
export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let i = 0;
  while (n >= 1000 && i < units.length - 1) {
    n /= 1000;
    i += 1;
  }
  return `${n < 10 && i ? Number(n.toFixed(1)) : Math.round(n)} ${units[i]}`;
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return "< 1 s";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

/** @param {string | null} moment */
export function ago(moment) {
  if (moment === null) return "–";
  const seconds = (Date.now() - Date.parse(moment)) / 1000;
  if (seconds < 45) return "just now";
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h ago`;
  return day(moment);
}

/** @param {string} moment */
export function day(moment) {
  return new Date(moment).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
}

/** @param {string} moment */
export function clock(moment) {
  return new Date(moment).toLocaleTimeString("en-GB");
}

/** @param {number} n @param {string} one */
export function count(n, one, many = `${one}s`) {
  return `${num(n)} ${n === 1 ? one : many}`;
}

/** A word with its first letter large. @param {string} text */
export function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** JSON for people: short lists in one line. @param {any} value @param {number} [indent] */
export function json(value, indent = 2) {
  // Within a text there is no line break, so only lists of plain values are found.
  return JSON.stringify(value, null, indent).replace(/\[\n\s*([^[\]{}]*?)\n\s*\]/g, (_, inner) => `[${inner.replace(/\n\s*/g, " ")}]`);
}

/** A text for a shell, in single quotes. @param {string} text */
export function shell(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

const METHODS = /** @type {Record<string, string>} */ ({ lometab: "LoMETab", tabm: "TabM", "deep-ensemble": "Deep ensemble", additive: "Additive masks", mlp: "One MLP", catboost: "CatBoost" });

/** A kind of model as people write it. @param {string} name */
export function methodName(name) {
  return METHODS[name] ?? capital(name);
}

const SHORT = ["rmse", "mae", "nll", "auroc", "ece", "f1", "r2"];

/** The name of a measure as people write it. @param {string} name */
export function measureName(name) {
  if (name === "r2") return "R²";
  return SHORT.includes(name) ? name.toUpperCase() : capital(name.replaceAll("_", " "));
}

/** The same within a sentence. @param {string} name */
export function measureWord(name) {
  return SHORT.includes(name) ? measureName(name) : measureName(name).toLowerCase();
}
