// Small pictures: sparklines and strips, as SVG.
// @ts-check
import { s } from "./dom.js";

/** A line of numbers with its area, and perhaps a second line over it. @param {number[]} values @param {{label: string, cls?: string, max?: number, over?: number[]}} options */
export function spark(values, options) {
  const [w, height] = [240, 44];
  const top = Math.max(1, options.max || 0, ...values, ...(options.over || []));
  const x = (/** @type {number} */ i) => (values.length < 2 ? 0 : (i / (values.length - 1)) * w);
  const y = (/** @type {any} */ v) => height - 2 - (v / top) * (height - 6);
  const line = (/** @type {number[]} */ all) => all.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(" ");
  const points = line(values);
  return s("svg.spark", { viewBox: `0 0 ${w} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": options.label, class: options.cls || "" },
    options.max ? s("line.limit", { x1: 0, x2: w, y1: y(options.max), y2: y(options.max) }) : null,
    values.length > 1 ? s("polygon.area", { points: `0,${height} ${points} ${w},${height}` }) : null,
    values.length > 1 ? s("polyline.line", { points }) : null, options.over ? s("polyline.limit", { points: line(options.over), fill: "none" }) : null);
}

/** Dots on a line from 0 to the limit, with the limit and a proposal marked.
 * @param {number[]} values @param {number | null} limit @param {number | null} proposal @param {string} label */
export function strip(values, limit, proposal, label) {
  const [w, height] = [260, 26];
  const top = Math.max(1e-9, limit || 0, ...values) * 1.04;
  const x = (/** @type {any} */ v) => 3 + (v / top) * (w - 6);
  return s("svg.strip", { viewBox: `0 0 ${w} ${height}`, role: "img", "aria-label": label },
    s("line.axis", { x1: 0, x2: w, y1: height / 2, y2: height / 2 }),
    values.map((v, i) => s("circle.dot", { cx: x(v), cy: height / 2 + (((i * 7) % 11) - 5) * 0.9, r: 2.4 })),
    limit ? s("line.limit", { x1: x(limit), x2: x(limit), y1: 1, y2: height - 1 }) : null,
    proposal ? s("line.proposal", { x1: x(proposal), x2: x(proposal), y1: 3, y2: height - 3 }) : null);
}

/** Colours of families: Okabe-Ito, then lighter and darker ones of the same. */
const COLORS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a900", "#6a51a3", "#4d8f8b", "#8c5a2b"];
export function color(/** @type {number} */ nth) {
  return COLORS[nth % COLORS.length];
}
