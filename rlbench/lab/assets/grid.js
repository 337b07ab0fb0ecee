// A small world as a grid of cells: colour, number, arrows; or the value of every action as a triangle of its cell.
// The kernel sends `world` once (where states lie) and `frame` whenever something changed (values, best actions).
const WORDS = 11, LEAST = 9;            // pixels on the screen: of a word in a cell, and below which it is left out
const SVG = "http://www.w3.org/2000/svg";
const make = (name, attributes, parent) => {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  parent?.append(node);
  return node;
};
const short = (x) => {                  // as short() in drawing.py
  if (x === null) return "";
  const far = Math.abs(x);
  if (far < .005) return "0.00";
  if (far < 9999.5) return x.toFixed(far < 9.995 ? 2 : far < 99.95 ? 1 : 0);
  return far < 999500 ? `${(x / 1000).toFixed(0)}k` : x.toExponential(0).replace("+", "");
};
const shade = (x, low, high, palette) => x === null ? "var(--rl-empty)"
  : palette[Math.round(Math.min(1, Math.max(0, (x - low) / (high > low ? high - low : 1))) * (palette.length - 1))];
const ink = (hex) => {                                         // black or white, whichever can be read on the colour
  if (hex[0] !== "#") return "var(--rl-ink)";
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  return .3 * r + .59 * g + .11 * b < 140 ? "#fff" : "#000";
};

const ems = (words) => [...words].reduce((sum, sign) => sum + (sign === "-" || sign === "." ? .36 : .64), 0);      // at most

function pointer(x, y, [down, right], size) {                  // outline of an arrow around (x, y)
  const n = Math.hypot(down, right) || 1, d = down / n * size, r = right / n * size, w = .16, h = .5;
  const at = (along, aside) => `${(x + r * along - d * aside).toFixed(1)},${(y + d * along + r * aside).toFixed(1)}`;
  return [at(-1, -w), at(.2, -w), at(.2, -h), at(1, 0), at(.2, h), at(.2, w), at(-1, w)].join(" ");
}

function wedge(x, y, side, [down, right]) {                    // triangle of a square cell on the side an action points to
  const c = [x + side / 2, y + side / 2], corner = (d, r) => [c[0] + r * side / 2, c[1] + d * side / 2];
  const [a, b] = down ? [corner(down, -1), corner(down, 1)] : [corner(-1, right), corner(1, right)];
  return [c, a, b].map((p) => p.map((v) => v.toFixed(1)).join(",")).join(" ");
}

class Grid {
  constructor(model, el) {
    this.model = model;
    el.classList.add("rl-grid");
    this.svg = make("svg", { role: "grid", "aria-label": model.get("label") }, el);
    this.cursor = Math.max(0, model.get("selected"));
    this.zoom = 1;
  }

  measure() {                                                  // pixels on the screen for one of the picture's; is something to be drawn anew?
    const zoom = this.svg.clientWidth / (this.wide + 2);
    if (!zoom || Math.abs(zoom - this.zoom) < .01) return false;
    const before = this.numbered;
    this.zoom = zoom;
    this.svg.style.setProperty("--rl-zoom", zoom.toFixed(2));
    return before !== this.numbered;
  }

  // There is room for the words of all cells, or for those of no cell; they are as large as others, or as the longest allows
  get numbered() { return this.most * this.zoom >= LEAST; }

  fit({ values, q }) {
    const ends = this.world.letters.filter((_, state) => this.world.ends[state]);
    const words = q ? q.map(short) : [...values.map(short), ...ends.map((letter) => letter || "end")];
    this.most = Math.min(this.side * .4, this.side * (q ? .4 : .9) / words.reduce((most, word) => Math.max(most, ems(word)), .64));
    this.svg.style.setProperty("--rl-most", `${this.most.toFixed(1)}px`);
  }

