// Lays the cards around it out in full rows, and lets a person move, size and close them. The kernel holds the truth: `plan`.
const TRACKS = 60;                                             // of a row: halves, thirds, quarters, fifths and sixths are whole
const CARD = 500;                                              // pixels that a card of width 1 likes to have, with usual words
const CROWDED = 1.4;                                           // wishes of a row for one of room: narrower, pictures have no room for their words
const STEP = 40, LOWEST = 120, HIGHEST = 1600, WIDEST = 4;     // pixels, pixels, pixels, cards
const PICTURE = ':scope > :is(.rl-grid, [class*="rl-image-"]), :scope > .widget-vbox > [class*="rl-image-"]';
const GRIP = 6;                                                // pixels that the pointer goes before a press becomes a drag

const nameOf = (card) => [...card.classList].find((one) => one.startsWith("rl-view-")).slice(8);
const within = (x, low, high) => Math.min(high, Math.max(low, x));
const titleOf = (card) => card.querySelector(".rl-card-title");
const wordsOf = (card) => titleOf(card)?.firstChild?.textContent.trim() ?? nameOf(card);

// The page's cards, those that are seen, and what the layout says of one
class Cards {
  constructor(root, model) { this.root = root; this.model = model; }
  get views() { return this.root.querySelector(".rl-views"); }
  get all() { return [...this.views.children].filter((one) => one.classList.contains("rl-card")); }
  get seen() { return this.all.filter((card) => !card.classList.contains("rl-away")); }
  get layout() { return this.draft ?? this.model.get("plan"); }
  size(card) {
    const [, width, height] = this.layout.cards.find(([name]) => name === nameOf(card)) ?? [null, 1, 0];
    const told = this.layout.cards.some(([name]) => name === nameOf(card));
    return { width: told ? width : card.classList.contains("rl-wide") && !card.querySelector(".rl-one") ? 2 : 1, height };
  }
  ordered() {                                                  // those that the layout names first, the others behind them
    const names = [...this.layout.cards.map(([name]) => name), ...this.model.get("names")];
    const place = (card) => names.indexOf(nameOf(card));
    const told = new Set(this.layout.cards.map(([name]) => name));
    const cards = this.seen.sort((one, other) => place(one) - place(other));
    return pairedUp(cards, this.room, (card) => this.size(card).width, (card) => told.has(nameOf(card)));
  }
  get room() { return within(this.views.clientWidth / (CARD * (this.layout.size ?? 1)), 1, 8); }
}

// Breaks cards into rows, as lines of a paragraph: so that all rows are about as full, none has to be stretched much.
function breakIntoRows(wishes, room) {
  const cost = [0], from = [0];
  for (let end = 1; end <= wishes.length; end++) {
    cost[end] = Infinity;
    for (let start = end - 1, sum = 0; start >= 0; start--) {
      sum += Math.min(wishes[start], room);
      if (sum > CROWDED * room && start < end - 1) break;
      const tried = cost[start] + Math.log(sum / room) ** 2;
      if (tried < cost[end]) { cost[end] = tried; from[end] = start; }
    }
  }
  const rows = [];
  for (let end = wishes.length; end > 0; end = from[end]) rows.unshift([from[end], end]);
  return { rows, cost: cost[wishes.length] };
}

// A wide card goes before a narrow one, if that gets company in its row by this, and nobody has said where they are to be
function pairedUp(cards, room, width, told) {
  const cost = (order) => breakIntoRows(order.map(width), room).cost;
  for (let i = 1; i < cards.length; i++) {
    if (told(cards[i - 1]) || told(cards[i]) || width(cards[i - 1]) >= width(cards[i])) continue;
    const tried = [...cards.slice(0, i - 1), cards[i], cards[i - 1], ...cards.slice(i + 1)];
    if (cost(tried) < cost(cards) - .2) cards = tried;
  }
  return cards;
}

function put(part, name, value) { if (part.style[name] !== value) part.style[name] = value; }

