// The graph: families first, the neighbourhood of a job, the critical path. Places come from the server.
// @ts-check
import { get, REPORT } from "./api.js";
import { download, h, put, s } from "./dom.js";
import { BAD, BAR_ORDER, badge, count, num, quote } from "./format.js";

const [W, H, GX, GY] = [168, 52, 28, 62];

/** @param {import("./app.js").Place} place */
export async function graph(place) {
  const id = place.workflow;
  const focus = place.params.get("focus");
  const view = await get(`/workflows/${id}/graph`, focus ? { focus, hops: place.params.get("hops") || 2 } : {});
  const path = REPORT ? [] : (await get(`/workflows/${id}/critical_path`).catch(() => ({ jobs: [] }))).jobs;
  const onPath = new Set(focus ? path.map((/** @type {any} */ one) => one.job_id) : []);
  const picture = draw(view, onPath);
  const box = h("div.graph", { tabindex: "0", role: "group", "aria-label": "Graph; the table below says the same" }, picture);
  let scale = 1;
  const size = picture.getAttribute("viewBox")?.split(" ").map(Number) || [0, 0, 100, 100];
  function zoom(/** @type {number} */ by) {
    const before = { x: (box.scrollLeft + box.clientWidth / 2) / scale, y: (box.scrollTop + box.clientHeight / 2) / scale };
    scale = Math.max(0.1, Math.min(3, scale * by));
    picture.style.width = `${size[2] * scale}px`;
    picture.style.height = `${size[3] * scale}px`;
    box.scrollLeft = before.x * scale - box.clientWidth / 2;
    box.scrollTop = before.y * scale - box.clientHeight / 2;
  }
  box.addEventListener("wheel", (e) => { if (e.ctrlKey || e.metaKey) { e.preventDefault(); zoom(e.deltaY > 0 ? 1 / 1.15 : 1.15); } }, { passive: false });
  put(place.main, h("div.row", null, h("h1", null, focus ? "Around one job" : "Graph"),
    h("span.quiet", null, `${num(view.nodes.length)} ${focus ? "jobs" : view.nodes.length === 1 ? "family" : "families"}${view.left_out ? `, ${num(view.left_out)} more left out` : ""}`),
    focus ? place.link(`w/${id}/graph`, "All families") : null,
    h("span.push.row", null, h("button.small", { type: "button", "aria-label": "Zoom out", onclick: () => zoom(1 / 1.25) }, "−"), h("button.small", { type: "button", "aria-label": "Zoom in", onclick: () => zoom(1.25) }, "+"),
      h("button.small", { type: "button", onclick: () => zoom(Math.min(1, (box.clientWidth - 4) / size[2]) / scale) }, "Fit"),
      h("button.small", { type: "button", onclick: () => download(`graph_wf${id}.dot`, dot(view), "text/vnd.graphviz") }, "DOT"),
      h("button.small", { type: "button", onclick: () => download(`graph_wf${id}.mmd`, mermaid(view), "text/plain") }, "Mermaid"))),
    box, asTable(view));
  zoom(Math.min(1, Math.max(0.3, (box.clientWidth - 4) / size[2])));
  picture.addEventListener("click", (e) => open(e.target));
  picture.addEventListener("keydown", (e) => { if (e.key === "Enter") open(e.target); });

  /** @param {any} target */
  function open(target) {
    const node = target.closest && target.closest("[data-id]");
    if (!node) return;
    const found = view.nodes.find((/** @type {any} */ one) => String(one.id) === node.dataset.id);
    place.go(view.group === "family" ? `w/${id}/jobs?where=${encodeURIComponent("family:" + quote(found.name))}` : `j/${found.id}`);
  }

  /** @param {any} shown */
  function asTable(shown) {
    const names = new Map(shown.nodes.map((/** @type {any} */ node) => [node.id, node.name]));
    const list = (/** @type {number[]} */ ids) => ids.slice(0, 8).map((one) => names.get(one)).join(", ") + (ids.length > 8 ? ` and ${num(ids.length - 8)} more` : "");
    return h("details", null, h("summary", null, "As a table"), h("div.scroll", null, h("table.grid", null,
      h("thead", null, h("tr", null, ["Name", "Jobs", "Depends on", "Needed by"].map((t) => h("th", { scope: "col" }, t)))),
      h("tbody", null, shown.nodes.slice(0, 300).map((/** @type {any} */ node) => h("tr", null,
        h("th", { scope: "row" }, node.name), h("td", null, shown.group === "job" ? badge(Object.keys(node.counts)[0]) : count(node.total, "job")),
        h("td", null, list(shown.edges.filter((/** @type {any} */ e) => e.to === node.id).map((/** @type {any} */ e) => e.from)) || "–"),
        h("td", null, list(shown.edges.filter((/** @type {any} */ e) => e.from === node.id).map((/** @type {any} */ e) => e.to)) || "–")))))));
  }
}