  build() {                                                    // the cells of this world
    const world = this.world = this.model.get("world"), wide = 400;
    this.side = Math.min(wide / world.cols, 330 / world.rows, 96);
    const width = this.side * world.cols, height = this.side * world.rows;
    this.wide = Math.max(width, 150);
    this.svg.setAttribute("viewBox", `-1 -1 ${this.wide + 2} ${height + 30}`);
    this.svg.style.maxWidth = `calc(${this.wide + 2}px * var(--rl-size, 1))`;
    this.measure();
    this.svg.replaceChildren();
    this.cells = [];
    for (let row = 0; row < world.rows; row++) {
      const line = make("g", { role: "row" }, this.svg);
      for (let col = 0; col < world.cols && this.cells.length < world.states; col++) this.cells.push(this.cell(line, row, col));
    }
    this.bar = make("g", { class: "rl-colour-bar", "aria-hidden": true, transform: `translate(0 ${height + 5})` }, this.svg);
    this.told = null;
    this.draw();
  }

  legend({ low, high, palette }) {                             // which colour stands for which number
    const told = [low, high, palette[0]].join();
    if (told === this.told) return;
    this.told = told;
    this.bar.replaceChildren();
    const n = palette.length, wide = Math.min(this.wide, 260), left = (this.wide - wide) / 2;
    palette.forEach((fill, i) => make("rect", { x: left + wide * i / n, y: 0, width: wide / n + .4, height: 7, fill }, this.bar));
    for (const [share, anchor] of low < high ? [[0, "start"], [.5, "middle"], [1, "end"]] : [[.5, "middle"]])
      make("text", { x: left + share * wide, y: 9.5, "dominant-baseline": "hanging", "font-size": 11, fill: "var(--rl-ink)", "text-anchor": anchor }, this.bar).textContent = short(low + share * (high - low));
  }

  cell(line, row, col) {
    const state = row * this.world.cols + col, x = col * this.side, y = row * this.side;
    const group = make("g", { role: "gridcell", tabindex: state === this.cursor ? 0 : -1, class: "rl-cell" }, line);
    const box = make("rect", { x: x + .5, y: y + .5, width: this.side - 1, height: this.side - 1 }, group);
    const inner = make("g", {}, group), frame = make("rect", { x: x + 1.5, y: y + 1.5, width: this.side - 3, height: this.side - 3, class: "rl-frame" }, group);
    group.addEventListener("click", () => this.select(state));
    group.addEventListener("keydown", (event) => this.key(event, state));
    group.addEventListener("pointerdown", (event) => this.grab(event, state));
    return { group, box, inner, frame, x, y };
  }

  key(event, state) {
    const { cols, states } = this.world, moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -cols, ArrowDown: cols };
    if (event.key === "Enter" && event.shiftKey) this.put(state);
    else if (event.key === "Enter") this.select(state);
    else if (event.key in moves) this.focus(Math.min(states - 1, Math.max(0, state + moves[event.key])));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  put(state) { this.model.send({ put: state }); }              // an episode is to begin there

  grab(event, state) {                                         // the agent is dragged to another cell
    if (state !== this.model.get("frame").at || event.button) return;
    event.preventDefault();
    const under = ({ clientX, clientY }) => this.cells.findIndex(({ group }) => group.contains(document.elementFromPoint(clientX, clientY)));
    const mark = (at, on) => this.cells[at]?.frame.classList.toggle("rl-over", on);
    let to = state;
    const over = (move) => { mark(to, false); to = under(move); mark(to, true); };
    const drop = () => {
      for (const [name, what] of handlers) removeEventListener(name, what);
      mark(to, false);
      if (to >= 0 && to !== state) this.put(to);
    };
    const leave = () => { mark(to, false); to = -1; drop(); };
    const handlers = [["pointermove", over], ["pointerup", drop], ["pointercancel", leave]];
    for (const [name, what] of handlers) addEventListener(name, what);
  }

  focus(state) {
    this.cells[this.cursor].group.setAttribute("tabindex", -1);
    this.cursor = state;
    this.cells[state].group.setAttribute("tabindex", 0);
    this.cells[state].group.focus();
  }

  select(state) {
    this.focus(state);
    this.model.set("selected", state);
    this.model.save_changes();
  }

