"The workbench in a real JupyterLab: what a person sees and does"
import base64
import io
import os
import re
import time
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
SHOTS = os.environ.get("RLBENCH_SHOTS")                # a folder: keep screenshots to look at
SHORT = ", num_envs=2, n_steps=32, batch_size=16, n_epochs=4"      # 16 updates in an iteration
BENCH = "import rlbench\nwb = rlbench.Workbench({env!r}, {algo!r}, seed=0{more})\nwb"
CARTPOLE = BENCH.format(env="CartPole-v1", algo="ppo", more=SHORT)
CLIFF = BENCH.format(env="rlbench/CliffWalk-v0", algo="qlearning", more=", gamma=1.")


def start(lab, code, **settings):
    lab.open_notebook([code], **settings)
    lab.run_all()
    lab.page.locator(".rl-status", has_text="Ready").wait_for()
    lab.page.locator(".rl-keys").wait_for()
    return lab.page


def shot(page, name):
    if SHOTS: page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)


def counter(page, name):
    return int(re.search(rf"\b{name} ([\d,]+)", page.locator(".rl-status").inner_text())[1].replace(",", ""))


def paused(page):
    page.locator(".rl-status", has_text="Paused").wait_for()


def workers(lab):
    "How many players' threads there are in the kernel"
    return lab.ask("import threading; print(sum(t.name == 'rlbench player' for t in threading.enumerate()))")


def test_a_step_changes_counters_and_pictures(lab):
    page = start(lab, CARTPOLE)
    before = {name: lab.pixels(f".rl-image-{name}") for name in ("curve", "frame", "values", "actions")}
    assert page.locator(".rl-view-update").is_hidden()            # nothing to see yet
    assert counter(page, "steps") == 0
    page.locator(".rl-step-step").click()
    page.locator(".rl-status", has_text="steps 2").wait_for()
    after = {name: lab.pixels(f".rl-image-{name}") for name in before}
    for name in ("frame", "values"):
        assert after[name]["hash"] != before[name]["hash"] and after[name]["ink"] > 300, name
    page.locator(".rl-step-iteration").click()
    page.locator(".rl-status", has_text="updates 16").wait_for()
    assert lab.pixels(".rl-image-actions")["hash"] != before["actions"]["hash"]   # 16 updates move a bar by a pixel
    assert lab.pixels(".rl-image-update")["ink"] > 300
    assert "Next: environment step; update after 64 more steps" in page.locator(".rl-status").inner_text()
    shot(page, "cartpole-ppo-light")


EPISODES = "() => /episodes [1-9]/.test(document.querySelector('.rl-status').innerText)"


def test_play_and_pause(lab):
    page = start(lab, CARTPOLE)
    page.locator(".rl-play").click()
    page.locator(".rl-status", has_text="Playing").wait_for()
    page.wait_for_function(EPISODES)
    first = lab.pixels(".rl-image-frame")["hash"]
    assert page.locator(".rl-play.rl-off").is_visible()
    assert lab.ask("print(6 * 7)") == "42"                       # the kernel can be used meanwhile
    drawn = page.locator(".rl-image-frame").inner_html()
    page.wait_for_function("drawn => document.querySelector('.rl-image-frame').innerHTML !== drawn", arg=drawn)
    page.locator(".rl-pause").click()
    paused(page)
    steps = counter(page, "steps")
    assert steps > 50 and int(lab.ask("print(wb.trainer.steps)")) == steps
    assert lab.pixels(".rl-image-frame")["hash"] != first
    page.wait_for_timeout(300)
    assert counter(page, "steps") == steps