/** @param {any} view @param {Set<number>} onPath */
function draw(view, onPath) {
  const left = Math.min(0, ...view.nodes.map((/** @type {any} */ n) => n.across));
  const place = (/** @type {any} */ node) => ({ x: (node.across - left) * (W + GX) + 8, y: node.rank * (H + GY) + 8 });
  const places = new Map(view.nodes.map((/** @type {any} */ node) => [node.id, place(node)]));
  const spots = [...places.values()];
  const width = Math.max(W, ...spots.map((p) => p.x + W)) + 8;
  const height = Math.max(H, ...spots.map((p) => p.y + H)) + 8;
  const blocked = new Set();
  const bad = view.nodes.filter((/** @type {any} */ node) => BAD.some((status) => node.counts[status])).map((/** @type {any} */ node) => node.id);
  for (const one of bad) for (let open = [one]; open.length;) { const now = open.pop(); for (const e of view.edges) if (e.from === now && !blocked.has(e.to)) { blocked.add(e.to); open.push(e.to); } }
  return s("svg.graphsvg", { viewBox: `0 0 ${width} ${height}` },
    view.edges.map((/** @type {any} */ e) => edge(places.get(e.from), places.get(e.to), e, onPath.has(e.from) && onPath.has(e.to))),
    view.nodes.map((/** @type {any} */ node) => box(node, places.get(node.id), blocked.has(node.id), onPath.has(node.id))));
}

/** @param {any} a @param {any} b @param {any} e @param {boolean} isPath */
function edge(a, b, e, isPath) {
  const [x1, y1, x2, y2] = [a.x + W / 2, a.y + H, b.x + W / 2, b.y];
  const bend = Math.max(24, (y2 - y1) / 2);
  const label = e.kind !== "1:1" || e.count > 1 ? `${e.kind}` : "";
  return s("g.edge", { class: isPath ? "critical" : "" }, s("path", { d: `M${x1},${y1} C${x1},${y1 + bend} ${x2},${y2 - bend} ${x2},${y2}` }), s("path.arrow", { d: `M${x2 - 4},${y2 - 7} L${x2},${y2} L${x2 + 4},${y2 - 7}` }),
    label && e.count > 1 ? s("text", { x: (x1 + x2) / 2 + 4, y: (y1 + y2) / 2 }, label) : null);
}

/** @param {any} node @param {any} at @param {boolean} isBlocked @param {boolean} isPath */
function box(node, at, isBlocked, isPath) {
  const failed = BAD.reduce((sum, status) => sum + (node.counts[status] || 0), 0);
  const parts = BAR_ORDER.filter((status) => node.counts[status]);
  let x = at.x + 10;
  const name = node.name.length > 21 ? node.name.slice(0, 20) + "…" : node.name;
  const said = `${node.name}: ${parts.map((p) => `${num(node.counts[p])} ${p}`).join(", ")}`;
  return s("g.node", { tabindex: "0", role: "link", "data-id": node.id, "aria-label": said, class: `${failed ? "failed" : ""} ${isBlocked ? "blocked" : ""} ${isPath ? "critical" : ""}` },
    s("title", null, said), s("rect.frame", { x: at.x, y: at.y, width: W, height: H, rx: 7 }),
    s("text.name", { x: at.x + 10, y: at.y + 20 }, name),
    node.total > 1 ? s("text.total", { x: at.x + W - 10, y: at.y + 20, "text-anchor": "end" }, failed ? `✕ ${num(failed)} / ${num(node.total)}` : num(node.total)) : null,
    parts.map((status) => { const w = Math.max(2, (node.counts[status] / node.total) * (W - 20)); const part = s("rect", { class: "svg-" + status, x, y: at.y + 32, width: w, height: 10 }); x += w; return part; }));
}

/** @param {string} text */
const quoted = (text) => JSON.stringify(text);

/** @param {any} view */
function dot(view) {
  return `digraph workflow {\n  node [shape=box];\n${view.nodes.map((/** @type {any} */ n) => `  n${n.id} [label=${quoted(`${n.name} (${n.total})`)}];`).join("\n")}\n${view.edges.map((/** @type {any} */ e) => `  n${e.from} -> n${e.to} [label=${quoted(e.kind)}];`).join("\n")}\n}\n`;
}

/** @param {any} view */
function mermaid(view) {
  return `flowchart TD\n${view.nodes.map((/** @type {any} */ n) => `  n${n.id}[${quoted(n.name)}]`).join("\n")}\n${view.edges.map((/** @type {any} */ e) => `  n${e.from} --> n${e.to}`).join("\n")}\n`;
}
