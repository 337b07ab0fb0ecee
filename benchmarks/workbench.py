"""What watching costs: steps a second of a plain run against playing with all views open, in turn, in a real kernel.

python benchmarks/workbench.py                         PPO on CartPole-v1
python benchmarks/workbench.py --browser [--write]     with the page open in JupyterLab and Chromium, and click to
                                                       visible change; kept in results/workbench.md
python benchmarks/workbench.py --env FrozenLake-v1 --algo qlearning
"""
import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


BREAKPOINTS = ("nan", "kl > 1e9", "episode_return > 1e9")     # none of them is ever hit


def costs(trainer):
    "Seconds that a step and an update have cost a trainer so far"
    spent = {path: seconds for path, (seconds, _) in trainer.timers.totals.items()}
    learned = spent.get(("learn",), 0) + spent.get(("process",), 0)
    return spent["collect",] / trainer.steps, learned / max(1, trainer.updates)


def measured(advance, trainer, seconds, worth):
    """What is done in some seconds: steps, and work, where a step and an update are worth what they cost; seconds by
    the clock and of the processor, and (begin, end)"""
    begun, used = time.time(), time.process_time()
    before = trainer.steps, trainer.updates
    advance(seconds)
    after = trainer.steps, trainer.updates
    ended, cpu = time.time(), time.process_time() - used
    steps, updates = np.subtract(after, before).tolist()
    work = steps * worth[0] + updates * worth[1]
    return dict(steps=steps, work=work, clock=ended - begun, cpu=cpu, span=(begun, ended))


def plain(trainer, seconds):
    "Advance by trainer.run, and stop anywhere, as playing does: at the end of a rollout more steps would be counted"
    end = time.perf_counter() + seconds
    trainer.run(steps=10**9, stop=lambda: time.perf_counter() > end)


def played(wb, seconds, worth):
    "Work while playing, after the first pictures, and how often each view was drawn"
    drawn = Counter()
    draw = wb.page.draw

    def counted(card, *rest):
        draw(card, *rest)
        drawn[card.view.name] += 1

    wb.page.draw = counted
    wb.play()
    time.sleep(.3)
    drawn.clear()
    found = measured(time.sleep, wb.trainer, seconds, worth) | dict(drawn=dict(drawn))
    wb.pause()
    del wb.page.draw
    wait_for_rest(wb)
    return found


def wait_for_rest(wb):
    "The picture for the file is drawn at rest: not at the expense of what follows"
    while wb.page.unkept:
        time.sleep(.05)
    wb.player.look(lambda trainer: None).result()        # it has begun by then, and who works for the page is busy


def show_views(wb, on):
    "Put all views on the page, or take all away, and wait until that is done"
    names = [card.view.name for card in wb.page.cards]
    (wb.show if on else wb.hide)(*names)
    time.sleep(.3)
    wait_for_rest(wb)


def set_breakpoints(wb, on):
    "All of BREAKPOINTS, or none"
    wb.unbreak()
    for condition in BREAKPOINTS if on else (): wb.break_when(condition)


def compare(wb, rounds, seconds, progress=print):
    """trainer.run, then playing: with three breakpoints and all views, without views, and with no breakpoint either;
    run in a kernel"""
    set_breakpoints(wb, True)
    alone = wb.trainer.fresh()
    plain(alone, 3)                                  # warm up
    worth = costs(alone)
    played(wb, 1, worth)

    def run_alone(place):
        "From where the other one is: episodes get longer as it learns, and long ones cost less"
        alone.restore(place)
        return measured(lambda seconds: plain(alone, seconds), alone, seconds, worth)

    def pair(name, alone_first):
        "Both from one place; each is first in every second round, so that it cancels out if the machine gets slower"
        place = wb.trainer.snapshot()
        ways = {f"{name}_alone": partial(run_alone, place), name: partial(played, wb, seconds, worth)}
        return {way: ways[way]() for way in (ways if alone_first else reversed(ways))}

    rows = []
    for turn in range(rounds):
        alone_first = turn % 2 == 0
        row = pair("open", alone_first)
        show_views(wb, False)
        row |= pair("shut", alone_first)
        set_breakpoints(wb, False)
        row |= pair("calm", alone_first)
        set_breakpoints(wb, True)
        show_views(wb, True)
        rows.append(row)
        progress(json.dumps(row))
    return rows


CELL = """import sys; sys.path.insert(0, {root!r})
from benchmarks.workbench import answers, compare
import rlbench
wb = rlbench.Workbench({env!r}, {algo!r}, seed=0)
display(wb)"""
MEASURE = "rows = compare(wb, {rounds}, {seconds})"


