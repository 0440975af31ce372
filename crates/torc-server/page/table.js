// A table of any length: fixed rows, few of them in the document, windows fetched as they are seen.
// @ts-check
import { add, h, put } from "./dom.js";

const ROW = 28;
const WINDOW = 100;
const SPARE = 8;

/** @typedef {{key: string, title: string, cls?: string, sort?: string, cell: (row: any) => any}} Column */

export class Table {
  /** @param {{columns: Column[], load: (offset: number, limit: number, sort: string, reverse: boolean) => Promise<{items: any[], total_count: number}>, open: (row: any) => void, label: string, selected?: Set<number>, onSelect?: () => void, empty?: string}} options */
  constructor(options) {
    this.options = options;
    this.total = 0;
    this.sort = "id";
    this.reverse = false;
    /** @type {Map<number, any[]>} */ this.windows = new Map();
    /** @type {Set<number>} */ this.asked = new Set();
    this.current = 0;
    this.version = 0;
    this.drawn = "";
    this.head = h("div.tr.thead", { role: "row" });
    this.space = h("div.tspace", { role: "presentation" });
    this.body = h("div.tbody", { tabindex: "0", role: "rowgroup", onscroll: () => this.draw(), onkeydown: (/** @type {KeyboardEvent} */ e) => this.key(e) }, this.space);
    this.note = h("p.empty", { hidden: true });
    this.inner = h("div.tinner", { role: "table", "aria-label": options.label }, h("div", { role: "rowgroup" }, this.head), this.body);
    this.el = h("div.table", this.inner, this.note);
    this.drawHead();
    new ResizeObserver(() => this.draw()).observe(this.body);
  }

  drawHead() {
    const { columns, selected } = this.options;
    put(this.head, selected && h("span.td.check", { role: "columnheader" }, h("span.sr", "Selected")),
      columns.map((column) => {
        const on = column.sort && this.sort === column.sort;
        const button = column.sort
          ? h("button.plain", { onclick: () => this.order(/** @type {string} */ (column.sort)) }, column.title, on && (this.reverse ? " ▾" : " ▴"))
          : column.title;
        return h("span.td", { class: column.cls || "", role: "columnheader", "aria-sort": on ? (this.reverse ? "descending" : "ascending") : null }, button);
      }));
  }

  order(/** @type {string} */ sort) {
    this.reverse = this.sort === sort ? !this.reverse : false;
    this.sort = sort;
    this.drawHead();
    this.reload(true);
  }

  /** Everything anew; the place stays unless `top`. @param {boolean} [top] */
  async reload(top) {
    const version = ++this.version;
    if (top) this.body.scrollTop = 0;
    const first = Math.floor(this.body.scrollTop / ROW / WINDOW) * WINDOW;
    const page = await this.options.load(first, WINDOW, this.sort, this.reverse);
    if (version !== this.version) return;
    this.windows.clear();
    this.asked.clear();
    this.windows.set(first, page.items);
    this.total = page.total_count;
    this.space.style.height = `${this.total * ROW}px`;
    this.inner.setAttribute("aria-rowcount", String(this.total + 1));
    this.note.hidden = this.total > 0;
    this.note.textContent = this.options.empty || "Nothing here.";
    this.drawn = "";
    this.draw();
  }

  async fetchWindow(/** @type {number} */ start) {
    if (this.asked.has(start)) return;
    this.asked.add(start);
    const version = this.version;
    const page = await this.options.load(start, WINDOW, this.sort, this.reverse);
    if (version !== this.version) return;
    this.windows.set(start, page.items);
    if (this.windows.size > 12) this.windows.delete(/** @type {number} */ (this.windows.keys().next().value));
    this.asked.delete(start);
    this.drawn = "";
    this.draw();
  }

  row(/** @type {number} */ index) {
    const start = Math.floor(index / WINDOW) * WINDOW;
    const rows = this.windows.get(start);
    if (!rows) { this.fetchWindow(start); return null; }
    return rows[index - start] || null;
  }

  draw() {
    const from = Math.max(0, Math.floor(this.body.scrollTop / ROW) - SPARE);
    const until = Math.min(this.total, Math.ceil((this.body.scrollTop + this.body.clientHeight) / ROW) + SPARE, from + 80);
    const key = `${from}-${until}-${this.current}-${this.version}`;
    if (key === this.drawn) return;
    this.drawn = key;
    const rows = [];
    for (let index = from; index < until; index++) rows.push(this.drawRow(index, this.row(index)));
    put(this.space, rows);
  }

  drawRow(/** @type {number} */ index, /** @type {any} */ row) {
    const { columns, selected, open } = this.options;
    const el = h("div.tr", {
      role: "row", "aria-rowindex": String(index + 2), class: index === this.current ? "current" : "",
      style: { top: `${index * ROW}px` },
      onclick: (/** @type {MouseEvent} */ e) => {
        this.current = index;
        if (/** @type {HTMLElement} */ (e.target).closest("a,button,input")) return;
        if (row) open(row);
      },
    });
    if (!row) { add(el, [h("span.td.wait", { role: "cell" }, "…")]); return el; }
    if (selected) {
      add(el, [h("span.td.check", { role: "cell" }, h("input", {
        type: "checkbox", "aria-label": `Select ${row.name}`, checked: selected.has(row.id),
        onchange: () => this.select(row),
      }))]);
    }
    add(el, columns.map((column) => h("span.td", { class: column.cls || "", role: "cell" }, column.cell(row))));
    return el;
  }

  select(/** @type {any} */ row) {
    const { selected, onSelect } = this.options;
    if (!selected || !row) return;
    if (!selected.delete(row.id)) selected.add(row.id);
    if (onSelect) onSelect();
  }

  /** @param {KeyboardEvent} e */
  key(e) {
    const page = Math.max(1, Math.floor(this.body.clientHeight / ROW) - 1);
    /** @type {Record<string, number>} */
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (e.key in steps) {
      this.current = Math.max(0, Math.min(this.total - 1, this.current + steps[e.key]));
      const top = this.current * ROW;
      if (top < this.body.scrollTop) this.body.scrollTop = top;
      if (top + ROW > this.body.scrollTop + this.body.clientHeight) this.body.scrollTop = top + ROW - this.body.clientHeight;
      this.draw();
    } else if (e.key === "Enter") {
      const row = this.row(this.current);
      if (row) this.options.open(row);
    } else if (e.key === "x" && this.options.selected) {
      this.select(this.row(this.current));
      this.drawn = "";
      this.draw();
    } else return;
    e.preventDefault();
    e.stopPropagation();
  }
}
