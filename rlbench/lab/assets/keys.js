// Makes the workbench around it a place for the keyboard, and tells the kernel what the page looks like.
const KEYS = { " ": "play", n: "event", s: "step", u: "update", e: "episode", i: "iteration", r: "reset" };
const TYPING = "input:not([type=range]), textarea, select, [contenteditable=true], [contenteditable='']";

function looks() {
  const dark = document.body.dataset.jpThemeLight === "false" || document.body.classList.contains("vscode-dark");
  return { dark, still: matchMedia("(prefers-reduced-motion: reduce)").matches };
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest(TYPING)) return null;
  if (event.key === " " && event.target.closest("button, [role=gridcell], [role=slider], [type=range]")) return null;   // the button's own key
  return KEYS[event.key] ?? null;
}

function ofHand(event, taking) {                               // keys of whoever has taken over: one press is one step
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest(TYPING)) return null;
  if (event.key.startsWith("Arrow") && event.target.closest("[role=slider], [type=range]")) return null;
  return taking.includes(event.key) ? event.key : null;
}

// What ipywidgets leaves out: tooltips where they are looked for, names for what has no label.
const set = (part, name, words) => { if (words && part.getAttribute(name) !== words) part.setAttribute(name, words); };

function nameParts(box, words) {
  for (const part of [box, ...box.querySelectorAll("label, input, select, .noUi-handle")]) {
    set(part, "title", words);
    const labelled = [...part.labels ?? []].some((label) => label.textContent.trim());
    if (part !== box && part.localName !== "label" && !labelled) set(part, "aria-label", words);
  }
}

const SLIDER = ".widget-hslider, .widget-vslider, .widget-slider";
function nameHandle(handle) {                                   // of a slider: its own label, where no tip has named it
  const box = handle.closest(SLIDER) ?? handle.parentElement;
  if (!handle.getAttribute("aria-label")) set(handle, "aria-label", box.querySelector(".widget-label")?.textContent);
  set(handle, "aria-valuetext", box.querySelector(".widget-readout")?.textContent);
}

function nameAll(root, model) {
  for (const [name, words] of Object.entries(model.get("tips")))
    for (const box of root.querySelectorAll(`:is(.jupyter-widgets, .widget-inline-hbox).${CSS.escape(name)}`)) nameParts(box, words);
  for (const handle of root.querySelectorAll(".noUi-handle")) nameHandle(handle);
}

const CONTROL = ".jupyter-widgets, .noUi-handle, input, select";
const isControl = (node) => node.nodeType === 1 && !node.closest(".rl-table") && (node.matches(CONTROL) || node.querySelector(CONTROL));

function keepNamed(root, model, signal) {
  let asked = false;
  const soon = () => { if (!asked) { asked = true; setTimeout(() => { asked = false; nameAll(root, model); }, 100); } };
  const watch = new MutationObserver((changes) => {             // pictures and words change all the time, and have no names
    if (changes.some(({ addedNodes }) => [...addedNodes].some(isControl))) soon();
    for (const { target } of changes)
      if (target.matches(".widget-readout")) target.closest(SLIDER)?.querySelectorAll(".noUi-handle").forEach(nameHandle);
  });
  watch.observe(root, { childList: true, subtree: true });
  model.on("change:tips", soon);
  signal.addEventListener("abort", () => { watch.disconnect(); model.off("change:tips", soon); });
  soon();
}

function adopt(root, model, signal) {
  keepNamed(root, model, signal);
  root.tabIndex = 0;
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", model.get("label"));
  root.setAttribute("data-lm-suppress-shortcuts", "true");     // else JupyterLab takes bare letters: r makes a cell raw
  root.addEventListener("keydown", (event) => {
    const hand = ofHand(event, model.get("taking")), what = hand ?? pressed(event);
    if (what === null) return;
    event.preventDefault();
    event.stopPropagation();
    if (hand === null) model.send({ pressed: what });
    else if (!event.repeat) model.send({ hand });
  }, { signal });
  for (const kind of ["pointerdown", "click"])                 // words are written anew all the time: a click may lose its button halfway
    root.addEventListener(kind, (event) => {
      const number = event.target.closest("button.rl-number");
      if (number && (kind === "pointerdown" || event.detail === 0)) model.send({ number: number.textContent });
    }, { signal });
  root.addEventListener("click", (event) => {                  // a mouse click on a button must not take the keys away: Space would press it again
    if (event.detail > 0 && event.target.closest("button.jupyter-button")) root.focus({ preventScroll: true });
  }, { signal });
}

function mourn(root, signal) {                                 // the kernel is gone, and the page would look alive
  const note = document.createElement("div");
  note.className = "rl-dead";
  note.setAttribute("role", "alert");
  const tell = () => {
    if (!root.classList.contains("jupyter-widgets-disconnected")) return note.remove();
    if (note.isConnected) return;
    note.textContent = "Dead: the kernel of this page was restarted or has ended. Run the cell again.";
    root.prepend(note);
  };
  const change = new MutationObserver(tell);
  change.observe(root, { attributes: true, attributeFilter: ["class"] });
  signal.addEventListener("abort", () => change.disconnect());
  tell();
}

function render({ model, el, signal }) {
  el.classList.add("rl-keys");
  el.innerHTML = "<kbd>Space</kbd> play or pause <kbd>n</kbd> event <kbd>s</kbd> step <kbd>u</kbd> update <kbd>e</kbd> episode <kbd>i</kbd> iteration <kbd>r</kbd> reset";
  const tell = () => {
    const now = looks();
    if (model.get("dark") === now.dark && model.get("still") === now.still) return;
    model.set(now);
    model.save_changes();
  };
  const themes = new MutationObserver(tell);
  themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class"] });
  signal.addEventListener("abort", () => themes.disconnect());
  const find = (tries) => {                                    // the element is attached only after render
    const root = el.closest(".rl-root");
    if (root) { adopt(root, model, signal); mourn(root, signal); }
    else if (tries && !signal.aborted) requestAnimationFrame(() => find(tries - 1));
  };
  find(300);
  tell();
}

export default { render };
