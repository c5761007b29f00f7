// @ts-check
/** The one place that talks to the service. */

import { pause } from "./state.js";

/** What the service says when it cannot do something (RFC 9457). */
export class Problem extends Error {
  /** @param {number} status @param {any} body */
  constructor(status, body) {
    super(body?.detail ?? "The service did not answer.");
    this.status = status;
    this.code = body?.code ?? "unreachable";
    this.title = body?.title ?? "No answer";
  }
}

const TRIES = 2;

/** @type {(problem: Problem) => void} */
let tellUnauthorized = () => {};

/** Who is told that a key is needed. @param {(problem: Problem) => void} listener */
export function onUnauthorized(listener) {
  tellUnauthorized = listener;
}

/** The whole address of a path of the service. @param {string} path */
export function address(path) {
  return new URL(path.replace(/^\//, ""), new URL(".", document.baseURI)).href;
}

/**
 * @param {string} method
 * @param {string} path
 * @param {{body?: any, type?: string, accept?: string, signal?: AbortSignal}} [options]
 * @returns {Promise<Response>}
 */
export async function send(method, path, { body, type, accept, signal } = {}) {
  /** @type {Record<string, string>} */
  const headers = { Accept: accept ?? "application/json" };
  if (type) headers["Content-Type"] = type;
  let response;
  for (let left = method === "GET" ? TRIES : 1; !response; left -= 1) {
    try {
      response = await fetch(address(path), { method, headers, body, signal });
    } catch (error) {
      if (signal?.aborted) throw error;
      if (left === 1) throw new Problem(0, { detail: "The service cannot be reached. Is it running?" });
      await pause(0.3); // the network may just have changed
    }
  }
  if (!response.ok) throw await read(response);
  return response;
}

/** @param {Response} response */
async function read(response) {
  const body = await response.json().catch(() => null);
  const problem = new Problem(response.status, body);
  if (response.status === 401) tellUnauthorized(problem);
  return problem;
}

/** @param {string} path @param {{signal?: AbortSignal}} [options] @returns {Promise<any>} */
export async function get(path, options) {
  return (await send("GET", path, options)).json();
}

/**
 * What a path has, or null where the answer is one of these statuses.
 * @param {string} path
 * @param {...number} absent
 */
export async function find(path, ...absent) {
  try {
    return await get(path);
  } catch (error) {
    if (error instanceof Problem && absent.includes(error.status)) return null;
    throw error;
  }
}

/**
 * @param {string} method
 * @param {string} path
 * @param {any} [body]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function put(method, path, body, signal) {
  const content = body === undefined ? undefined : JSON.stringify(body);
  const type = content === undefined ? undefined : "application/json";
  const response = await send(method, path, { body: content, type, signal });
  return response.status === 204 ? null : response.json();
}

/** Have a key kept in a cookie. @param {string} key @returns {Promise<any>} */
export async function logIn(key) {
  const headers = { Accept: "application/json", Authorization: `Bearer ${key}` };
  const response = await fetch(address("session"), { method: "POST", headers });
  const body = await response.json().catch(() => null);
  if (!response.ok) throw new Problem(response.status, body);
  return body;
}

/** A file of the page itself. @param {string} name */
export async function readOwn(name) {
  return (await fetch(new URL(name, import.meta.url))).blob();
}

/**
 * Send a file, and tell how much of it is sent and how much of the answer has come.
 * @param {string} path
 * @param {FormData | File} body
 * @param {(share: number, received: number) => void} onProgress
 * @param {{type?: string, accept?: string}} [options] `accept`: the answer is a file of this type
 * @returns {Promise<any>}
 */
export function upload(path, body, onProgress, { type, accept } = {}) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest(); // fetch does not tell how much it has sent
    request.open("POST", address(path));
    request.setRequestHeader("Accept", accept ?? "application/json");
    if (type) request.setRequestHeader("Content-Type", type);
    request.responseType = "blob";
    request.upload.addEventListener("progress", (event) => {
      if (event.lengthComputable) onProgress(event.loaded / event.total, 0);
    });
    request.addEventListener("progress", (event) => onProgress(1, event.loaded));
    request.addEventListener("load", async () => {
      const { status, response } = request;
      if (status < 300 && accept) return resolve(response);
      const answer = await response.text().then(JSON.parse).catch(() => null);
      return status < 300 ? resolve(answer) : reject(refuse(status, answer));
    });
    request.addEventListener("error", () => reject(new Problem(0, null)));
    request.send(body);
  });
}

/** @param {number} status @param {any} body */
function refuse(status, body) {
  const problem = new Problem(status, body);
  if (status === 401) tellUnauthorized(problem);
  return problem;
}

const TYPES = [
  ..."queued warning running phase epoch checkpoint resumed released lost".split(" "),
  ..."stopping cancelling succeeded failed cancelled child repeating refitting".split(" "),
];
export const ENDS = ["succeeded", "failed", "cancelled"];

/**
 * Follow a job's events from the first to the last, each once: the browser connects
 * again by itself, with the number of the last event that it has got.
 * @param {string} jobId
 * @param {(event: any) => void} onEvent
 * @param {(isOpen: boolean) => void} [onState]
 * @returns {() => void} How to end it.
 */
export function follow(jobId, onEvent, onState = () => {}) {
  const source = new EventSource(address(`jobs/${jobId}/events`));
  let last = 0;
  let isOver = false;
  for (const type of TYPES) {
    source.addEventListener(type, (message) => {
      const event = JSON.parse(/** @type {MessageEvent} */ (message).data);
      if (event.seq <= last) return;
      last = event.seq;
      // A retry begins after an end: the stream is over when the service ends it.
      isOver = ENDS.includes(type);
      onEvent(event);
    });
  }
  source.addEventListener("open", () => onState(true));
  source.addEventListener("error", () => {
    if (isOver) source.close();
    else onState(false);
  });
  return () => source.close();
}
