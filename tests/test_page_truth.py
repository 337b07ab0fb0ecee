"What the page says and does is true: every order is answered, refused in words, or done, and the snippet repeats it"
import re
import threading

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from rlbench.algos.algorithm import algorithms
from rlbench.buffers.datasets import save_ring
from rlbench.core.spaces import SpaceProblem
from rlbench.core.state import same
from rlbench.core.words import ConfigError, unknown
from rlbench.envs.games import Pennies
from rlbench.envs.tabular import evaluate_policy, model_of
from rlbench.lab.pictures.components import as_page, press
from rlbench.lab.time.owner import Closed
from rlbench.lab.page.clinic import found_words
from rlbench.lab.page.fields import problem_html
from rlbench.lab.page.fork_views import parted_html
from rlbench.lab.page.page import env_title, heading_html, look_through
from rlbench.lab.time.player import Player
from rlbench.lab.views.value_views import GridValues, Truth, judged_states, layout_of
from rlbench.lab.views.views import EnvFrame, View
from rlbench.training.doctor.diagnosis import CHECKS
from rlbench.training.doctor.drawn import across_words
from rlbench.training.rule import BrokenOff
from rlbench.training.trainer import Trainer
from tests.cases import ONE_EACH
from tests.test_player import SMALL, eventually
from tests.test_workbench import bench, has_picture, part, seen_of, view     # noqa: F401

REPLAY = dict(seed=0, learning_starts=20, batch_size=8)
LAKE = dict(seed=0, env_settings=dict(is_slippery=False))


def complaint(wb):
    return wb.page.complaint.widget.value


def status(wb):
    return re.sub(r"</?span[^>]*>", "", wb.page.status.widget.value)


# learning from what is stored

@pytest.mark.parametrize("algo, env", [("dqn", "CartPole-v1"), ("sac", "Pendulum-v1")])
def test_who_keeps_a_memory_goes_on_learning_with_collecting_off(bench, algo, env):     # noqa: F811
    wb = bench(env, algo, **REPLAY)
    wb.step("step", 30).step("iteration").switch(collecting=False)
    before = wb.trainer.updates, wb.trainer.steps
    assert "from what is stored" in status(wb)
    wb.step("update", 25)
    assert (wb.trainer.updates, wb.trainer.steps) == (before[0] + 25, before[1])
    wb.play().player.tick(.05)
    assert wb.player.state == "playing" and wb.trainer.updates > before[0] + 25
    wb.pause().switch(collecting=True).step("step")
    assert wb.trainer.steps == before[1] + 1


def test_two_who_keep_a_memory_take_turns(bench):                                       # noqa: F811
    wb = bench(Pennies, dict(even="dqn", odd="dqn"), **REPLAY)
    wb.step("step", 30).switch(collecting=False)
    before = [learner.updates for learner in wb.trainer.learners.values()]
    wb.step("update", 20)
    after = [learner.updates for learner in wb.trainer.learners.values()]
    assert sum(after) == sum(before) + 20 and abs(after[0] - after[1]) <= 1


def test_who_learns_once_from_its_steps_says_that_nothing_is_left(bench):               # noqa: F811
    wb = bench(views=["curve"], **SMALL)
    wb.step("iteration").switch(collecting=False)
    with pytest.raises(ValueError, match="nothing is owed"):
        wb.step("update")
    wb.play().wait(5)
    assert wb.player.state == "done" and "collecting is switched off" in status(wb)


@pytest.mark.parametrize("case", ONE_EACH, ids=str)
def test_more_updates_are_made_or_refused_in_words(case):
    trainer = case.trainer()
    player = Player(trainer, "sync")
    refused = player.learn(3).exception()
    assert bool(refused) != bool(trainer.updates)
    assert refused is None or type(refused) is ValueError
    trainer.until("update")
    trainer.until(lambda event: not trainer.learner.todo)
    before = trainer.updates, trainer.steps
    assert player.learn(3).result()
    assert trainer.updates > before[0] and trainer.steps == before[1] and not trainer.learner.todo
    player.switch(learning=False)
    with pytest.raises(ValueError, match="no update will come while learning is switched off"):
        player.learn(3).result()
    player.close()


def test_more_updates_by_a_button(bench):                                               # noqa: F811
    wb = bench(algo="dqn", views=["curve"], **REPLAY)
    learn = part(wb, "learn")
    learn.click()
    assert "dqn has nothing stored yet to learn from" in complaint(wb) and wb.trainer.updates == 0
    wb.step("step", 30)
    assert not complaint(wb)
    before = wb.trainer.updates
    as_page(part(wb, "learn-n"), value=7)
    learn.click()
    assert wb.trainer.updates == before + 7 and wb.trainer.steps == 30