def test_a_hyper_parameter_changed_in_the_page_reaches_the_trainer(lab):
    page = start(lab, CARTPOLE)
    field = page.locator(".rl-hp-gamma input")
    field.fill("0.5")
    field.press("Tab")
    page.locator(".rl-step-event").click()
    page.locator(".rl-status", has_text="steps 2").wait_for()
    assert lab.ask("print(wb.trainer.learner.algo.gamma, wb.trainer.config.where('gamma'))") == "0.5 widget"
    field.fill("7")
    field.press("Tab")
    page.locator(".rl-problem", has_text="from 0 to 1").wait_for()
    assert lab.ask("print(wb.trainer.learner.algo.gamma)") == "0.5"
    page.locator(".rl-learning input").uncheck()
    page.locator(".rl-status", has_text="learning is switched off").wait_for()
    assert lab.ask("print(wb.trainer.learning)") == "False"


SECOND = """buffer = next(card.view for card in wb.page.cards if card.view.name == 'buffer')
print(wb.player.look(lambda trainer: buffer.table.ids[1]).result())"""


def open_second(lab, page):
    "Click the second row -> its number; the head changes at once, and the rows when they were sorted: ask again then"
    from playwright.sync_api import TimeoutError           # where it is not installed, these tests are skipped
    for last in (*9 * [False], True):
        row = lab.ask(SECOND)
        try:
            page.locator(f".rl-buffer-table tbody tr:nth-child(2)[data-id='{row}']").click(timeout=6_000)
            return row
        except TimeoutError:
            if last: raise


def test_a_buffer_row_opens_its_transition(lab):
    page = start(lab, BENCH.format(env="CartPole-v1", algo="dqn", more=", learning_starts=40"))
    page.locator(".rl-step-update").click()
    page.locator(".rl-status", has_text="updates 1").wait_for()
    rows = page.locator(".rl-buffer-table tbody tr")
    page.locator(".rl-buffer-table th button", has_text="TD error").click()
    page.locator(".rl-buffer-table th[aria-sort=descending]", has_text="TD error").wait_for()
    row = open_second(lab, page)
    page.locator(".rl-transition .rl-facts").first.wait_for()
    assert f"{row}, of environment 0" in page.locator(".rl-transition").inner_text()
    first = lab.pixels(".rl-frame-state")
    assert first["ink"] > 100 and page.locator(".rl-frame-next").is_visible()
    rows.nth(1).press("ArrowDown")                     # and by the keyboard
    rows.nth(2).press("Enter")
    page.locator(".rl-transition", has_text=f"{rows.nth(2).get_attribute('data-id')}, of environment 0").wait_for()
    page.locator(".rl-buffer-table button[aria-label='later page']").click()
    page.locator(".rl-buffer-table .rl-table-count", has_text="9–16 of").wait_for()
    shot(page, "cartpole-dqn-light")


NEWEST = SECOND.replace("[1]", "[0]")
FURTHER = "than => Number(document.querySelector('.rl-buffer-table tbody tr').dataset.id) > than"


def test_a_table_follows_a_run_that_plays(lab):
    page = start(lab, BENCH.format(env="CartPole-v1", algo="dqn", more=", learning_starts=40"))
    page.locator(".rl-play").click()
    first = page.locator(".rl-buffer-table tbody tr").first
    first.wait_for()
    for _ in range(3):                                 # it goes with the pictures
        page.wait_for_function(FURTHER, arg=int(first.get_attribute("data-id")))
    page.locator(".rl-pause").click()
    page.locator(".rl-status", has_text="Paused").wait_for()
    newest = lab.ask(NEWEST)
    page.locator(f".rl-buffer-table tbody tr:first-child[data-id='{newest}']").wait_for()
    page.locator(".rl-buffer-table .rl-order-random").click()          # and what is asked for comes at rest
    page.locator(".rl-order-random[aria-pressed=true]").wait_for()
    page.wait_for_function("id => document.querySelector('.rl-buffer-table tbody tr').dataset.id !== id", arg=newest)


BROKEN = """def broken(trainer, event):
    if trainer.steps > 20: raise RuntimeError('the sensor is unplugged, and so is ' + 'x' * 400)
wb.trainer.watchers.append(broken)"""


