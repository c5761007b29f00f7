// @ts-check
/** What the numbers of a report say of this model, one sentence for each figure. */

import { count, measureWord, methodName, num, percent } from "./format.js";

/** @typedef {{report: any, diversity: any, calibration: any}} Reports */

/** The whole in a few sentences. @param {Reports} reports */
export function summarise({ report, diversity, calibration }) {
  const { ensemble, members } = report.scores.test;
  const [name, better] = "rmse" in ensemble ? ["rmse", -1] : ["accuracy", 1];
  const mean = average(members[name]);
  const gain = better * (ensemble[name] - mean);
  const said = [
    `On ${num(report.n_rows)} rows that it has never seen, the ensemble's ${name === "rmse" ? "RMSE" : "accuracy"} is ${num(ensemble[name])}.`,
  ];
  if (members[name].length > 1) {
    said.push(`Its ${members[name].length} members alone come to ${num(mean)} on average: asking them together ${gain >= 0 ? "gains" : "loses"} ${num(Math.abs(gain), 2)}.`);
  }
  if (typeof calibration?.ece === "number") said.push(`When it names a probability, it is off by ${percent(calibration.ece)} on average.`);
  if (diversity?.advice) said.push(`${diversity.advice.charAt(0).toUpperCase()}${diversity.advice.slice(1)}.`);
  return said;
}

/**
 * Whether it is worth using, in words: against the best guess without a model, and
 * what the service warns of.
 * @param {Reports} reports
 * @returns {{tone: "good" | "other" | "bad", words: string} | null}
 */
export function verdict({ report }) {
  const gain = gainOf(report);
  if (gain === null) return null;
  if (gain <= 0) return { tone: "bad", words: "Not worth using as it is: a guess without a model does as well." };
  const how = gain < 0.05 ? "barely better" : gain < 0.2 ? "better" : gain < 0.5 ? "clearly better" : "far better";
  const doubt = report.summary?.some((/** @type {any} */ each) => each.about === "warning");
  const rest = gain < 0.05 ? "" : doubt ? ", with one thing to look at first" : "; nothing speaks against using it";
  return { tone: gain < 0.05 || doubt ? "other" : "good", words: `It is ${how} than any guess without a model${rest}.` };
}

/** The share of the best guess's error that the model does without. @param {any} report */
function gainOf(report) {
  const { ensemble } = report.scores.test;
  const name = "rmse" in ensemble ? "mae" : "nll";
  const errors = (report.naive ?? []).map((/** @type {any} */ each) => each.scores[name]).filter((/** @type {any} */ each) => typeof each === "number" && each > 0);
  return errors.length && typeof ensemble[name] === "number" ? 1 - ensemble[name] / Math.min(...errors) : null;
}

/** @param {number[]} values */
function average(values) {
  return values.reduce((sum, each) => sum + each, 0) / values.length;
}

