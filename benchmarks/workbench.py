"""What watching costs: steps a second of a plain run against playing with all views open, in turn, in a real kernel.

python benchmarks/workbench.py                         PPO on CartPole-v1
python benchmarks/workbench.py --browser [--write]     with the page open in JupyterLab and Chromium, and click to
                                                       visible change; kept in results/workbench.md
python benchmarks/workbench.py --env FrozenLake-v1 --algo qlearning
"""
import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


def plain(trainer, seconds):
    "Steps a second of trainer.run"
    begun, before = time.perf_counter(), trainer.steps
    while time.perf_counter() - begun < seconds: trainer.run(steps=2000)
    return (trainer.steps - before) / (time.perf_counter() - begun)


def played(wb, seconds):
    "Steps a second while playing, and pictures a second of every view"
    shown = {card.view.name: 0 for card in wb.page.cards}
    for card in wb.page.cards: count_draws(card.view, shown)
    wb.play()
    time.sleep(.3)                                   # the first pictures paint backgrounds
    for name in shown: shown[name] = 0
    begun, before = time.perf_counter(), wb.trainer.steps
    time.sleep(seconds)
    took, steps = time.perf_counter() - begun, wb.trainer.steps - before
    frames = {name: n / took for name, n in shown.items()}
    wb.pause()
    for card in wb.page.cards: del card.view.draw
    return steps / took, frames


def count_draws(view, shown):
    draw = view.draw
    def counted(trainer, moving):
        shown[view.name] += 1
        draw(trainer, moving)
    view.draw = counted


def compare(wb, rounds, seconds, progress=print):
    "Both in turn, several times, on trainers of the same kind; run in a kernel"
    alone = wb.trainer.fresh()
    plain(alone, 1)                                  # warm up
    played(wb, 1)
    rows = []
    for i in range(rounds):
        one = plain(alone, seconds)
        two, frames = played(wb, seconds)
        rows.append(dict(run=one, play=two, ratio=two / one, frames=frames))
        progress(json.dumps(rows[-1]))
    return rows


CELL = """import sys; sys.path.insert(0, {root!r})
from benchmarks.workbench import compare
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


def printed(outputs):
    rows = []
    for out in outputs:
        if out["output_type"] != "stream" or out["name"] != "stdout": continue
        rows += map(json.loads, "".join(out["text"]).splitlines())
    return rows


def in_browser(args):
    "With the page open; also how long a click takes to be seen"
    from playwright.sync_api import sync_playwright
    from tests.browser.conftest import FLAGS, Lab, Server
    import shutil
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        server = Server(Path(folder))
        try:
            server.start()
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), headless=True, args=FLAGS)
            lab = Lab(server, browser.new_context(viewport=dict(width=1280, height=1600)).new_page())
            lab.page.set_default_timeout(900_000)
            lab.open_notebook([CELL.format(root=str(ROOT), env=args.env, algo=args.algo)])
            lab.run_all()
            lab.page.locator(".rl-status", has_text="Ready").wait_for()
            clicks = [click(lab.page) for _ in range(12)]
            lab.page.evaluate(ADD_CELL, MEASURE.format(rounds=args.rounds, seconds=args.seconds))
            rows = printed(lab.page.evaluate(LAST_OUTPUTS))
            lab.close()
        finally: server.stop()
    return rows, clicks


# The picture and the words must both have changed; the page itself keeps the time.
CLICK = """async () => {
  const image = document.querySelector('img.rl-image-values') ?? document.querySelector('img.rl-image-actions');
  const words = document.querySelector('.rl-status');
  const src = image.src, said = words.textContent;
  const start = performance.now();
  document.querySelector('.rl-step-step').click();
  let seen = null;
  while (performance.now() - start < 5000) {
    await new Promise(requestAnimationFrame);
    if (seen === null && image.src !== src) { await image.decode(); seen = performance.now() - start; }
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


def report(rows, clicks, args):
    "What was measured, beside what is asked for"
    where = "with the page open in Chromium" if clicks else "in a kernel, without a page"
    ratios = [row["ratio"] for row in rows]
    speed = statistics.median(row["run"] for row in rows)
    busiest = [max(row["frames"].values()) for row in rows]
    lines = [
        "# Watching", "",
        f"`python benchmarks/workbench.py{' --browser' if clicks else ''} --write`", "",
        f"{args.algo} on {args.env}, all views open, {where}; {args.rounds} rounds of {args.seconds:g} s each, "
        "playing and `trainer.run` in turn.", "",
        "| figure | median | worst round | goal |",
        "|---|---|---|---|",
        f"| steps a second while playing / `trainer.run` | {statistics.median(ratios):.3f} | {min(ratios):.3f} "
        "| at least 0.9 (median) |",
        f"| `trainer.run`, steps a second | {speed:,.0f} | | |",
        f"| pictures a second of the busiest view | {statistics.median(busiest):.1f} | {max(busiest):.1f} "
        "| at most 10 |"]
    for i, what in enumerate(("picture", "words") if clicks else ()):
        took = [click[i] for click in clicks]
        lines.append(f"| click on step to changed {what}, ms ({len(took)} clicks) "
                     f"| {statistics.median(took):.0f} | {max(took):.0f} | below 500 |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--algo", default="ppo")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--browser", action="store_true", help="with the page open, and click to visible change")
    parser.add_argument("--write", action="store_true", help="keep the table in benchmarks/results/workbench.md")
    args = parser.parse_args()
    rows, clicks = in_browser(args) if args.browser else (in_kernel(args), [])
    table = report(rows, clicks, args)
    print(table)
    if args.write:
        (ROOT / "benchmarks" / "results" / "workbench.md").write_text(table)