def test_an_error_is_shown(lab):
    page = start(lab, CARTPOLE)
    lab.ask(BROKEN)
    page.locator(".rl-play").click()
    page.locator(".rl-error", has_text="the sensor is unplugged").wait_for()
    assert "Traceback" in page.locator(".rl-error pre").inner_text()
    assert "Failed" in page.locator(".rl-status").inner_text()
    assert lab.ask("print(wb.player.state)") == "failed"
    assert page.evaluate(OUTSIDE) == []                           # words of any length are broken into lines
    shot(page, "error-light")


SHADE = "([part, what]) => getComputedStyle(part)[what].match(/[0-9.]+/g).slice(0, 3).map(Number)"


def test_a_small_world_is_clicked_and_read_by_keyboard(lab):
    page = start(lab, CLIFF, theme="JupyterLab Dark")
    page.locator(".rl-step-episode").click()
    page.locator(".rl-status", has_text="episodes 1").wait_for()
    cells = page.locator(".rl-grid-learned [role=gridcell]")
    assert cells.count() == 48 and "row 4, column 2: cannot be reached" in cells.nth(37).get_attribute("aria-label")
    cells.nth(24).click()
    page.locator(".rl-view-values .rl-text", has_text="state 24 (row 3, column 1)").wait_for()
    cells.nth(24).press("ArrowRight")
    assert page.evaluate("() => document.activeElement.getAttribute('aria-label')").startswith("row 3, column 2")
    page.keyboard.press("Enter")
    page.locator(".rl-view-values .rl-text", has_text="state 25 (row 3, column 2)").wait_for()
    page.locator(".rl-pick-truth select").select_option(label="error of the value")
    page.locator(".rl-pick-learned select").select_option(label="learned Q of each action")
    page.locator(".rl-grid-learned .rl-wedge").first.wait_for()
    words = page.locator(".rl-image-curve text", has_text="environment steps")
    assert min(page.evaluate(SHADE, [words.element_handle(), "fill"])) > 150          # bright words on a dark card
    assert max(page.evaluate(SHADE, [page.locator(".rl-view-curve").element_handle(), "backgroundColor"])) < 80
    page.locator(".rl-play").click()
    page.wait_for_timeout(500)
    page.locator(".rl-pause").click()
    paused(page)
    shot(page, "cliff-qlearning-dark")


CELL_TYPES = """() => window.jupyterapp.shell.currentWidget.content.model.sharedModel.toJSON()
  .cells.map(c => c.cell_type)"""


def test_keys_work_inside_and_jupyter_does_not_hear_them(lab):
    page = start(lab, CARTPOLE)
    page.locator(".rl-title").click()
    page.keyboard.press("s")
    page.locator(".rl-status", has_text="steps 2").wait_for()
    page.keyboard.press("u")
    page.locator(".rl-status", has_text="updates 1").wait_for()
    page.keyboard.press("r")
    page.locator(".rl-status", has_text="Ready").wait_for()       # and the cell was not turned into raw text
    page.keyboard.press("Space")
    page.locator(".rl-status", has_text="Playing").wait_for()
    page.keyboard.press("Space")
    paused(page)
    page.locator(".rl-play").click()                              # a click does not take the keys away
    page.locator(".rl-status", has_text="Playing").wait_for()
    page.keyboard.press("Space")
    paused(page)
    kinds = page.evaluate(CELL_TYPES)
    assert kinds == ["code"]
    before = counter(page, "steps")
    field = page.locator(".rl-path input")
    field.click()
    page.keyboard.type("sure")                                    # in a text field, letters are letters
    assert field.input_value().count("sure") == 1
    page.wait_for_timeout(300)
    assert counter(page, "steps") == before


def stored(lab):
    "The picture in the saved file"
    outputs = lab.save().cells[0].outputs
    found = [o.data["image/png"] for o in outputs if "image/png" in o.get("data", {})]
    assert len(found) == 1
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(found[0]))).convert("RGB"))


