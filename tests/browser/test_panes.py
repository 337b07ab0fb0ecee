"Pictures that are hidden until there is something to see"
from tests.browser.test_workbench import CARTPOLE, paused, shot, start

WORKBENCH = ['from rlbench import Workbench\nwb = Workbench("rlbench/CliffWalk-v0", "qlearning", seed=0)\nwb',
             'wb.step("step", 100)\nNone']


def test_a_picture_is_seen_once_there_is_something_to_see_and_goes_again(lab):
    lab.open_notebook(WORKBENCH)
    lab.run_all()
    page = lab.page
    lab.ask('wb.evaluate(episodes=1, longest=50)')
    page.locator(".rl-image-evaluations > svg").wait_for(state="visible")

    page.locator(".rl-view-values button", has_text="roll out from here").click()
    page.locator(".rl-strip > svg").wait_for(state="visible")

    page.locator("button", has_text="explain the last update").click()
    page.locator(".rl-account-table tbody tr").first.click()
    diagram = page.locator(".rl-account .rl-pane > svg")
    diagram.wait_for(state="visible")
    assert 300 < diagram.bounding_box()["width"] <= 620   # a page has more room than a diagram needs
    page.locator("button", has_text="explain the last update").click()
    diagram.wait_for(state="hidden")


def test_a_click_on_a_map_means_the_state_that_is_seen_there(lab):
    page = start(lab, CARTPOLE)
    page.locator(".rl-step-update").click()
    paused(page)
    card = page.locator(".rl-view-values")
    picture = card.locator(".rl-image-values > svg")
    picture.click()                                     # in its middle
    card.locator(".rl-text", has_text="at the white cross").wait_for()
    card.locator(".rl-pin").click()
    card.locator(".rl-caption", has_text="pinned as 1").wait_for()
    card.locator(".rl-rollout").click()
    card.locator(".rl-strip > svg").wait_for(state="visible")
    picture.click(position=dict(x=3, y=3))              # beside the plane
    card.locator(".rl-text", has_text="value here").wait_for()
    shot(page, "clicked")
    lab.leave()
