"Operating on a memory in a real JupyterLab: a filter, boxes, a button, and what is said then"
from tests.browser.test_workbench import start

BENCH = ("import rlbench\nwb = rlbench.Workbench('CartPole-v1', 'dqn', seed=0, learning_starts=50, "
         "prioritized_replay_alpha=.6, views=['curve', 'buffer'])\nwb")


def test_rows_are_filtered_chosen_and_deleted_and_come_back(lab):
    page = start(lab, BENCH)
    lab.ask("wb.step('step', 100)")
    bar = page.locator(".rl-surgery")
    assert not bar.is_visible()
    page.locator(".rl-filter").fill("age < 40 and rew > 0")
    page.locator(".rl-filter").press("Enter")
    page.locator(".rl-surgery", has_text="all 40 of 100 rows that the filter shows").wait_for()
    boxes = page.locator(".rl-buffer-table tbody .rl-pick input")
    boxes.nth(0).click()
    boxes.nth(3).click(modifiers=["Shift"])
    page.locator(".rl-surgery", has_text="4 of 100 rows are chosen").wait_for()
    assert [boxes.nth(n).is_checked() for n in range(5)] == [True] * 4 + [False]

    page.locator(".rl-delete-rows").click()
    page.locator(".rl-change", has_text="4 rows deleted").wait_for()
    assert lab.pixels(".rl-image-change")["ink"] > 300
    assert lab.ask("print(len(wb.trainer.learner.memory))") == "96"
    lab.ask("wb.rewind('step', -1)")
    page.locator(".rl-change").wait_for(state="hidden")
    page.locator(".rl-filter").fill("nonsense > 1")
    page.locator(".rl-filter").press("Enter")
    page.locator(".rl-table .rl-problem", has_text="unknown name 'nonsense'").wait_for()