/** One sentence about this model for a figure, if there is one. @type {Record<string, (reports: Reports) => string | null>} */
export const SENTENCES = {
  reliability: ({ calibration }) => {
    const filled = calibration?.bins?.filter((/** @type {any} */ each) => each.count > 0) ?? [];
    if (!filled.length) return null;
    const worst = filled.reduce((/** @type {any} */ a, /** @type {any} */ b) => (gap(b) * b.count > gap(a) * a.count ? b : a));
    return `Rows answered with about ${percent(worst.confidence, 0)} confidence are right in ${percent(worst.accuracy, 0)} of cases: this bin weighs most in an ECE of ${percent(calibration.ece)}.`;
  },
  coverage: ({ calibration }) => {
    const all = calibration?.conformal_intervals ?? calibration?.conformal_sets ?? [];
    const one = all.find((/** @type {any} */ each) => each.coverage === 0.9) ?? all.at(-1);
    return one ? `Asked for ${percent(one.coverage, 0)}, they hold the truth for ${percent(one.measured)} of the test rows.` : null;
  },
  confusion: ({ report }) => {
    const { classes, matrix } = report.confusion ?? {};
    if (!matrix) return null;
    let most = [0, 0, 0];
    matrix.forEach((/** @type {number[]} */ row, /** @type {number} */ i) => row.forEach((n, j) => i !== j && n > most[0] && (most = [n, i, j])));
    return most[0] ? `Most often ${classes[most[1]]} is taken for ${classes[most[2]]}: ${count(most[0], "row")}.` : "No row of the test part is taken for another class.";
  },
  "risk-coverage": ({ report }) => {
    const curve = report.risk_coverage;
    if (!curve) return null;
    const half = curve.coverage.findIndex((/** @type {number} */ each) => each >= 0.5);
    const [all, some] = [curve.risk.at(-1), curve.risk[half]];
    const only = "Answering only the half of the rows that it is most certain of,";
    if (curve.loss === "wrong class") return `${only} it is wrong in ${percent(some)} of them, instead of ${percent(all)} of all.`;
    return `${only} its ${curve.loss} is ${num(some, 3)} instead of ${num(all, 3)}.`;
  },
  members: ({ report }) => {
    const { ensemble, members } = report.scores.test;
    const name = "rmse" in ensemble ? "rmse" : "accuracy";
    const isBetter = (/** @type {number} */ each) => (name === "rmse" ? each < ensemble[name] : each > ensemble[name]);
    const n = members[name].filter(isBetter).length;
    return `${n ? `${count(n, "member is", "members are")}` : "No member is"} better alone than all together.`;
  },
  decomposition: ({ report }) => {
    const parts = report.decomposition;
    return parts && parts.member_error ? `Differences between members take ${percent(parts.ambiguity / parts.member_error)} off their own error.` : null;
  },
  pairs: ({ diversity }) => {
    const matrix = diversity?.pairwise_kl?.matrix ?? diversity?.squared_difference?.matrix;
    return matrix && matrix.length > 1 ? pairWords(matrix) : null;
  },
  predicted: ({ report }) => {
    const { rmse, mae } = report.scores.test.ensemble;
    return typeof mae === "number" ? `It is off by ${num(mae, 3)} on average, and by ${num(rmse, 3)} where large errors count more.` : null;
  },
  importance: ({ report }) => {
    const [first, second] = report.importance?.columns ?? [];
    if (!first) return null;
    const next = second ? `, then by ${second.column} (${num(second.mean, 2)})` : "";
    return `It goes most by ${first.column}: shuffled, it costs ${num(first.mean, 2)} of ${measureWord(report.importance.metric)}${next}.`;
  },
  slices: ({ report }) => {
    const [first] = report.slices?.worst ?? [];
    if (!first) return null;
    const sure = first.is_worse ? "surely more than" : "perhaps by chance more than";
    const loss = (/** @type {number} */ each) => (report.slices.loss === "wrong class" ? `${percent(each)} wrong` : `${num(each, 3)} off`);
    return `Where ${first.column} is ${first.rows.replace(/^= /, "")}: ${loss(first.loss)} on ${count(first.n_rows, "row")}, ${sure} the ${loss(report.slices.overall)} of all rows.`;
  },
  naive: ({ report }) => {
    const { ensemble } = report.scores.test;
    const name = "rmse" in ensemble ? "rmse" : "accuracy";
    const sign = name === "rmse" ? -1 : 1;
    const all = (report.naive ?? []).filter((/** @type {any} */ each) => typeof each.scores[name] === "number");
    if (!all.length) return null;
    const best = all.reduce((/** @type {any} */ a, /** @type {any} */ b) => (sign * (b.scores[name] - a.scores[name]) > 0 ? b : a));
    const how = sign * (ensemble[name] - best.scores[name]) > 0 ? "better than" : "no better than";
    return `With ${measureWord(name)} ${num(ensemble[name])} it is ${how} the best guess without a model (${best.name}${best.column ? `, ${best.column}` : ""}): ${num(best.scores[name])}.`;
  },
  training: ({ report }) => (report.training ? `The best of ${count(report.training.epochs, "epoch")} is number ${report.training.best_epoch}.` : null),
};