def in_kernel(args):
    "Without a page: the kernel draws, encodes and sends"
    made = CELL.format(root=str(ROOT), env=args.env, algo=args.algo)
    measured = MEASURE.format(rounds=args.rounds, seconds=args.seconds)
    notebook = new_notebook(cells=[new_code_cell(made), new_code_cell(measured)])
    with tempfile.TemporaryDirectory() as folder:
        place = dict(metadata=dict(path=folder))
        done = NotebookClient(notebook, timeout=900, store_widget_state=False, resources=place).execute()
    return printed(done.cells[1].outputs)


# How soon every control is answered, in the kernel's time: the first word on the page about it. A field and a switch of
# views speak for themselves, and count as answered when the trainer has the value, or the page its cards.

PLAYED = (("CartPole-v1", "ppo"), ("CartPole-v1", "dqn"), ("FrozenLake-v1", "qlearning"), ("Pendulum-v1", "sac"))
BUTTONS = ("play", "pause", "reset", "step-event", "step-step", "step-update", "step-episode", "step-iteration",
           "learn", "save", "load")
CONTROLS = (*BUTTONS, "speed", "collecting", "learning", "a setting", "show-curve")


class Stopwatch:
    "Seconds from a use of a control to the first word about it"
    def __init__(self, page):
        self.said = threading.Event()
        words = [page.status.widget, page.heard, page.complaint.widget, page.files.said]
        words += [field.problem for panel in page.settings for field in panel.fields]
        for widget in words:
            widget.observe(self.hear, "value")
        page.arrangement.board.observe(self.hear, "plan")

    def hear(self, change):
        self.said.set()

    def time(self, use, done=lambda: False):
        self.said.clear()
        begun = time.perf_counter()
        use()
        while not (self.said.is_set() or done()):
            if time.perf_counter() - begun > 10: break
            time.sleep(.0002)
        return time.perf_counter() - begun


def use_of(wb, name, turn):
    "(function that uses a control as the page would, function that tells whether it has come about)"
    from rlbench.lab.pictures.components import as_page
    from tests.test_workbench import part

    if name == "a setting":
        gamma = round(.9 + turn / 1000, 4)
        use = partial(as_page, part(wb, "hp-gamma"), value=str(gamma))
        return use, lambda: wb.trainer.learner.algo.gamma == gamma
    control = part(wb, name)
    if name in BUTTONS:
        return control.click, lambda: False
    if name == "speed":
        return partial(as_page, control, index=5 if control.index == 4 else 4), lambda: False
    value = not control.value
    return partial(as_page, control, value=value), lambda: getattr(wb.trainer, name, None) is value


def brought_to(wb, state, name):
    "The workbench where a control is to be used: at rest, playing, or just after a reset"
    from tests.test_workbench import part
    wb.pause()
    wb.switch(True, True).speed()
    if not wb.trainer.steps: wb.step("update", 5)
    if name == "pause" or state == "playing" and name != "play": wb.play()
    time.sleep(.4)
    if state == "after a reset":
        part(wb, "reset").click()
        while wb.trainer.steps:
            time.sleep(.0005)                           # then it is another trainer, and what follows is drawing


def answers(wb, states, rounds, progress=print):
    "Seconds to an answer of every control in every state; run in a kernel, with a page open"
    from tests.test_workbench import part
    watch = Stopwatch(wb.page)
    part(wb, "path").value = str(Path(tempfile.mkdtemp()) / "run.rlb")
    wb.step("update", 20).save(part(wb, "path").value)
    for state in states:
        for turn, name in enumerate(CONTROLS * rounds):
            brought_to(wb, state, name)
            took = watch.time(*use_of(wb, name, turn))
            progress(json.dumps(dict(name=name, state=state, ms=1000 * took)))
    wb.pause()


ANSWERS = "answers(wb, {states}, {rounds})"


def all_answers(args):
    "{column: {control: [ms, …]}}, with the page open in Chromium"
    found = {}
    for env, algo in PLAYED:
        states = ["at rest", "after a reset", "playing"] if algo == "ppo" else ["playing"]
        with open_lab(env, algo) as lab:
            rows = lab_output(lab, ANSWERS.format(states=states, rounds=args.answers))
        for row in rows:
            column = f"playing {algo}" if row["state"] == "playing" else row["state"]
            found.setdefault(column, {}).setdefault(row["name"], []).append(row["ms"])
    return found


