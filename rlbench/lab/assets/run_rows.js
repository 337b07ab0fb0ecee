// Rows of runs that can be ticked, each with the colour of its line. It follows the parts of table.js, and adds to its Table.
class RunRows extends Table {
  draw() {
    const held = document.activeElement?.dataset?.tick;
    super.draw();
    if (held !== undefined) this.table.querySelector(`[data-tick="${held}"]`)?.focus({ preventScroll: true });
  }

  drawHead(order, down) {                                      // a head and lines that stay have their first cell already
    super.drawHead(order, down);
    const head = this.table.querySelector("thead tr");
    if (head.firstChild && !head.querySelector(".rl-run-tick")) head.prepend(tag("th", undefined, { scope: "col", class: "rl-run-tick" }, "drawn"));
  }

  fill(line, cells, at) {
    line.querySelector(".rl-run-tick")?.remove();
    super.fill(line, cells, at);
    const [ticked, tones] = ["ticked", "tones"].map((name) => this.model.get(name)), id = this.idAt(at);
    line.title = "show this run";
    line.prepend(this.tick(id, ticked.includes(id), tones[at], cells[0]));
  }

  tick(id, on, tone, name) {
    const cell = tag("td", undefined, { role: "gridcell", class: "rl-run-tick" });
    const box = tag("input", cell, { type: "checkbox", "data-tick": id, "aria-label": `draw ${name}`, title: `draw ${name}` });
    box.checked = on;
    for (const kind of ["click", "keydown"]) cell.addEventListener(kind, (event) => event.stopPropagation());
    box.addEventListener("change", () => this.change(id, box.checked));
    tag("i", cell, { style: `background: ${tone}`, "aria-hidden": "true" });
    return cell;
  }

  change(id, on) {
    const others = this.model.get("ticked").filter((one) => one !== id);
    this.ask({ ticked: on ? [...others, id] : others });
  }
}

function render({ model, el, signal }) {
  const table = new RunRows(model, el);
  let asked = false;
  const soon = () => { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; table.draw(); }); } };
  const names = ["rows", "total", "start", "order", "down", "selected", "ticked", "tones"].map((name) => `change:${name}`);
  for (const name of names) model.on(name, soon);
  signal.addEventListener("abort", () => { for (const name of names) model.off(name, soon); });
  table.draw();
}

export default { render };