def test_more_updates_while_playing_do_not_stop_it(bench):                              # noqa: F811
    wb = bench(algo="dqn", **REPLAY)
    wb.step("step", 30).play()
    part(wb, "learn").click()
    assert wb.player.state == "playing" and len(wb.trainer.learner.todo) == 10


# the snippet

def repeated(wb):
    "The trainer that the snippet makes"
    scope = {}
    exec(wb.snippet(), scope)
    return scope["trainer"]


def told(trainer):
    "Everything but the sources of settings"
    return {name: part for name, part in trainer.state().items() if name != "config"} | dict(
        values={name: str(value) for name, value in trainer.config.values.items()})


def by_buttons(wb):
    as_page(part(wb, "hp-gamma"), value="0.5")
    part(wb, "step-step").click()
    as_page(part(wb, "learning"), value=False)
    for _ in range(21): part(wb, "step-event").click()
    as_page(part(wb, "learning"), value=True)
    part(wb, "step-update").click()
    part(wb, "learn").click()


def by_hand(wb):
    wb.step("step", 7).set(lr=.01).step("event", 30).switch(collecting=False)
    wb.learn(4).switch(collecting=True).step("step", 25).edit(2, rew=10.).step("update", 3)


def half_an_iteration(wb):
    wb.step("update", 3)


def after_a_reset(wb):
    wb.step("step", 9).set(gamma=.9).reset().step("step", 40).step("update").set(lr=.02)


def without_steps(wb):
    wb.step("step", 40).switch(collecting=False)
    if wb.trainer.learner.algo.replays: wb.step("update", 9)
    wb.switch(learning=False, collecting=True).step("step", 3)


def past_the_workbench(wb):
    wb.step("step", 9)
    wb.trainer.set(lr=.02)
    wb.trainer.until("step", 12)
    wb.trainer.learning = False
    wb.step("step", 4)


def back_and_on(wb):
    wb.step("step", 40).set(lr=.02).step("event", 30).rewind("update", -3)
    wb.set(gamma=.5).step("event", 10)


def surgery(wb):
    wb.step("step", 40)
    if wb.trainer.learner.algo.replays:
        wb.edit("age < 5 and not term", rew=3., obs=0.)
    wb.step("update", 3)


ORDERS = [surgery, by_buttons, by_hand, half_an_iteration, after_a_reset, without_steps, past_the_workbench,
          back_and_on]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("algo, settings", [("ppo", SMALL), ("dqn", REPLAY | dict(num_envs=2, train_freq=3))])
def test_the_snippet_repeats_what_was_done(bench, algo, settings, order):              # noqa: F811
    wb = bench(algo=algo, views=["curve"], **settings)
    order(wb)
    assert "#" not in wb.snippet()
    assert same(told(repeated(wb)), told(wb.trainer)), wb.snippet()
    wb.step("event", 9)                              # and what comes after
    assert same(told(repeated(wb)), told(wb.trainer))


def test_the_snippet_of_a_file_and_of_a_fork(bench, tmp_path):                          # noqa: F811
    wb = bench(views=["curve"], **SMALL)
    wb.step("update", 2).set(lr=.01).save(tmp_path / "run.rlb")
    other = wb.fork(gamma=.5).step("update", 3)
    assert same(told(repeated(other)), told(other.trainer)) and "#" not in other.snippet()
    early = other.fork("update", -2, lr=.5).step("update")
    assert same(told(repeated(early)), told(early.trainer)) and early.trainer.updates < other.trainer.updates
    early.close()
    wb.step("iteration", 2).load(tmp_path / "run.rlb").step("step", 3)
    assert "rlbench.load(" in wb.snippet() and same(told(repeated(wb)), told(wb.trainer))
    other.close()


def put_elsewhere(wb):
    wb.trainer.restore(wb.trainer.snapshot())


def goes_back(wb):
    wb.rewind(wb.step("step", 3).snapshot())


def is_called(wb):
    wb.call(lambda trainer: trainer.learner.nets)


def acts(wb):
    wb.act(1)


WORDS = [
    (put_elsewhere, "the place changed past the workbench"),
    (goes_back, "the run was put where a snapshot had been taken"),
    (is_called, "<lambda> was called on the trainer"),
    (acts, "trainer.choose(1)  # 1 (push right)")]


@pytest.mark.parametrize("order, words", WORDS)
def test_what_the_snippet_cannot_repeat_it_says(bench, order, words):                   # noqa: F811
    wb = bench(algo="dqn", views=["curve"], **REPLAY)
    wb.step("step", 25)
    order(wb)
    assert words in wb.snippet()
    wb.step("step", 2)
    assert words in wb.snippet()
    compile(wb.snippet(), "snippet", "exec")


def saves_over(wb, folder):
    wb.save(folder / "run.rlb").load(folder / "run.rlb").step("step", 4).save(folder / "run.rlb")