function placeRow(row, number, sizes) {
  const sum = row.reduce((total, card) => total + sizes.get(card).width, 0);
  let before = 0;
  for (const card of row) {
    const start = Math.round(TRACKS * before / sum);
    before += sizes.get(card).width;
    put(card, "gridColumn", `${start + 1} / ${Math.round(TRACKS * before / sum) + 1}`);
    put(card, "gridRow", `${number + 1}`);
  }
  return Math.max(...row.map((card) => sizes.get(card).height));
}

function inOrder(views, cards) {                               // what comes next for the eye comes next for the keyboard
  const focus = document.activeElement;
  cards.forEach((card, i) => { if (views.children[i] !== card) views.insertBefore(card, views.children[i] ?? null); });
  if (views.contains(focus) && focus !== document.activeElement) focus.focus({ preventScroll: true });
}

function lay(page) {
  const { views } = page;
  const cards = page.ordered();
  const sizes = new Map(cards.map((card) => [card, page.size(card)]));
  const { room } = page;
  if (!page.holding) inOrder(views, cards);                    // a node that moves lets go of the pointer
  const rows = breakIntoRows(cards.map((card) => sizes.get(card).width), room).rows.map(([start, end]) => cards.slice(start, end));
  const heights = rows.map((row, number) => placeRow(row, number, sizes));
  rows.forEach((row, i) => row.forEach((card) => {
    card.classList.toggle("rl-fixed", heights[i] > 0);
    card.classList.toggle("rl-lone", row.length === 1 && rows.length > 1 && 2 * sizes.get(card).width <= CROWDED * room && card.querySelector(PICTURE) !== null);
  }));
  put(views, "gridTemplateRows", heights.map((height) => height ? `${height}px` : "auto").join(" "));
  views.classList.toggle("rl-laid", true);                     // `add` would count as a change each time, and be heard
  page.rows = rows;
  page.root.style.setProperty("--rl-cards", `${views.offsetHeight}px`);     // the side ends where they do
  cards.forEach((card, i) => dress(card, i, cards.length));
  const side = page.root.querySelector(".rl-side");
  if (page.opening && side?.offsetParent) {                    // on a narrow page it is below the cards
    page.opening = false;
    side.scrollIntoView({ block: "nearest" });
  }
  return cards;
}

// ---- what a card needs to be taken by
function part(tag, className, words) {
  const one = document.createElement(tag);
  one.className = className;
  one.type = "button";
  one.setAttribute("aria-label", words);
  one.title = words;
  return one;
}

function dress(card, place, of) {
  const title = titleOf(card);
  if (!title) return;
  const words = wordsOf(card);
  title.tabIndex = 0;
  title.setAttribute("role", "group");
  title.setAttribute("aria-roledescription", "card that can be moved");
  title.setAttribute("aria-keyshortcuts", "Alt+ArrowLeft Alt+ArrowRight");
  title.setAttribute("aria-label", `${words}, place ${place + 1} of ${of}`);
  if (!title.querySelector(".rl-close")) title.append(part("button", "rl-close", `close: ${words}`));
  if (!card.querySelector(":scope > .rl-size")) card.append(part("button", "rl-size", `size of: ${words}; drag it, or use the arrows; Home: as it was`));
}

// ---- motion: cards glide to their places, unless less motion is wanted
function gliding(page, change) {
  const before = new Map(page.seen.map((card) => [card, card.getBoundingClientRect()]));
  change();
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const [card, from] of before) {
    const to = card.getBoundingClientRect();
    const [x, y] = [from.left - to.left, from.top - to.top];
    if (x || y) card.animate([{ transform: `translate(${x}px, ${y}px)` }, { transform: "none" }], { duration: 160, easing: "ease-out" });
  }
}

function announce(page, words) {                               // a place for news of moves, from the first one on
  let place = page.root.querySelector(".rl-moved");
  if (!place) {
    place = document.createElement("div");
    place.className = "rl-moved";
    place.setAttribute("aria-live", "polite");
    page.root.append(place);
  }
  place.textContent = words;
}

