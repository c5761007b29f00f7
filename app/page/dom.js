// @ts-check
/** Elements made by code. A text becomes a text node, whatever is in it: nothing here
 * reads markup, so a name with markup in it is shown as it is written. */

/** @typedef {any} Child A node, a text, a number, nothing, or an array of these. */
/** @typedef {Record<string, any>} Props */

/**
 * An element: `on` has its listeners, `style` its styles, `data` its data attributes.
 * @param {string} name
 * @param {Props} [props]
 * @param {...Child} children
 * @returns {any} An element; its own type is known by whoever asked for it.
 */
export function h(name, props = {}, ...children) {
  const element = document.createElement(name);
  dress(element, props);
  add(element, children);
  return element;
}

/**
 * The same for a picture.
 * @param {string} name
 * @param {Props} [props]
 * @param {...Child} children
 * @returns {any}
 */
export function s(name, props = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  dress(element, props);
  add(element, children);
  return element;
}

/** @param {Element} element @param {Props} props */
function dress(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [type, listener] of Object.entries(value)) element.addEventListener(type, listener);
    } else if (name === "style") {
      const { style } = /** @type {HTMLElement} */ (element);
      for (const [property, each] of Object.entries(value)) style.setProperty(property, String(each));
    } else if (name === "data") {
      Object.assign(/** @type {HTMLElement} */ (element).dataset, value);
    } else if (name === "value" || name === "checked" || name === "disabled" || name === "selected") {
      /** @type {any} */ (element)[name] = value;
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
}

/** @param {Node} parent @param {Child[]} children */
function add(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/**
 * Put these in the place of all that an element holds.
 * @param {Element} element
 * @param {...Child} children
 */
export function fill(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

/**
 * Keep a list of elements up to date: each item has its own, which stays the same.
 * @template T
 * @param {Element} parent
 * @param {T[]} items
 * @param {(item: T) => string} key
 * @param {(item: T) => {element: Element, update: (item: T) => void}} make
 */
export function keep(parent, items, key, make) {
  const known = /** @type {Map<string, any>} */ (/** @type {any} */ (parent).kept ?? new Map());
  /** @type {any} */ (parent).kept = known;
  const wanted = new Set(items.map(key));
  for (const [id, { element }] of known) {
    if (wanted.has(id)) continue;
    element.remove();
    known.delete(id);
  }
  items.forEach((item, i) => {
    const id = key(item);
    if (!known.has(id)) known.set(id, make(item));
    const { element, update } = known.get(id);
    update(item);
    if (parent.children[i] !== element) parent.insertBefore(element, parent.children[i] ?? null);
  });
}

/** @param {string} text @param {string} href @param {Props} [props] */
export function link(text, href, props = {}) {
  return h("a", { href, ...props }, text);
}