def moves_the_file(wb, folder):
    wb.save(folder / "run.rlb").load(folder / "run.rlb")
    (folder / "run.rlb").rename(folder / "other.rlb")


@pytest.mark.parametrize("order", [saves_over, moves_the_file])
def test_a_file_that_is_not_what_was_loaded_is_told(bench, tmp_path, order):            # noqa: F811
    wb = bench(algo="dqn", views=["curve"], **REPLAY)
    order(wb.step("step", 25), tmp_path)
    twin = wb.fork()
    for one in (wb, wb.set(gamma=.5), twin):
        assert one.snippet().count("run.rlb was written or moved since: to load it leads elsewhere") == 1
    twin.close()
    assert "#" not in wb.save(tmp_path / "new.rlb").load(tmp_path / "new.rlb").snippet()


@pytest.mark.parametrize("name, what", [("CartPole-v1", "dqn"), ("FrozenLake-v1", "value_iteration")])
def test_the_snippet_of_a_place_before_the_first_step(bench, name, what):               # noqa: F811
    wb = bench(name, what, views=["curve"], seed=0)
    wb.step("event").reset().switch(collecting=False, learning=False)
    wb.rewind(wb.snapshot())
    assert same(repeated(wb).state()["learning"], False) and not repeated(wb).collecting
    trainer = Trainer("FrozenLake-v1", "value_iteration", seed=0)
    trainer.until("event")
    wb = bench(trainer, views=["curve"])
    assert "stands before some updates that are owed" in wb.snippet()


def test_the_snippet_is_code_whatever_was_set(bench):                                   # noqa: F811
    from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
    wb = bench(algo="dqn", views=["curve"], **REPLAY, num_envs=1)
    wb.set(max_grad_norm=None, gamma=np.float64(.5)).step("step", 3)
    assert same(told(repeated(wb)), told(wb.trainer))
    desc = dict(desc=np.array([list("SFG")]))
    lake = bench("FrozenLake-v1", "qlearning", views=["curve"], seed=0, env_settings=desc).step("step", 3)
    made = bench(lambda: FrozenLakeEnv(), "qlearning", views=["curve"], seed=0).step("step", 3)
    for wb, scope in [(lake, dict(env_settings=desc)), (made, dict(env=FrozenLakeEnv))]:
        assert f"# {next(iter(scope))}: comes from outside, define it before" in wb.snippet()
        exec(wb.snippet(), scope)
        assert same(told(scope["trainer"])["learners"], told(wb.trainer)["learners"])


def test_a_refused_change_leaves_no_line(bench):                                        # noqa: F811
    wb = bench(views=["curve"], **SMALL)
    with pytest.raises(ValueError):
        wb.set(gamma=7)
    as_page(part(wb, "hp-gamma"), value="7")
    assert "set(" not in wb.snippet()


# values are compared with those of the policy that they are about

@pytest.mark.parametrize("algo, more", [
    ("td", dict(lr=.02)), ("td_lambda", dict(lr=.02, td_lambda=.5)), ("linear_td", dict(lr=.02)),
    ("monte_carlo", dict(improve=False, epsilon=0.)), ("policy_iteration", dict(improve=False))])
def test_a_given_policy_is_compared_with_its_own_value(algo, more):
    trainer = Trainer("FrozenLake-v1", algo, gamma=.99, **LAKE, **more)
    trainer.run(steps=500)
    model = model_of(trainer.env.single)
    layout = layout_of(trainer.env, trainer.env.behaviours["agent"], model)
    now = judged_states(trainer, "agent", layout, Truth(model))
    exact = evaluate_policy(model, np.full((16, 4), .25), .99)
    np.testing.assert_allclose(now.truth.V, exact, atol=1e-9)
    assert now.truth.word == "its policy's" and abs(now.V[0] - now.truth.V[0]) < .05


def test_who_looks_for_the_best_policy_is_compared_with_the_best():
    trainer = Trainer("FrozenLake-v1", "qlearning", **LAKE)
    model = model_of(trainer.env.single)
    layout = layout_of(trainer.env, trainer.env.behaviours["agent"], model)
    truth = judged_states(trainer, "agent", layout, Truth(model)).truth
    assert truth.word == "optimal" and truth.V[0] == pytest.approx(.99**5)


@pytest.mark.parametrize("algo", algorithms())
def test_the_menu_says_whose_values_the_right_grid_shows(algo):
    try:
        trainer = Trainer("FrozenLake-v1", algo, seed=0)
    except (ConfigError, SpaceProblem):
        pytest.skip("it does not learn here")
    if not GridValues.fits(trainer, "agent"):
        pytest.skip("it says no values of states")
    view = GridValues(trainer, "agent")
    view.draw(trainer, moving=False)
    words = [words for words, _ in view.menus[1].options]
    whose = "its policy's" if algo in ("td", "td_lambda", "linear_td") else "optimal"
    assert words[:2] == [f"{whose} value", "error of the value"] and whose in view.text()
    assert words[2:] in ([], [f"{whose} Q of each action"])