OTHER_STEPS = "steps => !document.querySelector('.rl-status').innerText.includes('steps ' + steps + ' ')"


def test_the_last_picture_stays_in_the_file(lab):
    page = start(lab, CARTPOLE)
    page.wait_for_timeout(800)
    first = stored(lab)
    page.locator(".rl-title").click()
    page.keyboard.press("i")
    page.locator(".rl-status", has_text="updates 16").wait_for()
    deadline = time.monotonic() + 15
    while np.array_equal(first, last := stored(lab)):
        assert time.monotonic() < deadline, "the stored picture was not renewed"
        page.wait_for_timeout(200)
    assert last.std() > 5
    assert page.locator(".jp-RenderedImage").is_hidden()          # while the live one is there, one is enough
    steps = counter(page, "steps")
    page.keyboard.press("s")                                      # the focus was not lost by it
    page.wait_for_function(OTHER_STEPS, arg=steps)
    page.wait_for_timeout(800)
    lab.save()
    lab.end_kernel()
    again = page.context.new_page()                               # not a reload, which would break off requests
    again.goto(page.url.replace("?reset", "?"))
    again.locator(".jp-RenderedImage img").wait_for(state="visible")     # opened again: no widget, but its picture
    assert again.locator(".rl-root").count() == 0
    again.wait_for_timeout(500)
    assert "widget" not in again.locator(".jp-OutputArea").inner_text()
    shot(again, "saved-light")
    again.close()
    lab.leave()


def test_running_the_cell_again_leaves_no_thread(lab):
    page = start(lab, CARTPOLE)
    page.locator(".rl-play").click()
    page.locator(".rl-status", has_text="Playing").wait_for()
    for _ in range(2): lab.run_all()
    page.locator(".rl-status", has_text="Ready").wait_for()
    assert workers(lab) == "1"


def test_the_clock_driver_plays_without_a_thread(lab):
    page = start(lab, BENCH.format(env="CartPole-v1", algo="ppo", more=SHORT + ", driver='clock'"))
    page.locator(".rl-play").click()
    page.wait_for_function(EPISODES)
    page.locator(".rl-pause").click()
    paused(page)
    steps = counter(page, "steps")
    page.wait_for_timeout(400)
    assert counter(page, "steps") == steps and workers(lab) == "0"


OUTSIDE = """() => {
  const root = document.querySelector('.rl-root').getBoundingClientRect();
  const kinds = 'button, img, input, svg, pre, b, .rl-card, .rl-status div, .rl-title, .rl-text';
  const parts = document.querySelectorAll(`.rl-root :is(${kinds})`);
  const box = part => part.getBoundingClientRect();
  const outside = part => box(part).right > root.right + 1 || box(part).left < root.left - 1;
  const seen = part => part.offsetParent && !part.closest('.rl-table-scroll');
  return [...parts].filter(part => seen(part) && outside(part)).map(part => part.className); }"""


def test_nothing_is_clipped_at_1280(lab):
    page = start(lab, CARTPOLE, theme="JupyterLab Dark")
    page.locator(".rl-step-iteration").click()
    page.locator(".rl-status", has_text="updates 16").wait_for()
    page.locator(".rl-buffer-table tbody tr").first.click()
    page.locator(".rl-transition .rl-facts").first.wait_for()
    assert page.evaluate(OUTSIDE) == []
    shot(page, "layout-dark")


def boxes(page):
    return [page.locator(part).bounding_box() for part in (".rl-views", ".rl-side")]