  draw() {
    const frame = this.model.get("frame"), selected = this.model.get("selected");
    if (!this.cells || !frame.values) return;
    this.legend(frame);
    this.fit(frame);
    this.cells.forEach((cell, state) => {
      const open = !this.world.void[state] && !this.world.ends[state];
      cell.inner.replaceChildren();
      cell.frame.setAttribute("class", `rl-frame${state === frame.at ? " rl-at" : ""}${state === selected ? " rl-selected" : ""}`);
      cell.box.setAttribute("fill", open ? shade(frame.values[state], frame.low, frame.high, frame.palette) : "var(--rl-empty)");
      if (open && frame.q) this.wedges(cell, frame, state);
      else this.plain(cell, frame, state, open);
      cell.group.classList.toggle("rl-here", state === frame.at);
      cell.group.setAttribute("aria-label", this.words(frame, state));
    });
  }

  text(cell, x, y, words, fill, strong = false) {
    make("text", { x, y, "font-size": WORDS, fill, "text-anchor": "middle", "dominant-baseline": "central", class: strong ? "rl-best" : "" }, cell.inner).textContent = words;
  }

  plain(cell, frame, state, open) {
    const { side } = this, x = cell.x + side / 2, y = cell.y + side / 2, fill = ink(cell.box.getAttribute("fill"));
    const best = open && frame.best ? this.world.arrows.filter((d, a) => frame.best[state] >> a & 1 && (d[0] || d[1])) : [];
    const words = this.world.ends[state] ? this.world.letters[state] || "end" : open ? short(frame.values[state]) : "";
    const room = words && this.numbered;
    const apart = best.length > 1 ? side * .12 : 0;              // ties start from the middle and go apart
    for (const d of best) make("polygon", { points: pointer(x + d[1] * apart, y + d[0] * apart - (room ? side * .17 : 0), d, side * (apart ? .14 : .2)), fill }, cell.inner);
    if (room) this.text(cell, x, best.length ? y + side * .3 : y, words, fill);
  }

  wedges(cell, frame, state) {
    const { side } = this, n = this.world.arrows.length;
    this.world.arrows.forEach((d, a) => {
      const value = frame.q[state * n + a], fill = shade(value, frame.low, frame.high, frame.palette), best = frame.best?.[state] >> a & 1;
      make("polygon", { points: wedge(cell.x, cell.y, side, d), fill, class: "rl-wedge" }, cell.inner);
      const x = cell.x + side * (.5 + d[1] * .31), y = cell.y + side * (.5 + d[0] * .35);
      if (this.numbered) this.text(cell, x, y, short(value), ink(fill), best);
      else if (best) make("circle", { cx: x, cy: y, r: Math.max(1.5, side * .07), fill: ink(fill) }, cell.inner);
    });
  }

  words(frame, state) {                                        // what a screen reader says of a cell
    const { cols, void: unseen, ends, names, letters } = this.world, where = `row ${Math.floor(state / cols) + 1}, column ${state % cols + 1}`;
    if (unseen[state]) return `${where}: cannot be reached`;
    if (ends[state]) return `${where}: end ${letters[state]}`;
    const best = frame.best ? names.filter((_, a) => frame.best[state] >> a & 1).join(" or ") : "";
    return `${where}: ${short(frame.values[state])}${best ? `, best ${best}` : ""}${state === frame.at ? ", the agent is here" : ""}`;
  }
}

function render({ model, el, signal }) {
  const grid = new Grid(model, el);
  let asked = false;                                           // the newest frame wins; the page draws at its own rate
  const soon = () => { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; grid.draw(); }); } };
  const build = () => grid.build();
  const handlers = [["change:world", build], ["change:frame", soon], ["change:selected", soon]];
  for (const [name, what] of handlers) model.on(name, what);
  const sized = new ResizeObserver(() => { if (grid.measure()) soon(); });
  sized.observe(grid.svg);
  signal.addEventListener("abort", () => { sized.disconnect(); for (const [name, what] of handlers) model.off(name, what); });
  build();
}

export default { render };