def answer_table(found, load):
    "A row for every control: median (worst) ms"
    lines = [
        "## How soon a click is answered", "",
        "Milliseconds from the click's arrival in the kernel to the first word on the page about it "
        "(\"One moment …\" where it is in the middle of an event or a picture), with the page "
        f"open in Chromium: median (worst) of {len(found['at rest']['play'])}; goal: below 100. Load of the machine's "
        f"two cores meanwhile: {load}.", "",
        "| control | " + " | ".join(found) + " |",
        "|---" * (len(found) + 1) + "|"]
    for name in CONTROLS:
        cells = [f"{statistics.median(took[name]):.0f} ({max(took[name]):.0f})" for took in found.values()]
        lines.append(f"| {name.replace('step-', 'step by ').replace('show-curve', 'a view, on and off')} | "
                     + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def printed(outputs):
    rows = []
    for out in outputs:
        if out["output_type"] != "stream" or out["name"] != "stdout": continue
        rows += map(json.loads, "".join(out["text"]).splitlines())
    return rows


@contextmanager
def open_lab(env, algo):
    "JupyterLab in Chromium with a workbench on its page"
    from playwright.sync_api import sync_playwright
    from tests.browser.conftest import FLAGS, Lab, Server
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        server = Server(Path(folder))
        try:
            server.start()
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), headless=True, args=FLAGS)
            context = browser.new_context(viewport=dict(width=1280, height=1600))
            context.set_default_timeout(900_000)
            lab = Lab(server, context)
            lab.open_notebook([CELL.format(root=str(ROOT), env=env, algo=algo)])
            lab.run_all()
            lab.page.locator(".rl-status", has_text="Ready").wait_for()
            yield lab
            lab.leave()
        finally: server.stop()


def lab_output(lab, code):
    "What a new cell printed"
    lab.page.evaluate(ADD_CELL, code)
    return printed(lab.page.evaluate(LAST_OUTPUTS))


def in_browser(args):
    "With the page open; also how long a click takes to be seen, and when which picture was seen to change"
    with open_lab(args.env, args.algo) as lab:
        clicks = [click(lab.page) for _ in range(12)]
        lab.page.evaluate(WATCH)
        rows = lab_output(lab, MEASURE.format(rounds=args.rounds, seconds=args.seconds))
        seen = lab.page.evaluate("() => window.seen")
    return rows, clicks, seen


def rates(rows, seen):
    "{view: [(drawn, seen to change) a second of each round]}, while playing with all views"
    found = {}
    for name, times in seen.items():
        moments = np.array(times) / 1000
        found[name] = []
        for row in rows:
            begun, ended = row["open"]["span"]
            changes = int(((begun <= moments) & (moments < ended)).sum())
            found[name].append((row["open"]["drawn"].get(name, 0) / (ended - begun), changes / (ended - begun)))
    return found


# When the picture, the grid or the table of a card changes; its words do not count. The page itself keeps the time.
WATCH = """() => { window.seen = {};
  const note = changes => {
    const names = new Set();
    for (const { target } of changes) {
      const part = target.nodeType === 1 ? target : target.parentElement, card = part?.closest('.rl-card');
      if (!card || part.closest('.rl-text, .rl-numbers, .rl-card-title')) continue;
      names.add([...card.classList].find(name => name.startsWith('rl-view-'))?.slice(8));
    }
    for (const name of names) (window.seen[name] ??= []).push(performance.timeOrigin + performance.now());
  };
  const drawn = ['src', 'href', 'fill', 'd', 'x', 'y', 'width', 'height', 'cx', 'cy'];
  const what = { subtree: true, childList: true, characterData: true, attributeFilter: drawn };
  new MutationObserver(note).observe(document.querySelector('.rl-views'), what); }"""

# The picture and the words must both have changed; the page itself keeps the time.
CLICK = """async () => {
  const image = document.querySelector('.rl-image-values svg') ? '.rl-image-values' : '.rl-image-actions';
  const words = document.querySelector('.rl-status'), drawn = () => document.querySelector(image).innerHTML;
  const before = drawn(), said = words.textContent;
  const start = performance.now();
  document.querySelector('.rl-step-step').click();
  let seen = null;
  while (performance.now() - start < 5000) {
    await new Promise(requestAnimationFrame);
    if (seen === null && drawn() !== before) seen = performance.now() - start;
    if (seen !== null && words.textContent !== said) return [seen, performance.now() - start];
  }
  return [5000, 5000]; }"""