def test_settings_stay_in_view_at_any_width(lab):
    page = start(lab, CARTPOLE)
    page.locator(".rl-step-iteration").click()
    page.locator(".rl-status", has_text="updates 16").wait_for()
    lab.ask("wb.arrange(side='open')")                          # else it is shut where it would leave no room
    for width in (1280, 1440, 1920):
        page.set_viewport_size(dict(width=width, height=900))
        page.wait_for_timeout(300)
        assert page.evaluate(OUTSIDE) == []
        views, side = boxes(page)
        assert side["x"] > views["x"] and abs(side["y"] - views["y"]) < 5
        assert side["x"] + side["width"] <= width
        page.locator(".rl-keys").scroll_into_view_if_needed()   # the last line of the page
        page.wait_for_timeout(100)
        side = boxes(page)[1]
        assert side["y"] < 400 < side["y"] + side["height"]     # it ends where the cards end, and may begin above
        page.locator(".rl-title").scroll_into_view_if_needed()
    for width in (900, 600):                                    # 600: as 900 with the file browser open
        page.set_viewport_size(dict(width=width, height=900))
        page.wait_for_timeout(300)
        views, side = boxes(page)
        assert page.evaluate(OUTSIDE) == [] and side["y"] < views["y"]      # it stands whole above the cards
        shot(page, f"narrow-{width}")


NAMELESS = """() => {
  const named = part => part.title || part.getAttribute('aria-label') || part.innerText || part.alt
    || [...part.labels ?? []].some(label => label.innerText.trim());
  const seen = part => part.offsetParent || part.closest('svg');
  const kinds = 'input, select, button, img, [role=img], [role=slider], [role=grid]';
  const parts = document.querySelectorAll(`.rl-root :is(${kinds})`);
  return [...parts].filter(part => seen(part) && !named(part)).map(part => part.outerHTML); }"""
UNTOLD = """() => [...document.querySelectorAll('.rl-hp [class*=rl-hp-]')]
  .flatMap(box => [box, ...box.querySelectorAll('input, select, label')])
  .filter(part => !part.title.includes('Expected')).map(part => part.outerHTML)"""
LIVE = "document.querySelectorAll('.rl-root :is([role=status], [role=alert], [role=log], [aria-live])').length"


def test_everything_has_a_name_and_every_setting_a_tooltip(lab):
    page = start(lab, BENCH.format(env="CartPole-v1", algo="dqn", more=", learning_starts=40"))
    page.wait_for_timeout(500)
    assert (page.evaluate(NAMELESS), page.evaluate(UNTOLD), page.evaluate(LIVE)) == ([], [], 1)
    assert page.locator(".rl-image-curve").get_attribute("aria-label") == "Learning curve: no episode has ended yet"
    assert page.locator(".rl-speed [role=slider]").get_attribute("aria-valuetext") == "full speed"
    assert page.locator(".rl-timebar [role=slider]").get_attribute("aria-label").startswith("events so far")
    page.locator(".rl-step-update").click()
    page.locator(".rl-status", has_text="updates 1").wait_for()
    page.locator(".rl-reset").click()
    page.locator(".rl-status", has_text="Ready").wait_for()
    page.wait_for_timeout(500)
    assert (page.evaluate(NAMELESS), page.evaluate(UNTOLD), page.evaluate(LIVE)) == ([], [], 1)
    page.locator(".rl-help").first.focus()
    page.wait_for_timeout(100)
    told = page.evaluate("getComputedStyle(document.activeElement, '::after').content")
    assert "one dot for each episode" in told
    shot(page, "help")


def test_closing_leaves_the_picture(lab):
    page = start(lab, CARTPOLE)
    lab.ask("wb.close()")
    page.locator(".rl-root").wait_for(state="detached")
    page.locator(".jp-RenderedImage img").wait_for(state="visible")


HUNT = """import rlbench
cast = dict(chaser='dqn', runner='ppo')
trained = rlbench.Trainer('rlbench/Chase-v0', cast, seed=0, num_envs=2)
cast['runner'] = trained.actors['runner']
wb = rlbench.Workbench('rlbench/Chase-v0', cast, seed=0, num_envs=2, learning_starts=40)
wb"""


