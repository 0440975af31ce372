// Pictures of graphs: SVG for what has few nodes, a canvas for many, a small map, cells for the jobs of a family.
// @ts-check
import { s } from "./dom.js";
import { BAD, BAR_ORDER, num, STATUSES, word } from "./format.js";

export const W = 168;
export const H = 52;
const [GX, GY, EDGE] = [28, 44, 12];
/** A rank with more nodes than this goes over several lines. */
const LONG = 12;

/** @typedef {{at: Map<number, {x: number, y: number}>, width: number, height: number}} Spots */
/** What stands out. @typedef {{path: Set<number>, blocked: Set<number>}} Marks */

/** Where each node is. @param {any} view @returns {Spots} */
export function spots(view) {
  /** @type {any[][]} */ const ranks = [];
  for (const node of view.nodes) (ranks[node.rank] ||= []).push(node);
  // As wide as high, about, when ranks are long.
  const longest = Math.max(1, ...ranks.map((rank) => (rank ? rank.length : 0)));
  const most = longest > LONG ? Math.max(LONG, Math.ceil(Math.sqrt(longest * 1.2))) : LONG;
  const at = new Map();
  const widest = Math.min(most, longest);
  let y = EDGE;
  for (const rank of ranks) {
    if (!rank) continue;
    rank.sort((a, b) => a.across - b.across);
    for (let from = 0; from < rank.length; from += most) {
      const line = rank.slice(from, from + most);
      line.forEach((node, i) => at.set(node.id, { x: ((widest - line.length) / 2 + i) * (W + GX) + EDGE, y }));
      y += H + (from + most < rank.length ? 14 : GY);
    }
  }
  return { at, width: widest * (W + GX) - GX + 2 * EDGE, height: Math.max(H + 2 * EDGE, y - GY + EDGE) };
}

/** What waits behind a failure. @param {any} view @returns {Set<number>} */
export function behind(view) {
  /** @type {Map<number, number[]>} */ const next = new Map();
  for (const e of view.edges) next.set(e.from, [...(next.get(e.from) || []), e.to]);
  const found = new Set();
  const open = view.nodes.filter((/** @type {any} */ node) => BAD.some((status) => node.counts[status])).map((/** @type {any} */ node) => node.id);
  while (open.length) for (const to of next.get(open.pop()) || []) if (!found.has(to)) { found.add(to); open.push(to); }
  return found;
}

/** @param {any} view @param {Spots} where @param {Marks} marks */
export function picture(view, where, marks) {
  return s("svg.graphsvg", { viewBox: `0 0 ${where.width} ${where.height}` },
    view.edges.map((/** @type {any} */ e) => edge(where.at.get(e.from), where.at.get(e.to), e, marks.path.has(e.from) && marks.path.has(e.to))),
    view.nodes.map((/** @type {any} */ node) => nodeBox(node, where.at.get(node.id), marks)));
}

function edge(/** @type {any} */ a, /** @type {any} */ b, /** @type {any} */ e, /** @type {any} */ isPath) {
  const [x1, y1, x2, y2] = [a.x + W / 2, a.y + H, b.x + W / 2, b.y];
  const bend = Math.max(20, (y2 - y1) / 2);
  return s("g.edges", { class: isPath ? "critical" : "" }, s("path", { d: `M${x1},${y1} C${x1},${y1 + bend} ${x2},${y2 - bend} ${x2},${y2}` }), s("path.arrow", { d: `M${x2 - 4},${y2 - 7} L${x2},${y2} L${x2 + 4},${y2 - 7}` }),
    e.count > 1 ? s("text", { x: (x1 + x2) / 2 + 6, y: (y1 + y2) / 2 + 4 }, e.kind) : null);
}

/** @param {any} node @param {any} at @param {Marks} marks */
export function nodeBox(node, at, marks) {
  const failed = BAD.reduce((sum, status) => sum + (node.counts[status] || 0), 0);
  const parts = BAR_ORDER.filter((status) => node.counts[status]);
  let x = at.x + 10;
  const total = node.total > 1 ? (failed ? `✕ ${num(failed)} / ${num(node.total)}` : num(node.total)) : failed ? "✕" : "";
  const room = 20 - total.length;
  const name = node.name.length > room ? node.name.slice(0, room - 1) + "…" : node.name;
  const said = `${node.name}: ${parts.map((p) => `${num(node.counts[p])} ${word(p)}`).join(", ")}${node.seconds ? `, median ${node.seconds}` : ""}`;
  return s("g.node", { tabindex: "0", role: "link", "data-id": node.id, "aria-label": said, class: `${failed ? "failed" : ""} ${marks.blocked.has(node.id) ? "blocked" : ""} ${marks.path.has(node.id) ? "critical" : ""}` },
    s("title", said), s("rect.frame", { x: at.x, y: at.y, width: W, height: H, rx: 7 }),
    s("text.name", { x: at.x + 10, y: at.y + 20 }, name),
    total ? s("text.total", { x: at.x + W - 10, y: at.y + 20, "text-anchor": "end" }, total) : null,
    node.seconds ? s("text.total.time", { x: at.x + W - 10, y: at.y + 41, "text-anchor": "end" }, node.seconds) : null,
    parts.map((status) => { const w = Math.max(2, (node.counts[status] / node.total) * (W - (node.seconds ? 66 : 20))); const part = s("rect", { class: "svg s-" + status, x, y: at.y + 33, width: w, height: 8 }); x += w; return part; }));
}

