// Rows of a buffer, a page at a time. The kernel owns the rows: the page asks by `start`, `order` and `down`, and shows `rows`.
// While a run moves, its pages come with the pictures, in one message for all, by keys (see pane.js).
const places = (globalThis.rlbenchPanes ??= new Map());        // key -> the functions that show what came for it
const tag = (name, parent, attributes = {}, words) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (words !== undefined) node.textContent = words;
  parent?.append(node);
  return node;
};

const put = (node, name, value) => { if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value); };

class Table {
  constructor(model, el) {
    this.model = model;
    el.classList.add("rl-table");
    const bar = tag("div", el, { class: "rl-table-bar" });
    this.orders = Object.fromEntries(Object.entries(model.get("orders")).map(([name, words]) => {
      const button = tag("button", bar, { class: `rl-order-${name}`, type: "button" }, words);
      button.addEventListener("click", () => this.ask({ order: name, down: true, start: 0, draws: model.get("draws") + 1 }));
      return [name, button];
    }));
    this.count = tag("span", bar, { class: "rl-table-count" });
    this.back = this.turner(bar, "‹", "earlier page", -1);
    this.on = this.turner(bar, "›", "later page", 1);
    if (model.get("picks")) this.filterField(el);
    this.table = tag("table", tag("div", el, { class: "rl-table-scroll" }), { role: "grid", "aria-label": model.get("label") });
  }