def test_the_menu_follows_a_change_of_what_is_learned():
    trainer = Trainer("FrozenLake-v1", "policy_iteration", seed=0)
    view = GridValues(trainer, "agent")
    for improve, words in [(False, "its policy's value"), (True, "optimal value")]:
        trainer.set(improve=improve)
        view.menus[1].value = "error"
        view.draw(trainer, moving=False)
        assert view.menus[1].options[0][0] == words and view.menus[1].value == "error"


def test_what_the_showcase_says_of_ratios_is_so():
    trainer = Trainer("CartPole-v1", "ppo", seed=0)
    trainer.until("iteration", 2)
    in_one = trainer.updates // 2
    assert in_one == 160

    def highest(iterations):
        "The highest ratio of some iterations"
        found = []
        for _ in range(iterations * in_one):
            trainer.until("update")
            found.append(float(trainer.learner.last.parts["ratio"].max()))
        return max(found)

    here = trainer.snapshot()
    assert highest(1) < 1.5
    trainer.restore(here)
    trainer.set(clip_range=5.)
    assert highest(3) > 2


# orders are answered at once, and refused in words

def spoken(wb):
    "What the page says at each event"
    heard = []
    wb.trainer.watchers.append(lambda trainer, event: heard.append(status(wb)))
    return heard


@pytest.mark.parametrize("order", ["play", "step-event", "step-iteration", "learn"])
def test_playing_is_said_before_the_first_event(bench, order):                          # noqa: F811
    wb = bench(views=["curve"], **SMALL)
    wb.step("iteration")
    heard = spoken(wb)
    part(wb, order).click()
    wb.player.tick(.01)
    assert heard and all(words.count("Playing.") == 1 for words in heard)


def test_a_pause_is_said_before_the_pictures(bench):                                    # noqa: F811
    wb = bench(driver="thread")
    heard = []
    draw = view(wb, "curve").draw

    def noted(trainer, moving):
        if not moving: heard.append(status(wb))
        draw(trainer, moving)

    wb.play()
    view(wb, "curve").draw = noted
    part(wb, "pause").click()
    wb.wait(20)
    assert "Paused." in heard[0]


def test_a_letter_comes_before_the_pictures_that_are_left(bench):                       # noqa: F811
    wb = bench()
    drawn = []

    def interrupting(card, draw):
        def noted(trainer, moving):
            drawn.append(card.view.name)
            if len(drawn) == 1: wb.player.step("event")
            draw(trainer, moving)
        return noted

    for card in wb.page.cards:
        card.view.draw = interrupting(card, card.view.draw)
    before = wb.player.count
    wb.step("event")
    assert wb.player.count == before + 2
    assert len(drawn) == 1 + len(wb.page.shown())     # one, then the event, then all


def test_a_reset_is_heard_before_it_is_done(bench):                                     # noqa: F811
    wb = bench(views=["curve"], **SMALL)
    wb.step("iteration")
    said = []
    wb.page.status.widget.observe(lambda change: said.append(change["new"]), "value")
    part(wb, "reset").click()
    assert "One moment" in said[0] and "Ready" in said[-1]


def test_impossible_steps_are_refused_on_the_page_by_button_and_key(bench):             # noqa: F811
    wb = bench(views=["curve"], **SMALL)
    wb.switch(learning=False)
    for order in (part(wb, "step-update").click, lambda: press(wb.page.keys, "update")):
        order()
        assert "no update will come while learning is switched off" in complaint(wb)
        assert wb.player.state == "idle"
        part(wb, "step-step").click()
        assert not complaint(wb)
        wb.reset().switch(learning=False)
    wb.play()
    press(wb.page.keys, "iteration")
    wb.player.tick(.02)
    assert "no iteration will come" in complaint(wb) and wb.player.state == "playing"
    press(wb.page.keys, "play")
    assert not complaint(wb) and wb.player.state == "paused"


def test_an_update_of_a_settled_planner_is_refused(bench):                              # noqa: F811
    wb = bench("FrozenLake-v1", "value_iteration", views=["curve"], seed=0, theta=1e-3)
    wb.step("update", 10_000)
    assert wb.trainer.settled and wb.player.state == "done"
    updates = wb.trainer.updates
    buttons = part(wb, "step-update"), part(wb, "step-iteration")
    for order in (buttons[0].click, lambda: press(wb.page.keys, "update"), buttons[1].click):
        order()
        assert "nothing more will be learned" in complaint(wb) and wb.trainer.updates == updates
    part(wb, "step-step").click()
    assert wb.trainer.steps == 1 and not complaint(wb)


