// @ts-check
/** What can be asked for, as the service's own document (OpenAPI) has it: presets,
 * settings with their bounds, events. The page has no lists of these. */

import { capital } from "./format.js";
import { get } from "./http.js";

/**
 * @typedef {{name: string, label: string, about: string, type: string, choices: string[] | null, low: number | null, high: number | null, usual: any, mayBeNone: boolean}} Setting
 * `choices` of a text, `low` and `high` of a number, `usual` its default.
 */

/** @type {Promise<Record<string, any>> | undefined} */
let asked;

/** The shapes of all bodies; asked for once. */
export function readSchemas() {
  asked ??= get("openapi.json").then(
    (document) => document.components.schemas,
    (error) => {
      asked = undefined; // the next view may ask again
      throw error;
    },
  );
  return asked;
}

/** The words that a list of the service has. @param {Record<string, any>} schemas @param {string} name @returns {string[]} */
export function choices(schemas, name) {
  return schemas[name]?.enum ?? [];
}

/** Every hyperparameter. @param {Record<string, any>} schemas @returns {Setting[]} */
export function settings(schemas) {
  return Object.entries(schemas.TrainConfig.properties).map(([name, each]) => read(name, each));
}

const LABELS = /** @type {Record<string, string>} */ ({
  k: "Members (K)",
  n_blocks: "Hidden layers",
  d_block: "Width",
  d_embedding: "Embedding width",
  n_bins: "Embedding bins",
  bin_edges: "Edges of these bins",
  lr: "Learning rate",
  lr_patience: "Patience of the learning rate",
  max_epochs: "Epochs at most",
  sigma_init: "sigma_init",
  ema: "Average of weights (EMA)",
});

/** @param {string} name @param {any} schema @returns {Setting} */
function read(name, schema) {
  const { minimum, exclusiveMinimum, maximum, type, enum: all } = { ...schema, ...schema.anyOf?.[0] };
  return {
    name,
    label: LABELS[name] ?? capital(name.replaceAll("_", " ")),
    about: schema.description ?? "",
    type,
    choices: all ?? null,
    low: minimum ?? exclusiveMinimum ?? null,
    high: maximum ?? null,
    usual: schema.default,
    mayBeNone: Boolean(schema.anyOf?.some((/** @type {any} */ each) => each.type === "null")),
  };
}

/** What may be written for it. @param {Setting} setting */
export function bounds({ type, choices: all, low, high, mayBeNone }) {
  const none = mayBeNone ? ", or none" : "";
  if (all) return `${all.join(", ")}${none}`;
  if (type === "boolean") return "yes, no";
  return `${type === "integer" ? "whole numbers" : "numbers"} from ${low} to ${high}${none}`;
}

/**
 * A value as it is sent; one that makes no sense is sent as it is written, and the
 * service says what is wrong with it.
 * @param {Setting} setting
 * @param {string} text
 */
export function parse({ type, mayBeNone }, text) {
  if (mayBeNone && text === "none") return null;
  if (type === "boolean") return { yes: true, true: true, no: false, false: false }[text] ?? text;
  if (type !== "integer" && type !== "number") return text;
  const number = Number(text);
  return Number.isNaN(number) ? text : number;
}

/** Values to begin a sweep with: all of few, else some about the usual one. @param {Setting} setting */
export function suggest({ type, choices: all, low, high, usual }) {
  if (all) return all.join(", ");
  if (type === "boolean") return "yes, no";
  const middle = Number(usual ?? 0);
  const steps = middle ? [middle / 2, middle, 2 * middle] : type === "integer" ? [0, 1, 2] : [0, (high ?? 1) / 4, (high ?? 1) / 2];
  const rounded = steps.map((each) => Math.min(high ?? each, Math.max(low ?? each, type === "integer" ? Math.round(each) : Number(each.toPrecision(3)))));
  return [...new Set(rounded)].join(", ");
}