  filterField(el) {
    const line = tag("div", el, { class: "rl-table-bar" });
    const words = "which rows: an expression such as rew > 0 and age < 1000";
    this.filter = tag("input", line, { type: "search", class: "rl-filter", placeholder: "rew > 0 and age < 1000", title: words, "aria-label": words, spellcheck: "false" });
    this.problem = tag("span", line, { class: "rl-problem" });
    const send = () => {
      const filter = this.filter.value.trim();
      if (filter !== this.model.get("filter")) this.ask({ filter, start: 0, chosen: [] });
    };
    for (const name of ["change", "search"]) this.filter.addEventListener(name, send);
    this.filter.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") send();
    });
  }

  turner(bar, sign, words, pages) {
    const button = tag("button", bar, { type: "button", title: words, "aria-label": words }, sign);
    button.addEventListener("click", () => this.turn(pages));
    return button;
  }

  get(name) { return this.live?.[name] ?? this.model.get(name); }

  ask(changes) {
    this.model.set(changes);
    this.model.save_changes();
  }

  turn(pages) {
    const size = this.model.get("size"), last = Math.max(0, this.get("total") - 1);
    const start = this.model.get("start") + pages * size;
    if (start >= 0 && start <= last) this.ask({ start });
  }

  draw() {
    const get = (name) => this.get(name), [order, total, start, rows] = ["order", "total", "start", "rows"].map(get);
    const held = this.table.contains(document.activeElement) ? document.activeElement.dataset.at : undefined;
    for (const [name, button] of Object.entries(this.orders)) button.setAttribute("aria-pressed", name === order);
    if (this.filter) {
      if (document.activeElement !== this.filter) this.filter.value = get("filter");
      this.problem.role = get("problem") ? "alert" : null;
      this.problem.textContent = get("problem");
    }
    const none = this.filter && get("filter") ? "none" : "empty so far";
    this.count.textContent = total ? `${(start + 1).toLocaleString("en")}–${(start + rows.length).toLocaleString("en")} of ${total.toLocaleString("en")}` : none;
    this.back.disabled = start === 0;
    this.on.disabled = start + rows.length >= total;
    this.table.parentElement.classList.toggle("rl-one", !this.filter && total === 1);      // one row stands upright
    this.drawHead(order, get("down"));
    this.fit(rows.length, rows[0]?.length ?? 0);
    rows.forEach((row, at) => this.fill(this.body.children[at], row, at));
    if (held !== undefined) this.table.querySelector(`[data-at="${held}"]`)?.focus({ preventScroll: true });
  }

  drawHead(order, down) {                                      // built anew only where it reads otherwise
    const columns = this.get("columns"), now = JSON.stringify([columns, order, down]);
    if (now !== this.shown) {
      this.shown = now;
      this.table.replaceChildren();
      const line = tag("tr", tag("thead", this.table));
      if (this.filter) this.boxAll(line);
      columns.forEach((name, at) => this.head(line, name, order, down, `head ${at}`));
      this.body = tag("tbody", this.table);
    }
    const ids = this.get("ids"), chosen = this.model.get("chosen");
    if (this.all) this.all.checked = ids.length > 0 && ids.every((id) => chosen.includes(id));
  }

  fit(rows, cells) {                                           // as many lines as there are rows, of as many cells
    if (this.cells !== cells) this.body.replaceChildren();
    this.cells = cells;
    while (this.body.children.length > rows) this.body.lastChild.remove();
    while (this.body.children.length < rows) this.line(this.body.children.length, cells);
  }

  head(line, name, order, down, at) {
    const cell = tag("th", line, { role: "columnheader", "aria-sort": order !== name ? "none" : down ? "descending" : "ascending" });
    const button = tag("button", cell, { type: "button", title: `sort by ${name}`, "data-at": at }, `${name}${order !== name ? "" : down ? " ▾" : " ▴"}`);
    button.addEventListener("click", () => this.ask({ order: name, down: order === name ? !down : true, start: 0 }));
  }

  line(at, cells) {
    const line = tag("tr", this.body, { tabindex: at === 0 ? 0 : -1, "data-at": at, title: "open this transition" });
    if (this.filter) this.box(line, at);
    for (let i = 0; i < cells; i++) tag("td", line, { role: "gridcell" }, "");
    line.addEventListener("click", () => this.open(this.idAt(at)));
    line.addEventListener("keydown", (event) => this.key(event, line, this.idAt(at), at));
  }

  idAt(at) { return this.get("ids")[at]; }

  fill(line, cells, at) {
    const id = this.idAt(at), places = [...line.children].slice(this.filter ? 1 : 0);
    put(line, "data-id", id);
    put(line, "aria-selected", id === this.model.get("selected"));
    cells.forEach((words, i) => { if (places[i].textContent !== words) places[i].textContent = words; });
    if (!this.filter) return;
    const box = line.querySelector("input");
    put(box, "aria-label", `choose row ${id}`);
    box.checked = this.model.get("chosen").includes(id);
  }

  boxAll(line) {
    const box = this.all = tag("input", tag("th", line, { role: "columnheader", class: "rl-pick" }), { type: "checkbox", "data-at": "box all", "aria-label": "choose all rows of this page", title: "choose all rows of this page" });
    box.addEventListener("change", () => this.choose(this.get("ids"), box.checked));
  }

  box(line, at) {
    const cell = tag("td", line, { role: "gridcell", class: "rl-pick" });
    const box = tag("input", cell, { type: "checkbox", tabindex: -1, "data-at": `box ${at}`, title: "choose this row; with shift all from the last one" });
    cell.addEventListener("click", (event) => {
      event.stopPropagation();
      this.pick(at, event.shiftKey);
    });
  }

  pick(at, more) {
    const ids = this.get("ids"), from = more && this.anchor !== undefined ? this.anchor : at;
    this.choose(ids.slice(Math.min(from, at), Math.max(from, at) + 1), !this.model.get("chosen").includes(ids[at]));
    this.anchor = at;
  }

  choose(ids, on) {
    const others = this.model.get("chosen").filter((id) => !ids.includes(id));
    this.ask({ chosen: on ? [...others, ...ids] : others });
  }

  open(id) { this.ask({ selected: id, opened: this.model.get("opened") + 1 }); }

  key(event, line, id, at) {
    const go = { ArrowUp: () => line.previousSibling?.focus(), ArrowDown: () => line.nextSibling?.focus(), Enter: () => this.open(id), " ": this.filter && (() => this.pick(at, event.shiftKey)),
      PageUp: () => this.turn(-1), PageDown: () => this.turn(1) }[event.key];
    if (!go) return;
    event.preventDefault();
    event.stopPropagation();
    go();
  }
}

function render({ model, el, signal }) {
  const table = new Table(model, el);
  let asked = false;
  const soon = () => { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; table.draw(); }); } };
  const key = model.get("key"), show = (page) => { table.live = page; soon(); };
  const rest = () => show(null), told = (bundle) => { if (bundle[key]) show(bundle[key]); };
  const names = ["start", "order", "down", "selected", "chosen", "filter", "problem"].map((name) => `change:${name}`);
  const heard = [...names.map((name) => [name, soon]), ["change:rows", rest], ["change:ids", rest], ["change:total", rest], ["msg:custom", told]];
  for (const [name, react] of heard) model.on(name, react);
  places.set(key, (places.get(key) ?? new Set()).add(show));
  signal.addEventListener("abort", () => {
    for (const [name, react] of heard) model.off(name, react);
    places.get(key)?.delete(show);
    if (!places.get(key)?.size) places.delete(key);
  });
  table.draw();
}

export default { render };