def test_a_settled_planner_does_not_say_that_nothing_is_left(bench):                   # noqa: F811
    wb = bench("FrozenLake-v1", "value_iteration", views=["curve"], seed=0, theta=1e-3)
    wb.step("update", 10_000)
    assert "Nothing left to learn. Last: " in status(wb) and "Next: environment step; no updates" in status(wb)
    wb.switch(collecting=False).play()
    wb.player.tick()
    assert "Nothing left to do. Last: " in status(wb) and "Next: nothing" in status(wb)
    wb.reset().switch(collecting=False, learning=False).play()
    wb.player.tick()
    wb.switch(collecting=True)
    assert "Paused. Last: nothing yet. Next: environment step" in status(wb)


@pytest.mark.parametrize("way", [("event", 12), ("update", 2), ("iteration", 1), ("episode", 1)])
def test_who_goes_back_is_told_where_the_run_stands(bench, way):                        # noqa: F811
    wb = bench("CartPole-v1", "ppo", views=["curve"], **SMALL)
    wb.step(*way)
    at, last = wb.timeline.at, re.search("Last: one [a-z]+", status(wb))[0]
    wb.step("step", 2).rewind(at)
    assert f"Paused at event {at}. {last}" in status(wb) and "nothing yet" not in status(wb)
    wb.rewind(0)
    assert "Ready. Last: nothing yet. Next: environment step" in status(wb)
    wb.rewind(at)
    assert f"Paused at event {at}. {last}" in status(wb)


def test_a_fork_in_hand_and_a_file_are_not_said_to_have_done_nothing(bench, tmp_path):  # noqa: F811
    wb = bench("CartPole-v1", "ppo", views=["curve"], **SMALL)
    wb.step("update", 2).beside(lr=.1)
    wb.go_on(list(wb.player.forks.known)[1])
    assert f"Paused at event {wb.timeline.at}. Last: one update. Next: update 3" in status(wb)
    wb.go_on(list(wb.player.forks.known)[0])
    wb.drop(list(wb.player.forks.known)[1])
    wb.save(tmp_path/"run.rlb").load(tmp_path/"run.rlb")
    assert "Ready. Last: nothing since it was taken up. Next: update 3" in status(wb)
    wb.step("step").rewind(0)
    assert "Ready. Last: nothing since it was taken up. Next: update 3" in status(wb)


class Dying(CartPoleEnv):
    "Its motor fails"
    alive = True

    def step(self, action):
        if not self.alive: raise RuntimeError("the motor is dead")
        return super().step(action)


BROKEN_OFF = "an event has begun and did not come to its end"


@pytest.mark.parametrize("driver", ["sync", "thread"])
def test_each_button_says_why_not_where_the_environment_died(bench, tmp_path, monkeypatch, driver):     # noqa: F811
    wb = bench(Dying, "dqn", driver=driver, views=["curve"], **REPLAY)
    wb.step("step", 3).save(tmp_path / "run.rlb")
    monkeypatch.setattr(Dying, "alive", False)
    wb.player.play()
    wb.player.tick(.1)
    eventually(lambda: wb.player.state == "failed" and "the motor is dead" in complaint(wb))
    for name in ("play", "step-event", "step-update", "learn"):
        part(wb, name).click()
        eventually(lambda: complaint(wb).startswith(f"<b class='rl-problem'>{BROKEN_OFF}"))
        assert "Traceback" in complaint(wb) and "Failed: RuntimeError: the motor is dead" in status(wb)
        part(wb, "pause").click()
        eventually(lambda: complaint(wb).startswith("<b class='rl-problem'>Failed: RuntimeError: the motor is dead"))
    with pytest.raises(BrokenOff):
        wb.play()
    part(wb, "path").value = str(tmp_path / "other.rlb")
    part(wb, "save").click()
    eventually(lambda: BROKEN_OFF in part(wb, "file-said").value)
    monkeypatch.setattr(Dying, "alive", True)
    part(wb, "path").value = str(tmp_path / "run.rlb")
    part(wb, "load").click()
    eventually(lambda: "loaded" in part(wb, "file-said").value)
    wb.wait(20)
    assert not complaint(wb) and wb.player.state == "idle"
    wb.step("step")


def test_two_pages_of_one_trainer_take_turns(bench):                                     # noqa: F811
    trainer = Trainer("CartPole-v1", "dqn", **REPLAY)
    one, two = [bench(trainer, views=["curve"]) for _ in range(2)]
    one.play()
    for name in ("play", "step-step", "reset"):
        part(two, name).click()
        assert "another workbench moves this trainer: pause that one first" in complaint(two)
        assert two.trainer is trainer and not two.player.goals
    with pytest.raises(ValueError, match="another workbench moves"):
        two.set(gamma=.5)
    one.pause()
    part(two, "step-step").click()
    assert not complaint(two) and "steps</button> <b>1</b>" in status(two)