// ---- changes of the layout: a draft while something is held, and then word to the kernel
function asDraft(page) {
  const { layout } = page;
  const cards = page.ordered().map((card) => [nameOf(card), page.size(card).width, page.size(card).height]);
  const absent = layout.cards.filter(([name]) => !cards.some(([one]) => one === name));
  page.draft = { ...layout, cards: [...cards, ...absent] };
  return page.draft;
}

function moveTo(page, card, place) {
  const cards = asDraft(page).cards;
  const from = cards.findIndex(([name]) => name === nameOf(card));
  cards.splice(place, 0, ...cards.splice(from, 1));
}

const rowOf = (page, card) => page.rows.find((one) => one.includes(card)).map(nameOf);

function resize(page, card, width, height, row) {              // the other cards of its row give up heights of their own
  for (const one of asDraft(page).cards) {
    const own = one[0] === nameOf(card);
    if (own) one[1] = within(Math.round(2 * width) / 2, .5, WIDEST);
    if (height !== null && row.includes(one[0])) one[2] = own && height ? within(Math.round(height / STEP) * STEP, LOWEST, HIGHEST) : 0;
  }
}

function send(page) {
  const { draft } = page;
  if (!draft) return;
  page.model.set("plan", draft);
  page.model.save_changes();
  page.draft = null;
}

function close(page, card) {
  const draft = asDraft(page);
  draft.away = [...draft.away, nameOf(card)];
  send(page);
  announce(page, `${wordsOf(card)} closed`);
}

// ---- by pointer: mouse, finger or pen
function held(page, event, react, over) {
  const { target, pointerId } = event;
  target.setPointerCapture(pointerId);
  const done = new AbortController();
  page.holding = true;
  const finish = () => { done.abort(); page.holding = false; over(); lay(page); };
  target.addEventListener("pointermove", react, { signal: done.signal });
  for (const kind of ["pointerup", "pointercancel", "lostpointercapture"]) target.addEventListener(kind, finish, { signal: done.signal });
}

function drag(page, card, event) {
  let going = false, last = null;
  const move = (now) => {
    if (!going && Math.hypot(now.clientX - event.clientX, now.clientY - event.clientY) < GRIP) return;
    going = true;
    card.classList.add("rl-dragged");
    const under = document.elementFromPoint(now.clientX, now.clientY)?.closest(".rl-card");
    if (under === last) return;                                // a card that has made way does not come back at once
    last = under;
    if (!under || under === card || !page.seen.includes(under)) return;
    gliding(page, () => { moveTo(page, card, page.ordered().indexOf(under)); lay(page); });
  };
  held(page, event, move, () => {
    card.classList.remove("rl-dragged");
    if (going) { told(page, card); send(page); }
  });
}

function stretch(page, card, event) {
  event.preventDefault();
  const box = card.getBoundingClientRect(), { width } = page.size(card), row = rowOf(page, card);
  held(page, event, (now) => {
    const [x, y] = [now.clientX - event.clientX, now.clientY - event.clientY];
    const height = Math.abs(y) < STEP / 2 ? null : box.height + y;
    resize(page, card, width * (box.width + x) / box.width, height, row);
    lay(page);
  }, () => { told(page, card); send(page); });
}

// ---- by keyboard
const told = (page, card) => {
  const { width, height } = page.size(card), cards = page.ordered();
  announce(page, `${wordsOf(card)}: place ${cards.indexOf(card) + 1} of ${cards.length}, width ${width}${height ? `, height ${height}` : ""}`);
};
const BACK = ["ArrowLeft", "ArrowUp"], ON = ["ArrowRight", "ArrowDown"];

function step(page, card, key) {
  const cards = page.ordered();
  const place = cards.indexOf(card) + (BACK.includes(key) ? -1 : ON.includes(key) ? 1 : 0);
  if (place < 0 || place >= cards.length || place === cards.indexOf(card)) return false;
  gliding(page, () => { moveTo(page, card, place); lay(page); });
  return true;
}

