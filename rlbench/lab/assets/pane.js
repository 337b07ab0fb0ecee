// Words or a picture as HTML. What is at rest comes as a trait; what moves comes for many panes in one message, by their keys.
const places = (globalThis.rlbenchPanes ??= new Map());        // key -> the functions that show HTML where a pane is
const receive = (bundle) => {
  for (const [key, html] of Object.entries(bundle)) for (const show of places.get(key) ?? []) show(html);
};

// Nodes that stay where they are cost a page much less than new ones, and a click on one is not lost.
function become(node, next) {
  if (node.nodeType === Node.TEXT_NODE) {
    if (node.data !== next.data) node.data = next.data;
    return;
  }
  for (const { name, value } of next.attributes)
    if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  for (const { name } of [...node.attributes])
    if (!next.hasAttribute(name)) node.removeAttribute(name);
  becomeWithin(node, next);
}

function becomeWithin(place, next) {
  const before = [...place.childNodes], after = [...next.childNodes];    // of `next` some leave for the place
  after.forEach((node, i) => {
    if (before[i]?.nodeName === node.nodeName) become(before[i], node);
    else if (before[i]) before[i].replaceWith(node);
    else place.append(node);
  });
  for (const node of before.slice(after.length)) node.remove();
}

// Words keep their size whatever the size of the picture: how many pixels one of its own has
function measure(el) {
  const picture = el.querySelector(":scope > svg"), box = picture?.viewBox?.baseVal;
  if (!box?.width || !picture.clientWidth) return;
  const zoom = Math.min(picture.clientWidth / box.width, picture.clientHeight / box.height).toFixed(2);
  if (el.style.getPropertyValue("--rl-zoom") !== zoom) el.style.setProperty("--rl-zoom", zoom);
}
const sizes = new ResizeObserver((seen) => { for (const { target } of seen) measure(target); });

function initialize({ model }) {
  model.on("msg:custom", receive);
  return () => model.off("msg:custom", receive);
}

function render({ model, el, signal }) {
  const key = model.get("key");
  const parsed = document.createElement("template");
  let next = "", shown = null, asked = false;
  const paint = () => {
    asked = false;
    if (next === shown || signal.aborted) return;
    shown = parsed.innerHTML = next;
    becomeWithin(el, parsed.content);
    const picture = el.querySelector(":scope > svg, :scope > img"), box = picture?.viewBox?.baseVal;
    if (picture) el.setAttribute("role", "img");
    else el.removeAttribute("role");
    el.style.aspectRatio = box ? `${box.width} / ${box.height}` : "";    // a new picture of the same shape moves nothing around it
    const shaped = el.classList.contains("rl-shaped");
    el.classList.toggle("rl-shaped", Boolean(box));
    if (box && !shaped) sizes.observe(el);
  };
  const show = (html) => {                                     // the newest wins; the page draws at its own rate
    next = html;
    if (!asked) { asked = true; requestAnimationFrame(paint); }
  };
  const rest = () => show(model.get("html"));
  const name = () => {
    if (model.get("label")) el.setAttribute("aria-label", model.get("label"));
  };
  const clicked = (event) => {                                 // where, in the picture's own units
    const frame = model.get("clicks") && el.querySelector(":scope > svg")?.getScreenCTM();
    if (!frame) return;
    const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(frame.inverse());
    model.send({ clicked: [x, y] });
  };
  const offer = () => el.classList.toggle("rl-clicks", model.get("clicks"));
  const reveal = () => el.classList.toggle("rl-gone", model.get("_dom_classes").includes("rl-gone"));
  el.classList.add("rl-pane");
  model.on("change:_dom_classes", reveal);                      // anywidget takes away what ipywidgets listens to
  model.on("change:html", rest);
  model.on("change:label", name);
  model.on("change:clicks", offer);
  el.addEventListener("click", clicked);
  places.set(key, (places.get(key) ?? new Set()).add(show));
  signal.addEventListener("abort", () => {
    sizes.unobserve(el);
    model.off("change:_dom_classes", reveal);
    model.off("change:html", rest);
    model.off("change:label", name);
    model.off("change:clicks", offer);
    el.removeEventListener("click", clicked);
    places.get(key)?.delete(show);
    if (!places.get(key)?.size) places.delete(key);
  });
  next = model.get("html");
  paint();
  name();
  offer();
  reveal();
}

export default { initialize, render };