def test_a_closed_page_says_so_to_a_key(bench):                                         # noqa: F811
    wb = bench(views=["curve"], **SMALL)
    wb.close()
    press(wb.page.keys, "step")
    assert "this workbench is closed" in complaint(wb)


def test_a_closed_page_says_so_wherever_it_is_touched(bench, tmp_path):                 # noqa: F811
    wb = bench("FrozenLake-v1", "qlearning", **LAKE)
    wb.step("step", 5)
    panel = wb.page.files
    gamma = next(field for field in wb.page.settings[0].fields if field.setting.name == "gamma")
    wb.close()
    panel.path.value = str(tmp_path / "run.rlb")
    for verb in (wb.player.save, wb.player.load):
        panel.said.value = ""
        panel.ask(verb, "doing", "done")
        assert "this workbench is closed; run its cell again" in panel.said.value
    gamma.widget.value = "0.5"
    assert "this workbench is closed" in gamma.problem.value
    touches = [
        lambda: wb.page.flip(wb.page.cards[0], False),
        lambda: wb.page.turn("agent"),
        lambda: look_through(wb.page, wb.page.cards[0], print),
        lambda: setattr(wb.page.keys, "dark", True),
    ]
    for touch in touches:
        wb.page.complaint.clear()
        touch()
        assert "this workbench is closed" in complaint(wb)
    wb.player.tick()
    assert not list(tmp_path.iterdir())


def test_a_closed_workbench_says_so_to_every_verb(bench):                              # noqa: F811
    wb = bench(views=["curve"], **SMALL)
    wb.close()
    given = dict(save=["run.rlb"], load=["run.rlb"], until=[print], rewind=[{}], call=[print], edit=[0], act=[1])
    for verb in [*given, "step", "learn", "play", "pause", "set", "reset", "switch", "speed", "snapshot", "evaluate",
                 "fork", "snippet"]:
        with pytest.raises(Closed, match="this workbench is closed; run its cell again for a new one"):
            getattr(wb, verb)(*given.get(verb, []))


@pytest.mark.parametrize("name", ["event", "step", "update", "episode", "iteration", "reset"])
def test_a_key_does_what_the_button_of_its_name_does(bench, name):                      # noqa: F811
    one, two = [bench(views=["curve"], **SMALL) for _ in range(2)]
    for wb in (one, two): wb.step("step", 40)
    press(one.page.keys, name)
    part(two, name if name == "reset" else f"step-{name}").click()
    assert same(one.trainer.state(), two.trainer.state())


def test_every_key_of_the_page_has_its_button(bench):                                   # noqa: F811
    wb = bench(views=["curve"], **SMALL)
    keys = re.search(r"const KEYS = \{(.*?)\}", wb.page.keys._esm).group(1)
    names = re.findall(r'"(\w+)"', keys)
    assert {"event", "step", "update", "episode", "iteration", "reset", "play"} == set(names)
    assert all(f"</kbd> {name}" in wb.page.keys._esm for name in names)


def test_the_words_say_how_fast_it_may_go(bench):                                       # noqa: F811
    wb = bench(views=["curve"], **SMALL)
    for at, words in ((0, "at most 1 event a second"), (2, "at most 5 events a second")):
        as_page(part(wb, "speed"), index=at)
        assert words in status(wb)
    as_page(part(wb, "speed"), index=6)
    assert "at most" not in status(wb) and wb.player.pace is None


def test_a_reset_clears_the_traceback(bench):                                           # noqa: F811
    wb = bench(views=["curve"], **SMALL)
    wb.trainer.watchers.append(lambda trainer, event: 1 / 0)
    part(wb, "step-step").click()
    assert "ZeroDivisionError" in complaint(wb) and wb.player.state == "failed"
    part(wb, "reset").click()
    assert not complaint(wb) and "rl-is-failed" not in wb.page.status.widget._dom_classes


@pytest.mark.parametrize("num_envs", [1, 4])
def test_load_keeps_its_words_and_shows_the_curve(bench, tmp_path, num_envs):           # noqa: F811
    wb = bench(algo="dqn", views=["curve"], **REPLAY, num_envs=num_envs)
    wb.step("step", 120)
    points = list(view(wb, "curve").returns.points)
    part(wb, "path").value = str(tmp_path / "run.rlb")
    part(wb, "save").click()
    wb.step("step", 60)
    part(wb, "load").click()
    again = view(wb, "curve")
    assert f"loaded {tmp_path}" in part(wb, "file-said").value
    assert len(again.returns.points) == len(points) and "last episode" in again.text()
    found, known = np.array(again.returns.points), np.array(points)
    np.testing.assert_array_equal(found[:, 1], known[:, 1])
    assert (abs(found[:, 2] - known[:, 2]) < 1).all() and found[-1, 2] == pytest.approx(known[-1, 2])
    assert (abs(found[:, 0] - known[:, 0]) <= 10 * num_envs).all()
    wb.step("step", 5)
    assert "loaded" in part(wb, "file-said").value


