// @ts-check
/** What each member says of one row, and what they say together. */

import { fill, h, s } from "../dom.js";
import { num, percent } from "../format.js";
import { extent, linear, ticks } from "./scale.js";

const WIDTH = 560;
const GOLDEN = 0.618034;

/** Members' numbers as dots, with their mean and an interval around it. */
export function memberDots() {
  const height = 190;
  const svg = s("svg", { class: "chart dots", viewBox: `0 0 ${WIDTH} ${height}`, role: "img" });
  /** The widest that was needed: the axis stands still while a slider moves. @type {[number, number] | null} */
  let domain = null;
  return {
    element: svg,
    /** @param {any} answer @param {[number, number] | null} usual the range of the target */
    update({ mean, members, interval }, usual) {
      const [low, high] = interval ?? [null, null];
      const wanted = extent([mean, ...members, ...[low, high].filter((each) => each !== null), ...(usual ?? [])], 0.04);
      domain = domain ? [Math.min(domain[0], wanted[0]), Math.max(domain[1], wanted[1])] : wanted;
      const place = linear(domain, [16, WIDTH - 16]);
      const bottom = height - 28;
      const [from, to] = [low === null ? 16 : place(low), high === null ? WIDTH - 16 : place(high)];
      fill(
        svg,
        interval && s("rect", { class: "fill-soft", x: from, y: 26, width: Math.max(1, to - from), height: bottom - 26, rx: 6 }),
        ticks(...domain, 6).map((each) => [
          s("line", { class: "grid", x1: place(each), x2: place(each), y1: 26, y2: bottom }),
          s("text", { x: place(each), y: height - 9, "text-anchor": "middle" }, num(each, 3)),
        ]),
        s("line", { class: "axis", x1: 16, x2: WIDTH - 16, y1: bottom, y2: bottom }),
        members.map((/** @type {number} */ each, /** @type {number} */ i) =>
          s("circle", { class: "fill-other member", cx: place(each), cy: 40 + ((i * GOLDEN) % 1) * (bottom - 54), r: 4.5, opacity: 0.72 }, s("title", {}, `member ${i}: ${num(each)}`)),
        ),
        s("line", { class: "line main", x1: place(mean), x2: place(mean), y1: 26, y2: bottom }),
        s("text", { class: "mean", x: Math.min(WIDTH - 60, Math.max(60, place(mean))), y: 17, "text-anchor": "middle" }, `mean ${num(mean)}`),
      );
      svg.setAttribute("aria-label", `The mean is ${num(mean)}; ${members.length} members from ${num(Math.min(...members))} to ${num(Math.max(...members))}`);
    },
  };
}

const SHOWN = 12;

/** Probabilities of classes as bars, with the members' own as dots. */
export function classBars() {
  const element = h("div", { class: "class-bars" });
  return {
    element,
    /** @param {any} answer @param {any[]} classes */
    update({ mean, members, label, set }, classes) {
      const all = typeof mean === "number" ? [1 - mean, mean] : mean;
      const own = (/** @type {number} */ i) => members.map((/** @type {any} */ each) => (typeof each === "number" ? (i ? each : 1 - each) : each[i]));
      const order = all.map((/** @type {number} */ share, /** @type {number} */ i) => [share, i]);
      if (all.length > SHOWN) order.sort((/** @type {number[]} */ a, /** @type {number[]} */ b) => b[0] - a[0]);
      const most = Math.max(...all, ...members.flat());
      const top = members.length ? ([0.1, 0.2, 0.5].find((each) => each >= most && all.length > 2) ?? 1) : 1;
      fill(
        element,
        order.slice(0, SHOWN).map((/** @type {number[]} */ [share, i]) => classRow(classes[i], share, own(i), classes[i] === label, (set ?? []).includes(classes[i]), top)),
        top < 1 && h("p", { class: "hint" }, `A whole bar is ${percent(top, 0)}.`),
        order.length > SHOWN && h("p", { class: "hint" }, `and ${order.length - SHOWN} more classes below these`),
      );
    },
  };
}

/** @param {any} name @param {number} share @param {number[]} members @param {boolean} isFirst @param {boolean} isInSet @param {number} top */
function classRow(name, share, members, isFirst, isInSet, top) {
  const place = linear([0, top], [2, 398]);
  const told = `${name}: ${percent(share)}; members from ${percent(Math.min(...members))} to ${percent(Math.max(...members))}`;
  return h(
    "div",
    { class: isFirst ? "class-row is-first" : "class-row" },
    h("span", { class: "class-name" }, String(name), isInSet && h("span", { class: "tag", title: "Within the set of this coverage" }, "in the set")),
    s(
      "svg",
      { class: "chart", viewBox: "0 0 400 26", role: "img", "aria-label": told, preserveAspectRatio: "none" },
      s("rect", { class: "fill-raised", x: 0, y: 4, width: 400, height: 18, rx: 4 }),
      s("rect", { class: isFirst ? "fill-main" : "fill-member", opacity: isFirst ? 0.85 : 0.5, x: 0, y: 4, width: Math.max(1, place(share)), height: 18, rx: 4 }),
      members.map((each, i) => s("rect", { class: "fill-other member", x: place(each) - 1.2, y: 1 + ((i * GOLDEN) % 1) * 12, width: 2.4, height: 12, opacity: 0.8 })),
    ),
    h("b", { class: "numeric" }, percent(share)),
  );
}
