"The workbench where JupyterLab is not: in Notebook 7, and in Voilà, which shows what a notebook puts out and no code"
import pytest

from tests.browser.conftest import READY, RUN_ALL
from tests.browser.test_workbench import CARTPOLE, CLIFF, OTHER_STEPS, counter, paused, shot


def in_notebook(lab, code):
    page = lab.visit(f"notebooks/{lab.write([code]).name}", watched=False)      # its own pages raise errors
    page.locator(".jp-Notebook .jp-Cell").wait_for()
    page.evaluate(READY)
    page.evaluate(RUN_ALL)
    return page


def in_voila(lab, code):
    return lab.visit(f"voila/render/{lab.write([code]).name}", watched=False)   # asks other hosts for its icons


@pytest.mark.parametrize("show, code", [(in_notebook, CARTPOLE), (in_voila, CLIFF)])
def test_other_hosts_step_and_play(lab, show, code):
    page = show(lab, code)
    page.locator(".rl-status", has_text="Ready").wait_for()
    page.locator(".rl-step-step").click()
    page.locator(".rl-status", has_text="Paused").wait_for()
    before = counter(page, "steps")
    page.locator(".rl-play").click()
    page.locator(".rl-status", has_text="Playing").wait_for()
    page.wait_for_function(OTHER_STEPS, arg=before)
    page.locator(".rl-pause").click()
    paused(page)
    assert counter(page, "steps") > before > 0
    page.locator(".rl-view-curve svg").first.wait_for()
    shot(page, f"{show.__name__}-{counter(page, 'steps')}")
    page.close()