function sizeBy(page, card, key) {
  const { width, height } = page.size(card), tall = height || card.getBoundingClientRect().height;
  const sizes = { ArrowLeft: [width - .5, null], ArrowRight: [width + .5, null], ArrowUp: [width, tall - STEP], ArrowDown: [width, tall + STEP],
    Home: [card.classList.contains("rl-wide") ? 2 : 1, 0] };
  if (!sizes[key]) return false;
  gliding(page, () => { resize(page, card, ...sizes[key], rowOf(page, card)); lay(page); });
  return true;
}

function pressed(page, event) {
  const card = event.target.closest(".rl-views > .rl-card");
  if (!card) return;
  const moved = event.altKey && event.target === titleOf(card) && step(page, card, event.key);
  const sized = !event.altKey && event.target.matches(".rl-size") && sizeBy(page, card, event.key);
  if (!moved && !sized) return;
  event.preventDefault();
  event.stopPropagation();
  told(page, card);
  send(page);
}

// ---- the side
function turnSide(page, button) {
  const open = page.root.querySelector(".rl-side").offsetParent !== null;
  page.draft = { ...page.layout, side: open ? "shut" : "open" };
  button.setAttribute("aria-expanded", String(!open));
  page.opening = !open;
  send(page);
}

// ---- kept for this notebook, in this browser
function storage(act) { try { return act(window.localStorage); } catch { return null; } }   // a frame without storage keeps nothing
const keyOf = (model) => `rlbench ${model.get("notebook") || location.pathname} ${model.get("label")}`;

function bringBack(model) {
  const kept = model.get("fresh") && storage((store) => JSON.parse(store.getItem(keyOf(model))));
  if (!kept) return;
  model.set("brought", kept);
  model.save_changes();
}

function keep(model) {
  const { look, ...layout } = model.get("kept");
  if (look === undefined) storage((store) => store.removeItem(keyOf(model)));
  else storage((store) => store.setItem(keyOf(model), JSON.stringify({ look, ...layout })));
}

function adopt(root, model, signal) {
  const page = new Cards(root, model);
  let asked = false;
  const soon = () => { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; if (root.isConnected && page.views) lay(page); }); } };
  const follow = () => { root.style.setProperty("--rl-size", page.layout.size ?? 1); soon(); };
  const concerns = ({ target }) => [target, target.parentElement].includes(page.views) || target.querySelector(".rl-card-title") || target.classList.contains("rl-table-scroll");
  const seen = new MutationObserver((changes) => { if (changes.some(concerns)) soon(); });   // a picture is none of its business
  seen.observe(page.views, { childList: true, subtree: true, attributes: true, attributeFilter: ["class"] });
  const wide = new ResizeObserver(soon);
  for (const part of root.querySelectorAll(".rl-views, .rl-side")) wide.observe(part);
  const keeping = () => keep(model);
  model.on("change:plan", follow);
  model.on("change:names", soon);
  model.on("change:kept", keeping);
  signal.addEventListener("abort", () => { seen.disconnect(); wide.disconnect(); for (const [name, react] of [["plan", follow], ["names", soon], ["kept", keeping]]) model.off(`change:${name}`, react); });
  root.addEventListener("pointerdown", (event) => {
    const card = event.button === 0 && event.target.closest(".rl-views > .rl-card");
    if (!card) return;
    if (event.target.matches(".rl-size")) stretch(page, card, event);
    else if (event.target.closest(".rl-card-title") && !event.target.closest("button")) drag(page, card, event);
  }, { signal });
  root.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.matches(".rl-close")) close(page, button.closest(".rl-card"));
    if (button?.matches(".rl-side-toggle")) turnSide(page, button);
  }, { signal });
  root.addEventListener("keydown", (event) => pressed(page, event), { signal });
  follow();
  bringBack(model);
}

function render({ model, el, signal }) {
  el.hidden = true;
  const find = (tries) => {                                    // the element, and its neighbours, are attached only after render
    const root = el.closest(".rl-root");
    if (root?.querySelector(".rl-views")) adopt(root, model, signal);
    else if (tries && !signal.aborted) requestAnimationFrame(() => find(tries - 1));
  };
  find(300);
}

export default { render };