/** Whether another is better, and by how much. @param {any} baseline */
export function deltaWords({ delta_percent: delta }) {
  if (delta === null) return "";
  return delta === 0 ? "the same" : `${num(Math.abs(delta), 2)} % ${delta > 0 ? "better" : "worse"}`;
}

/** The best of the others beside this model. @param {any[]} all the model itself among them */
export function baselineWords(all) {
  const others = all.filter((each) => each.name !== "lometab" && each.delta_percent !== null);
  if (!others.length) return "No other could be compared.";
  const best = others.reduce((a, b) => (b.delta_percent > a.delta_percent ? b : a));
  const name = measureWord(best.metric);
  if (best.delta_percent > 0) return `${methodName(best.name)} does better here: ${name} ${num(best.score)}, ${deltaWords(best)} than this model.`;
  return `This model is ahead of ${others.length > 1 ? `all ${others.length} others` : "the other"}; the nearest is ${methodName(best.name)} with ${name} ${num(best.score)}, ${deltaWords(best)}.`;
}

/** @param {{confidence: number, accuracy: number}} bin */
function gap({ confidence, accuracy }) {
  return Math.abs(confidence - accuracy);
}

/** The most alike and the most different pair. @param {number[][]} matrix */
export function pairWords(matrix) {
  let [least, most] = [[Infinity, 0, 0], [-Infinity, 0, 0]];
  matrix.forEach((row, i) => {
    for (let j = 0; j < i; j += 1) {
      if (row[j] < least[0]) least = [row[j], j, i];
      if (row[j] > most[0]) most = [row[j], j, i];
    }
  });
  return `Members ${least[1]} and ${least[2]} are most alike (${num(least[0], 3)}), ${most[1]} and ${most[2]} differ most (${num(most[0], 3)}).`;
}

/** The same for the pictures of a sweep or a search. @type {Record<string, (found: any) => string | null>} */
export const RUN_SENTENCES = {
  pareto: ({ comparison: { cells, best_score: best, metric } }) => {
    const known = cells.filter((/** @type {any} */ each) => each.val?.diversity && each.val.score);
    if (best === null || known.length < 2) return null;
    const most = known.reduce((/** @type {any} */ a, /** @type {any} */ b) => (b.val.diversity.mean > a.val.diversity.mean ? b : a));
    if (most.cell === best) return "It does: the cell with the most diverse members is also the best one.";
    return `Not by itself: the most diverse cell has ${measureWord(metric)} ${num(most.val.score.mean)}, the best one ${num(cells[best].val.score.mean)} with ${num(cells[best].val.diversity?.mean, 2)} of diversity instead of ${num(most.val.diversity.mean, 2)}.`;
  },
  "tune-history": ({ trials, best }) => {
    const ended = trials.filter((/** @type {any} */ each) => each.outcome);
    const since = ended.filter((/** @type {any} */ each) => each.trial > best).length;
    if (best === null || !ended.length) return null;
    return since ? `Trial ${best} is the best of ${ended.length}; the ${count(since, "trial")} after it found nothing better.` : `The last of ${count(ended.length, "trial")} is the best: more of them may find better ones.`;
  },
  "tune-importances": ({ importances }) => {
    const [first, second] = Object.entries(importances ?? {}).sort((a, b) => b[1] - a[1]);
    return first ? `${first[0]} mattered most, with ${percent(first[1], 0)} of the differences in score${second ? `, then ${second[0]} with ${percent(second[1], 0)}` : ""}.` : null;
  },
};

/** Which column moves the answer most. @param {any} effects */
export function effectWords(effects) {
  const moves = effects.columns.map((/** @type {any} */ { column, outputs }) => {
    const { mean } = outputs.at(-1);
    return { column, by: Math.max(...mean) - Math.min(...mean) };
  });
  const most = moves.reduce((/** @type {any} */ a, /** @type {any} */ b) => (b.by > a.by ? b : a));
  return `All else as it is, ${most.column} moves the answer most: by up to ${num(most.by, 3)}.`;
}