def test_one_of_two_behaviours_is_shown(lab):
    page = start(lab, HUNT)
    page.locator(".rl-step-update").click()
    page.locator(".rl-status", has_text="updates 1").wait_for()
    assert page.locator(".rl-view-buffer").is_visible() and page.locator(".rl-hp-epsilon").is_visible()
    shot(page, "chase-chaser")
    page.locator(".rl-who select").select_option(label="runner")
    page.locator(".rl-view-buffer").wait_for(state="detached")
    page.locator(".rl-hp-epsilon").wait_for(state="detached")
    assert page.locator(".rl-view-actions, .rl-view-values").first.is_visible()
    page.locator(".rl-step-step").click()
    paused(page)
    assert page.evaluate(OUTSIDE) == []
    shot(page, "chase-runner")
    page.locator(".rl-who select").select_option(label="chaser")
    page.locator(".rl-view-buffer").wait_for()


def test_rewinding_and_acting_by_hand_are_seen(lab):
    page = start(lab, BENCH.format(env="CartPole-v1", algo="dqn", more=", learning_starts=40"))
    page.locator(".rl-step-update").click()
    page.locator(".rl-status", has_text="updates 1").wait_for()
    steps = counter(page, "steps")
    there = lab.pixels(".rl-image-frame")["hash"]
    lab.ask("here = wb.snapshot(); wb.act(1).act(1)")
    page.locator(".rl-status", has_text=f"steps {steps + 2}").wait_for()
    assert lab.pixels(".rl-image-frame")["hash"] != there
    lab.ask("wb.rewind(here)")
    page.locator(".rl-status", has_text=f"steps {steps} ").wait_for()
    assert lab.pixels(".rl-image-frame")["hash"] == there


def test_the_showcase_notebook(lab):
    lab.open_notebook(ROOT / "nbs" / "workbench.ipynb")
    lab.run_all()
    shot(lab.page, "showcase-light")


WATCH = """() => { window.told = [];
  const status = document.querySelector('.rl-status');
  const note = () => window.told.push([performance.now(), status.innerText.split('.')[0]]);
  new MutationObserver(note).observe(status, {subtree: true, childList: true, characterData: true});
  const play = document.querySelector('.rl-play');
  play.addEventListener('click', () => { window.clicked = performance.now(); }, true); }"""


def test_a_click_on_play_is_answered_before_the_work(lab):
    page = start(lab, CARTPOLE)
    page.evaluate(WATCH)
    page.locator(".rl-play").click()
    page.wait_for_function("() => window.told.some(([at, words]) => words === 'Playing')")
    took = page.evaluate("() => window.told.find(([at, words]) => words === 'Playing')[0] - window.clicked")
    assert took < 1000
    page.locator(".rl-pause").click()
    paused(page)


BROKEN_LINKS = """() => [...document.querySelectorAll('.rl-root, .rl-root *')].filter(el => {
  const { content, display } = getComputedStyle(el, '::before');
  return el.classList.contains('jupyter-widgets-disconnected') && content !== 'none' && display !== 'none';
}).length"""


def test_a_restarted_kernel_shows_as_dead(lab):
    page = start(lab, CARTPOLE)
    assert page.locator(".rl-dead").count() == 0
    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    page.locator(".rl-dead", has_text="Run the cell again").wait_for()
    assert page.locator(".rl-root .jupyter-widgets-disconnected").count() > 50
    assert page.evaluate(BROKEN_LINKS) == 0             # each would take the place of a card
    tops = [page.locator(f".rl-{part}").bounding_box() for part in ("views", "side")]
    assert tops[0]["x"] < tops[1]["x"] and abs(tops[0]["y"] - tops[1]["y"]) < 40