# what need not be made anew is kept: a click that comes meanwhile is answered sooner

def test_reset_keeps_the_fields_and_what_they_show_is_so(bench):                        # noqa: F811
    wb = bench(views=["curve"], **SMALL)
    panel = wb.page.settings[0]
    as_page(part(wb, "hp-gamma"), value="7")
    wb.set(lr=.1)
    wb.reset()
    assert wb.page.settings == [panel] and panel.learner is wb.trainer.learner
    assert part(wb, "hp-gamma").value == str(wb.trainer.learner.settings.gamma)
    assert part(wb, "hp-lr").value == str(wb.trainer.learner.settings.lr)
    assert not any(field.problem.value for field in panel.fields)
    as_page(part(wb, "hp-gamma"), value="0.5")
    assert wb.trainer.learner.settings.gamma == .5


RUNS = [
    ("CartPole-v1", "dqn", REPLAY), ("FrozenLake-v1", "dyna", LAKE), ("CartPole-v1", "ppo", SMALL),
    ("Pendulum-v1", "sac", REPLAY), ("rlbench/FourRooms-v0", "sarsa_lambda", dict(seed=0))]


@pytest.mark.parametrize("env, algo, settings", RUNS)
def test_reset_and_load_keep_the_cards_and_forget_what_was_seen(bench, tmp_path, env, algo, settings):  # noqa: F811
    wb = bench(env, algo, **settings)
    page = wb.page
    cards = page.cards
    parts = [page.toggles.widget.children, page.views.children, [card.widget.model_id for card in cards]]
    pictures = [card.view.image for card in cards if has_picture(card)]
    shown = [card.view.text() for card in cards], [seen_of(one) for one in pictures]
    wb.step("update", 3).step("episode").save(tmp_path / "run.rlb")
    press(page.keys, "step")
    wb.reset()
    assert page.cards == cards and not page.complaint
    assert [page.toggles.widget.children, page.views.children, [card.widget.model_id for card in page.cards]] == parts
    now = [card.view.text() for card in cards], [seen_of(one) for one in pictures]
    assert now == shown                              # as if nothing had happened
    assert view(wb, "curve").returns.points == []
    wb.load(tmp_path / "run.rlb")
    assert page.cards == cards and "last episode" in view(wb, "curve").text()
    other = bench(wb.trainer.fork(), views=None)
    texts = [card.view.text() for card in other.page.cards if card.view.name not in ("backup", "curve")]
    assert [card.view.text() for card in cards if card.view.name not in ("backup", "curve")] == texts


def test_a_view_that_failed_or_cannot_begin_again_is_made_anew(bench):                  # noqa: F811
    class Plain(View):
        name = title = "plain"

    wb = bench(views=["curve", "actions", Plain], **SMALL)
    curve, actions, plain = wb.page.cards
    curve.broken = "a traceback"
    wb.reset()
    assert wb.page.cards[1] is actions
    assert wb.page.cards[0] is not curve and wb.page.cards[2] is not plain and wb.page.cards[0].open
    as_page(part(wb, "show-curve"), value=False)     # its switch is the new one's
    assert [card.open for card in wb.page.cards] == [False, True, True]


def test_a_click_in_the_middle_of_work_is_heard_at_once(bench):                         # noqa: F811
    wb = bench(driver="thread", views=["curve"], **SMALL)
    wb.wait(20)
    begun, go = threading.Event(), threading.Event()
    working = wb.player.ask(lambda: begun.set() or go.wait(20))
    assert begun.wait(20) and not wb.page.heard.value
    part(wb, "step-step").click()
    assert "One moment" in wb.page.heard.value and wb.trainer.steps == 0
    go.set()
    working.result(20)
    eventually(lambda: wb.trainer.steps and not wb.page.heard.value)


def test_a_click_while_the_picture_is_kept_is_heard_at_once(bench):                     # noqa: F811
    wb = bench(driver="thread", views=["curve"], **SMALL)
    begun, go = threading.Event(), threading.Event()
    wb.page.kept.renew = lambda make: begun.set() or go.wait(20)
    wb.step("step")
    assert begun.wait(20) and not wb.page.heard.value
    part(wb, "step-step").click()
    assert "One moment" in wb.page.heard.value
    go.set()
    eventually(lambda: wb.trainer.steps == 4 and not wb.page.heard.value)


