"Acting and dragging as a person does it: keys that are his while he has taken over, an agent that is dragged in a grid"
from tests.browser.test_workbench import CLIFF, counter, start

POLE = ("import rlbench\nwb = rlbench.Workbench('CartPole-v1', 'dqn', seed=0, learning_starts=500, num_envs=1, "
        "views=['frame', 'actions', 'buffer'])\nwb")


def test_keys_act_while_they_are_somebodys(lab):
    page = start(lab, POLE)
    page.locator(".rl-take").click()
    page.locator(".rl-choose", has_text="push right").wait_for()
    for count, key in enumerate(("ArrowLeft", "2", "ArrowRight"), 1):
        page.keyboard.press(key)
        page.locator(".rl-status", has_text=f"steps {count}").wait_for()
    assert lab.ask("print(wb.trainer.learner.by_hand, wb.trainer.learner.memory.places.act[:3].tolist())") == (
        "[0, 1, 2] [0, 1, 1]")
    page.locator(".rl-choose", has_text="push left").click()
    page.locator(".rl-status", has_text="steps 4").wait_for()
    page.keyboard.press("n")                                     # the page's other keys go on working
    page.locator(".rl-status", has_text="steps 5").wait_for()
    page.keyboard.press("Escape")
    page.locator(".rl-hands").wait_for(state="hidden")
    page.keyboard.press("1")
    page.keyboard.press("s")
    page.locator(".rl-status", has_text="steps 6").wait_for()
    assert lab.ask("print(wb.trainer.learner.by_hand)") == "[0, 1, 2, 3]"


def test_the_agent_is_dragged_in_the_grid(lab):
    page = start(lab, CLIFF)
    page.locator(".rl-step-step").click()
    page.locator(".rl-status", has_text="steps 1").wait_for()
    cells = page.locator(".rl-grid-learned [role=gridcell]")
    here = page.locator(".rl-grid-learned .rl-here")
    here.wait_for()
    here.drag_to(cells.nth(17))
    page.locator(".rl-grid-learned [role=gridcell]:nth-of-type(6).rl-here").wait_for()
    assert lab.ask("print(wb.trainer.obs['agent'])") == "[17]"
    cells.nth(3).focus()
    page.keyboard.press("Shift+Enter")
    page.wait_for_function("() => document.querySelectorAll('.rl-grid-learned [role=gridcell]')[3]"
                           ".classList.contains('rl-here')")
    assert lab.ask("print(wb.trainer.obs['agent'])") == "[3]" and counter(page, "steps") == 1
    cells.nth(40).focus()                                        # the cliff
    page.keyboard.press("Shift+Enter")
    page.locator(".rl-error", has_text="nobody can stand in state 40").wait_for()


SHOWN = "document.querySelector('.rl-view-frame svg').outerHTML"


def test_the_picture_follows_a_slider_that_is_held(lab):
    page = start(lab, POLE)
    page.locator(".rl-step-step").click()
    page.locator(".rl-status", has_text="steps 1").wait_for()
    slider = page.locator(".rl-state input").nth(2)
    slider.scroll_into_view_if_needed()
    told = "print(len(wb.player.timeline.branch.deeds), round(float(wb.trainer.obs['agent'][0, 2]), 2))"
    deeds, angle = lab.ask(told).split()
    box = slider.bounding_box()
    present = page.evaluate(SHOWN)
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * (.5 + float(angle) / .419), middle)
    page.mouse.down()
    for share in (.7, .9):
        page.mouse.move(box["x"] + box["width"] * share, middle)
        page.wait_for_function(f"before => {SHOWN} !== before", arg=present)
        page.locator(".rl-view-frame", has_text="so it would look").wait_for()
        present = page.evaluate(SHOWN)
        assert lab.ask(told) == f"{deeds} {angle}"                   # the run has not noticed
    page.mouse.up()
    page.locator(".rl-view-frame .rl-text", has_not_text="so it would look").wait_for()
    assert int(lab.ask(told).split()[0]) == int(deeds) + 1
    assert .15 < float(lab.ask(told).split()[1]) < .19
    present = page.evaluate(SHOWN)
    slider.focus()
    page.keyboard.press("ArrowLeft")                                 # a press is a hold and a letting go
    page.wait_for_function(f"before => {SHOWN} !== before", arg=present)
    page.keyboard.press("s")                                         # the page's keys go on working
    page.locator(".rl-status", has_text="steps 2").wait_for()
    assert int(lab.ask(told).split()[0]) == int(deeds) + 2
