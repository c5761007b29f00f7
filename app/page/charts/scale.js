// @ts-check
/** From numbers to places. */

/** @param {[number, number]} domain @param {[number, number]} range */
export function linear([a, b], [from, to]) {
  const width = b - a || 1;
  return (/** @type {number} */ x) => from + ((x - a) / width) * (to - from);
}

/** Round numbers between two ends. @param {number} low @param {number} high */
export function ticks(low, high, n = 4) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const rough = span / n;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * size).find((each) => each >= rough) ?? rough;
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i += 1) found.push(Number((i * step).toPrecision(12)));
  return found;
}

/** The least and the largest of them, a little apart. @param {number[]} values */
export function extent(values, room = 0.06) {
  const finite = values.filter(Number.isFinite);
  if (!finite.length) return /** @type {[number, number]} */ ([0, 1]);
  let low = finite[0];
  let high = finite[0];
  for (const each of finite) {
    if (each < low) low = each;
    if (each > high) high = each;
  }
  const apart = (high - low || Math.abs(high) || 1) * room;
  return /** @type {[number, number]} */ ([low - apart, high + apart]);
}
