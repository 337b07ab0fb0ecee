// A slider for each number of a state. One that is held tells where it is, ten times a second at most and the newest last; one that is let go tells where it is left.
const PAUSE = 100;                                             // milliseconds
const MOVES = /^(Arrow|Page|Home|End)/;

function render({ model, el, signal }) {
  let held = null, waits = null, timer = 0;                    // which slider is held; where it is, not told yet
  const tell = () => {
    timer = 0;
    if (!waits) return;
    model.send({ held: waits });
    waits = null;
    timer = setTimeout(tell, PAUSE);
  };
  const forget = () => {
    clearTimeout(timer);
    held = waits = null;
    timer = 0;
  };
  const lines = model.get("parts").map(([name, low, high], i) => {
    const line = document.createElement("label");
    const said = document.createElement("b"), input = document.createElement("input");
    Object.assign(input, { type: "range", min: low, max: high, step: (high - low) / 400 });
    line.title = model.get("tip");
    input.setAttribute("aria-label", name);
    line.append(name, said, input);
    const show = (x) => {
      input.value = x;                                         // no farther than its ends
      said.textContent = x.toFixed(3);
      input.setAttribute("aria-valuetext", said.textContent);
    };
    input.addEventListener("input", () => {
      held = i;
      waits = [i, input.valueAsNumber];
      said.textContent = input.valueAsNumber.toFixed(3);
      if (!timer) tell();
    });
    input.addEventListener("keydown", (event) => {             // its own keys are nobody else's, not JupyterLab's either
      if (MOVES.test(event.key)) event.stopPropagation();
    });
    input.addEventListener("change", () => {
      forget();
      model.send({ put: [i, input.valueAsNumber] });
    });
    input.addEventListener("pointerup", () => setTimeout(() => {
      if (held !== i) return;                                  // it is back where it was: nothing has changed
      forget();
      model.send({ held: null });
      follow();
    }, PAUSE));
    el.append(line);
    return show;
  });
  const follow = () => model.get("state").forEach((x, i) => { if (i !== held) lines[i](x); });
  el.classList.add("rl-sliders");
  model.on("change:state", follow);
  signal.addEventListener("abort", () => {
    forget();
    model.off("change:state", follow);
  });
  follow();
}

export default { render };