ADD_CELL = """async code => {
  const panel = window.jupyterapp.shell.currentWidget, run = c => window.jupyterapp.commands.execute(c);
  panel.content.activeCellIndex = panel.content.widgets.length - 1; await run('notebook:insert-cell-below');
  panel.content.activeCell.model.sharedModel.setSource(code); await run('notebook:run-cell'); }"""
LAST_OUTPUTS = "() => window.jupyterapp.shell.currentWidget.content.model.sharedModel.toJSON().cells.at(-1).outputs"


def click(page):
    page.wait_for_timeout(700)
    return page.evaluate(CLICK)


def ratio(row, name, clock):
    "Work a second of playing to that of running, in one round"
    playing, running = (row[way]["work"] / row[way][clock] for way in (name, f"{name}_alone"))
    return playing / running


def ratio_row(what, rows, name, clock, goal):
    "A line of the table: playing against trainer.run, in the median round; others may be on the machine"
    ratios = np.array([ratio(row, name, clock) for row in rows])
    drawn = np.random.default_rng(0).integers(len(rows), size=(2000, len(rows)))
    low, high = np.quantile(np.median(ratios[drawn], axis=1), [.025, .975])
    how = "seconds of the processor" if clock == "cpu" else "by the clock"
    return f"| {what}, {how} | {np.median(ratios):.3f} | {low:.3f} to {high:.3f} | {goal} |"


def report(rows, clicks, seen, args):
    "What was measured, beside what is asked for"
    where = "with the page open in Chromium" if clicks else "in a kernel, without a page"
    load = f"{os.getloadavg()[1]:.1f} (5 minutes) of {os.cpu_count()} cores"
    lines = [
        "# Watching", "",
        f"`python benchmarks/workbench.py{' --browser' if clicks else ''} --write`", "",
        f"{args.algo} on {args.env}, with its timeline and three breakpoints, {where}; {args.rounds} rounds of "
        f"{args.seconds:g} s each: playing with all views, with none, and without breakpoints, each beside "
        "`trainer.run` from the same place on. The ratio is that of what is done in a second by the clock, or in a "
        "second of the processor: the kernel's whole work, whatever else the machine does. Steps and updates count "
        "for what each costs in a plain run: by steps alone, much would hang on where in a rollout a round ends. The "
        "machine's load "
        f"meanwhile: {load}.", "",
        "| work while playing / work of `trainer.run` | median round | 95 % | goal |",
        "|---|---|---|---|"]
    ways = ("all views", "open", .9), ("no view", "shut", .95), ("no view, no breakpoint", "calm", .95)
    for what, name, goal in ways:
        lines += [ratio_row(what, rows, name, clock, f"at least {goal:g}") for clock in ("cpu", "clock")]
    if seen:
        lines += ["", "A picture that is as it was is not sent: while PPO learns, its environment stands still, and "
                  "while it collects, its losses do.", "",
                  "| pictures a second | drawn, mean | worst round | seen to change, mean | goal |",
                  "|---|---|---|---|---|"]
        for name, pairs in sorted(rates(rows, seen).items()):
            drawn, changed = zip(*pairs)
            lines.append(f"| {name} | {statistics.mean(drawn):.1f} | {min(drawn):.1f} | {statistics.mean(changed):.1f} "
                         "| at least 4 drawn (mean) |")
    speed = statistics.median(row["open_alone"]["steps"] / row["open_alone"]["clock"] for row in rows)
    lines += ["", "| figure | median | worst | goal |", "|---|---|---|---|",
              f"| `trainer.run`, steps a second | {speed:,.0f} | | |"]
    for i, what in enumerate(("picture", "words") if clicks else ()):
        took = [click[i] for click in clicks]
        lines.append(f"| click on step to changed {what}, ms ({len(took)} clicks) "
                     f"| {statistics.median(took):.0f} | {max(took):.0f} | below 500 |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--algo", default="ppo")
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--answers", type=int, default=5, help="with --browser: clicks on every control; 0: none")
    parser.add_argument("--browser", action="store_true", help="with the page open, and click to visible change")
    parser.add_argument("--write", action="store_true", help="keep the table in benchmarks/results/workbench.md")
    args = parser.parse_args()
    rows, clicks, seen = in_browser(args) if args.browser else (in_kernel(args), [], {})
    table = report(rows, clicks, seen, args)
    if args.browser and args.answers:
        found = all_answers(args)
        table += "\n" + answer_table(found, f"{os.getloadavg()[1]:.1f} (5 minutes)")
    print(table)
    if args.write:
        (ROOT / "benchmarks" / "results" / "workbench.md").write_text(table)
