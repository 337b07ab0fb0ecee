// Beats while its page is seen, so that the kernel may look whether something has changed; it waits for an answer before the next beat.
function render({ model, el, signal }) {
  el.classList.add("rl-pulse");
  let seen = false, waits = false;
  const looks = () => {
    const dark = document.body.dataset.jpThemeLight === "false" || document.body.classList.contains("vscode-dark");
    if (model.get("dark") === dark) return;
    model.set({ dark });
    model.save_changes();
  };
  const beat = () => {
    if (!seen || waits || document.hidden || !model.get("on")) return;
    waits = true;
    model.send({ beat: true });
  };
  const answered = () => { waits = false; };
  const watch = new IntersectionObserver((entries) => { seen = entries.at(-1).isIntersecting; });
  const themes = new MutationObserver(looks);
  themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class"] });
  const find = (tries) => {                                    // the element is attached only after render
    const root = el.closest(".rl-root");
    if (root) {
      watch.observe(root);
      root.setAttribute("data-lm-suppress-shortcuts", "true"); // bare letters and arrows are the page's own here
    } else if (tries && !signal.aborted) requestAnimationFrame(() => find(tries - 1));
  };
  const timer = setInterval(beat, 1000 * model.get("every"));
  model.on("change:heard", answered);
  signal.addEventListener("abort", () => {
    clearInterval(timer);
    watch.disconnect();
    themes.disconnect();
    model.off("change:heard", answered);
  });
  find(300);
  looks();
}

export default { render };