/** Colours of the theme. */
export function inks() {
  const style = getComputedStyle(document.documentElement);
  return (/** @type {any} */ name) => style.getPropertyValue("--" + name).trim();
}

/** A canvas of so many pixels, empty. @param {HTMLCanvasElement} canvas @param {number} width @param {number} height */
export function fresh(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  const [w, hgt] = [Math.round(width * ratio), Math.round(height * ratio)];
  // Setting a size makes a new picture, even the same size.
  if (canvas.width !== w || canvas.height !== hgt) {
    canvas.width = w;
    canvas.height = hgt;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, width, height);
  return c;
}

/** The part of a graph that begins at `left`, `top`. @param {HTMLCanvasElement} canvas @param {number} width @param {number} height @param {any} view @param {Spots} where @param {Marks} marks @param {number} scale @param {number} left @param {number} top */
export function paint(canvas, width, height, view, where, marks, scale, left, top) {
  const c = fresh(canvas, width, height);
  const ink = inks();
  c.scale(scale, scale);
  c.translate(-left, -top);
  const [right, bottom] = [left + width / scale, top + height / scale];
  c.strokeStyle = ink("canceled");
  c.lineWidth = Math.max(1, 0.7 / scale);
  c.beginPath();
  for (const e of view.edges) {
    const [a, b] = [where.at.get(e.from), where.at.get(e.to)];
    if (!a || !b || Math.max(a.x, b.x) + W < left || Math.min(a.x, b.x) > right || b.y < top || a.y > bottom) continue;
    c.moveTo(a.x + W / 2, a.y + H);
    c.lineTo(b.x + W / 2, b.y);
  }
  c.stroke();
  c.font = "600 12.5px system-ui, sans-serif";
  for (const node of view.nodes) {
    const at = /** @type {{x: number, y: number}} */ (where.at.get(node.id));
    if (at.x + W < left || at.x > right || at.y + H < top || at.y > bottom) continue;
    const isBad = BAD.some((status) => node.counts[status]);
    c.fillStyle = ink("bg");
    c.fillRect(at.x, at.y, W, H);
    let x = at.x;
    const isSmall = scale < 0.35;
    for (const status of BAR_ORDER) if (node.counts[status]) { const w = (node.counts[status] / node.total) * W; c.fillStyle = ink(status); c.fillRect(x, isSmall ? at.y : at.y + 34, w, isSmall ? H : 10); x += w; }
    c.strokeStyle = ink(isBad ? "failed" : marks.path.has(node.id) ? "accent" : "line");
    c.lineWidth = isBad || marks.path.has(node.id) ? 3 : 1.4;
    c.strokeRect(at.x, at.y, W, H);
    if (!isSmall) { c.fillStyle = ink("ink"); c.fillText(node.name.length > 20 ? node.name.slice(0, 19) + "…" : node.name, at.x + 8, at.y + 21); }
  }
  return c;
}

/** One cell per job; gives the columns. @param {HTMLCanvasElement} canvas @param {[number, number][]} cells @param {number} width @param {number} current */
export function paintCells(canvas, cells, width, current) {
  const columns = Math.max(1, Math.floor(width / CELL));
  const c = fresh(canvas, width, Math.ceil(cells.length / columns) * CELL + 2);
  const ink = inks();
  cells.forEach(([, code], i) => {
    const [x, y] = [(i % columns) * CELL + 1, Math.floor(i / columns) * CELL + 1];
    const status = STATUSES[code];
    c.fillStyle = ink(status);
    c.fillRect(x, y, CELL - 2, CELL - 2);
    // Not by colour alone.
    if (BAD.includes(status)) { c.fillStyle = ink("card"); c.font = `bold ${CELL - 4}px sans-serif`; c.fillText("×", x + 2.5, y + CELL - 4.5); }
    if (i === current) { c.strokeStyle = ink("ink"); c.lineWidth = 2; c.strokeRect(x, y, CELL - 2, CELL - 2); }
  });
  return columns;
}
export const CELL = 15;
