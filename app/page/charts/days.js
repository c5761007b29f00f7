// @ts-check
/** Rows of each day as bars, those with an alarm marked. */

import { s } from "../dom.js";
import { count, num } from "../format.js";
import { linear } from "./scale.js";

const [WIDTH, HEIGHT, BOTTOM, TOP] = [760, 160, 30, 24];
const WIDEST = 56;

/** @param {any[]} days the oldest first */
export function dayBars(days) {
  const most = Math.max(...days.map((each) => each.n_rows), 1);
  const size = linear([0, most], [0, HEIGHT - BOTTOM - TOP]);
  const step = Math.min(WIDEST, WIDTH / days.length);
  const alarms = days.filter((each) => each.is_alarm).length;
  const isLabelled = (/** @type {number} */ i) => days.length <= 12 || i === days.length - 1 || i % Math.ceil(days.length / 8) === 0;
  return s(
    "svg",
    { class: "chart days", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${count(days.length, "day")}, at most ${num(most)} rows a day, drift on ${alarms}` },
    s("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }),
    days.map((each, i) => [
      s(
        "rect",
        { class: each.is_alarm ? "fill-other" : "fill-main", x: i * step + 2, y: HEIGHT - BOTTOM - Math.max(1.5, size(each.n_rows)), width: step - 4, height: Math.max(1.5, size(each.n_rows)), rx: 3 },
        s("title", {}, `${each.day}: ${count(each.n_rows, "row")}${each.is_alarm ? `, drift in ${each.drifted.join(", ")}` : ""}`),
      ),
      step > 30 && s("text", { x: (i + 0.5) * step, y: HEIGHT - BOTTOM - size(each.n_rows) - 5, "text-anchor": "middle" }, num(each.n_rows)),
      isLabelled(i) && s("text", { x: (i + 0.5) * step, y: HEIGHT - 9, "text-anchor": "middle" }, each.day.slice(5)),
    ]),
  );
}