FILES = [   # button, path, what is said
    ("save", "", "got an empty path"),
    ("load", "", "got an empty path"),
    ("save", "{}", "is a folder, expected a name for a file"),
    ("load", "{}", "is a folder, expected a file"),
    ("load", "{}/none.rlb", "no such file"),
    ("load", "{}/damaged.rlb", "truncated, damaged or not an rlbench file"),
    ("load", "{}/cut.rlb", "truncated, damaged or not an rlbench file"),
    ("save", "{}/damaged.rlb/run.rlb", "cannot be written"),
    ("load", "{}/damaged.rlb/run.rlb", "no such file"),
    ("load", "{}/memory.rlb", "holds a memory, expected a checkpoint"),
    ("save", "{}/" + 300 * "x", "got a name of 300 bytes"),
]


@pytest.mark.parametrize("button, path, words", FILES)
def test_a_file_that_cannot_be_had_is_told_on_the_page(bench, tmp_path, button, path, words):   # noqa: F811
    wb = bench(algo="dqn", views=["curve"], **REPLAY)
    wb.step("step", 30)
    wb.save(tmp_path / "run.rlb")
    (tmp_path / "damaged.rlb").write_bytes(b"no zip")
    (tmp_path / "cut.rlb").write_bytes((tmp_path / "run.rlb").read_bytes()[:5000])
    save_ring(tmp_path / "memory.rlb", wb.trainer.learner.memory)
    before = wb.snapshot()
    files = sorted(tmp_path.iterdir())
    part(wb, "path").value = path.format(tmp_path)
    part(wb, button).click()
    assert words in part(wb, "file-said").value and "rl-problem" in part(wb, "file-said").value
    assert same(wb.snapshot(), before) and sorted(tmp_path.iterdir()) == files
    wb.step("step", 1)


def test_of_a_long_list_of_names_the_nearest_are_shown_and_the_others_counted():
    known = [f"part_{i}" for i in range(30)] + ["td_error", "td_errors"]
    told = problem_html(unknown("name", "td_eror", known))
    shown = re.sub(r"<[^>]*>", "", told)
    assert "nearest: td_error, td_errors, " in shown and "… and 26 more" in shown
    assert shown.count("part_") == 4 and "part_29" in re.search("title='(.*?)'", told)[1]
    wrong, small = re.findall("class='rl-(.*?)'", told)
    assert (wrong, small) == ("problem", "caption") and "part_" not in told.split("</span>")[0]
    few = "unknown run 3. There are: a, b"
    assert problem_html(few) == f"<span class='rl-problem'>{few}</span>"


def test_words_of_the_page_say_what_they_mean():
    twin = type("Pair", (), dict(events=0, lost=False, parted=None))
    event = type("Event", (), dict(text="256 rows processed into targets"))
    assert "alike for 0 events since the fork" in parted_html(twin)
    twin.parted = event, event
    assert parted_html(twin) == ("<p>different from the first event on; then 256 rows processed into targets, "
                                 "with other results in each</p>")
    twin.events = 12
    twin.parted = event, None
    assert "in hand: 256 rows processed into targets; in the fork: nothing" in parted_html(twin)
    assert found_words([]) == f"none of {len(CHECKS)} checks found anything wrong"
    assert across_words({"return of an episode": []}).startswith("episodes")
    assert across_words({"q": []}).startswith("rows")


def test_a_nameless_maker_is_called_by_what_it_makes():
    makers = {"CartPoleEnv": lambda: CartPoleEnv(),
              "CartPole-v1": lambda: gym.make("CartPole-v1")}
    for name, make in makers.items():
        trainer = Trainer(make, "ppo", seed=0, num_envs=1)
        assert env_title(trainer.env) == name and "lambda" not in heading_html(trainer)


def test_what_is_observed_is_said_with_names_and_units():
    trainer = Trainer("CartPole-v1", "ppo", seed=0, num_envs=1)
    frame = EnvFrame(trainer, "agent")
    frame.draw(trainer, moving=False)
    position = f"{trainer.obs['agent'][0, 0]:.4g}"
    assert frame.said.startswith(f"cart position {position} m, cart velocity ") and frame.said.endswith("rad/s")
    cliff = Trainer("rlbench/CliffWalk-v0", "qlearning", seed=0)
    frame = EnvFrame(cliff, "agent")
    frame.draw(cliff, moving=False)
    assert frame.said == "state 36"


def test_marks_of_time_are_explained_where_there_are_some(bench):                       # noqa: F811
    wb = bench("CartPole-v1", "dqn", **REPLAY)
    assert "rl-legend" not in wb.page.timebar.marks.value
    wb.step("episode")
    told = wb.page.timebar.marks.value
    assert re.search("rl-legend' title='[^']*evaluation, breakpoint, fork'", told) and "episodes<i" in told
