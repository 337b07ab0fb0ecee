// Rows of runs that can be ticked, each with the colour of its line. It follows the parts of table.js, and adds to its Table.
class RunRows extends Table {
  draw() {
    const held = document.activeElement?.dataset?.tick;
    super.draw();
    const [ids, ticked, tones, rows] = ["ids", "ticked", "tones", "rows"].map((name) => this.model.get(name));
    const head = this.table.querySelector("thead tr");
    if (head.firstChild) head.prepend(tag("th", undefined, { scope: "col" }, "drawn"));
    this.table.querySelectorAll("tbody tr").forEach((line, at) => {
      line.title = "show this run";
      line.prepend(this.tick(ids[at], ticked.includes(ids[at]), tones[at], rows[at][0]));
    });
    if (held !== undefined) this.table.querySelector(`[data-tick="${held}"]`)?.focus({ preventScroll: true });
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