def test_refusals_stand_on_the_page_and_a_file_brings_its_curve(lab, tmp_path):
    page = start(lab, CARTPOLE)
    page.locator(".rl-step-episode").click()
    paused(page)
    page.locator(".rl-path input").fill(str(tmp_path / "run.rlb"))
    page.locator(".rl-save").click()
    page.locator(".rl-file-said", has_text="saved").wait_for()
    page.locator(".rl-learning input").uncheck()
    page.locator(".rl-step-update").click()
    page.locator(".rl-error", has_text="no update will come while learning is switched off").wait_for()
    page.locator(".rl-keys").press("u")                   # the key of that name
    page.locator(".rl-error", has_text="no update will come while learning is switched off").wait_for()
    page.locator(".rl-load").click()
    page.locator(".rl-file-said", has_text="loaded").wait_for()
    page.locator(".rl-view-curve", has_text="last episode").wait_for()
    assert page.locator(".rl-file-said").first.inner_text().startswith("loaded")
    assert not page.locator(".rl-error").is_visible()


def test_the_doctor_is_asked_and_the_advice_tried(lab):
    page = start(lab, BENCH.format(env="CartPole-v1", algo="ppo", more=", lr=.3"))
    lab.ask("import rlbench.lab.page.clinic as clinic; clinic.TRIED = 500; wb.step('step', 1000)")
    page.locator(".rl-examine").click()
    page.locator(".rl-finding", has_text="strange rate").locator(".rl-pane > svg").wait_for()
    assert page.locator(".rl-root style").count() == 0              # it would hold for the pictures of the others
    page.locator(".rl-try-start").first.click()
    page.locator(".rl-doctor", has_text="with lr=0.001 the mean return is").wait_for()
    assert page.evaluate(OUTSIDE) == []
    shot(page, "doctor")


def test_a_fork_keeps_up_and_is_taken_in_hand(lab):
    page = start(lab, CARTPOLE)
    page.locator(".rl-step-iteration").click()
    paused(page)
    page.locator(".rl-fork-text input").fill("lr=0.05")
    page.locator(".rl-fork.jupyter-button").click()
    runs = page.locator(".rl-forks-panel .rl-fork")
    runs.nth(1).wait_for()
    lab.ask("for what in ('nan', 'kl > 50', 'ratio > 900', 'episode_return > 900'): wb.break_when(what)")
    page.locator(".rl-unbreak").nth(3).wait_for()
    assert page.evaluate("() => { const side = document.querySelector('.rl-side');"
                         " return side.scrollWidth === side.clientWidth; }")             # all of it can be seen
    lab.ask("wb.player.stops.drop()")
    for _ in range(3):
        page.locator(".rl-step-iteration").click()
        paused(page)
    page.locator(".rl-fork-said", has_text="alike for").wait_for()
    assert "lr=0.05" in runs.nth(1).inner_text() and "in hand" in runs.nth(0).inner_text()
    assert lab.pixels(".rl-image-forks")["ink"] > 300
    shot(page, "forks-light")
    page.locator(".rl-go-on").click()
    page.locator(".rl-fork", has_text="lr=0.05 (in hand)").wait_for()
    assert lab.ask("print(wb.trainer.learner.settings.lr)") == "0.05"
    page.locator(".rl-drop").click()
    page.locator(".rl-forks-panel").wait_for(state="hidden")


def test_a_number_explains_itself_where_it_is_clicked(lab):
    page = start(lab, CARTPOLE)
    answer = page.locator(".rl-meaning")
    assert not answer.is_visible()
    page.locator(".rl-step-iteration").click()
    page.locator(".rl-status", has_text="updates 16").wait_for()
    page.locator(".rl-numbers").get_by_text("kl", exact=True).click()
    answer.locator("math mfrac, math mi").first.wait_for()
    assert "at most 0.1" in answer.inner_text() and "now " in answer.inner_text()
    shot(page, "number-explained")
    page.locator(".rl-counts").get_by_text("mean return", exact=True).click()
    answer.get_by_text("undiscounted").wait_for()
    page.locator(".rl-meaning-close").click()
    answer.wait_for(state="hidden")
