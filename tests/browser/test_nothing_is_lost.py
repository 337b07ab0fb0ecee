"Whatever the page does, the run is there: tabs are closed, opened twice, and kernels restarted"
import rlbench
from rlbench.training.checkpoints import find_run
from tests.browser.conftest import READY
from tests.browser.test_workbench import CARTPOLE, counter, paused, shot, start


def steps_in_kernel(lab):
    return int(lab.ask("print(wb.trainer.steps)"))


def another_tab(lab, page):
    "The same notebook in another tab, with the workbench on it"
    other = lab.context.new_page()
    other.goto(page.url.replace("?reset", "?"))
    other.wait_for_selector(".jp-Notebook .jp-Cell")
    assert other.evaluate(READY) == "python3"
    other.locator(".rl-status").wait_for()
    other.locator(".rl-keys kbd").first.wait_for()
    return other


def test_a_run_goes_on_when_its_tab_is_closed_and_is_there_when_it_is_opened_again(lab):
    page = start(lab, CARTPOLE)
    page.locator(".rl-play").click()
    page.locator(".rl-status", has_text="Playing").wait_for()
    lab.save()
    before = steps_in_kernel(lab)
    lab.page = other = another_tab(lab, page)           # that the kernel has somebody to ask it
    page.close()
    other.locator(".rl-status", has_text="Playing").wait_for()
    other.wait_for_function("before => Number(document.querySelector('.rl-status').innerText"
                            ".match(/steps ([0-9,]+)/)[1].replaceAll(',', '')) > before", arg=before)
    other.locator(".rl-pause").click()
    paused(other)
    assert counter(other, "steps") == steps_in_kernel(lab) > before
    assert other.locator(".rl-image-actions svg").count() == 1
    lab.leave()


def show_the_same(part, *tabs):
    "Wait until a part of the page is the same in all tabs: one in the background draws late"
    for _ in range(100):
        if len({tab.locator(part).inner_html() for tab in tabs}) == 1: return
        tabs[0].wait_for_timeout(200)
    raise AssertionError(f"{part} is not the same")


def test_two_tabs_on_one_kernel_show_the_same_and_both_can_press(lab):
    page = start(lab, CARTPOLE)
    page.locator(".rl-step-update").click()
    paused(page)
    lab.save()
    other = another_tab(lab, page)
    picture = ".rl-image-update"
    assert counter(other, "updates") == 1
    assert other.locator(f"{picture} svg").count() > 0
    show_the_same(picture, page, other)
    other.locator(".rl-step-update").click()
    page.locator(".rl-status", has_text="updates 2").wait_for()
    page.locator(".rl-step-update").click()
    for tab in (page, other):
        tab.locator(".rl-status", has_text="updates 3").wait_for()
    show_the_same(picture, page, other)
    page.locator(".rl-play").click()                    # what moves comes to both
    for tab in (page, other):
        tab.locator(".rl-status", has_text="Playing").wait_for()
    drawn = other.locator(picture).inner_html()
    other.wait_for_function("([picture, html]) => document.querySelector(picture).innerHTML !== html",
                            arg=[picture, drawn])
    other.locator(".rl-pause").click()
    for tab in (page, other): paused(tab)
    assert counter(page, "steps") == counter(other, "steps") == steps_in_kernel(lab)
    other.close()
    lab.leave()


TRAINING = """import rlbench
rlbench.train("CartPole-v1", "ppo", steps=10_000_000, run_id="cut-off", folder={folder!r}, checkpoint_every=200,
              progress=False, **dict(num_envs=2, n_steps=32, batch_size=16, n_epochs=4))"""
RESTART = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"


def test_a_kernel_that_is_restarted_in_the_middle_leaves_a_whole_checkpoint(lab, tmp_path):
    page = start(lab, CARTPOLE)
    page.locator(".rl-play").click()
    page.locator(".rl-status", has_text="Playing").wait_for()
    lab.page.evaluate("code => { window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
                      ".requestExecute({code}); }", TRAINING.format(folder=str(tmp_path)))
    folder = tmp_path / "cut-off"
    for _ in range(300):
        if len(list(folder.glob("checkpoints/*.rlb"))) > 1:
            break      # the first is from before the first step
        page.wait_for_timeout(200)
    page.evaluate(RESTART)
    page.locator(".rl-dead", has_text="Run the cell again").wait_for()
    again = rlbench.load(find_run(folder))
    steps = again.steps
    assert steps >= 200 and again.run(steps=64).steps >= steps + 64
    lab.leave()


SOON = """import rlbench.lab.time.rescue as rescue
rescue.EVERY = 1.
"""


def test_a_run_on_the_page_is_offered_again_after_its_kernel_was_restarted(lab):
    page = start(lab, SOON + CARTPOLE)
    assert not page.locator(".rl-recover").is_visible()
    page.locator(".rl-play").click()
    page.wait_for_timeout(3000)
    page.locator(".rl-pause").click()
    paused(page)
    steps = counter(page, "steps")
    assert steps > 0
    page.evaluate(RESTART)
    page.locator(".rl-dead", has_text="Run the cell again").wait_for()
    lab.run_all()
    page.locator(".rl-recover").click()
    page.wait_for_function("steps => document.querySelector('.rl-status').innerText"
                           ".includes(`steps ${steps.toLocaleString('en')}`)", arg=steps)
    assert not page.locator(".rl-recover").is_visible()
    page.locator(".rl-step-event").click()
    paused(page)
    lab.leave()


def test_a_cell_that_is_run_again_offers_the_run_that_it_ended(lab):
    page = start(lab, SOON + CARTPOLE)
    page.locator(".rl-play").click()
    page.wait_for_timeout(3000)
    page.locator(".rl-pause").click()
    paused(page)
    steps = counter(page, "steps")
    lab.run_all()
    page.locator(".rl-recover").wait_for()
    shot(page, "offered")
    assert lab.ask("print(wb.recover().trainer.steps)") == str(steps)
    lab.leave()
