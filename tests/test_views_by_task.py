"Views are chosen by task; each draws at any moment of a run, and its numbers are right"
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from rlbench import Workbench, record
from rlbench.core.state import same
from rlbench.core.words import ConfigError
from rlbench.envs.tabular import evaluate_policy, model_of
from rlbench.lab.views.bandit_views import BanditView
from rlbench.lab.views.chain_views import ChainValues
from rlbench.lab.pictures.components import as_page
from rlbench.lab.views.density_views import DensityView, distribution_here
from rlbench.lab.views.evaluations import Evaluations, EvaluationCurve, evaluate_every, evaluations_of
from rlbench.lab.views.part_histories import PartsHistory
from rlbench.lab.views.inspect import BufferView
from rlbench.lab.views.kept_views import MomentsView
from rlbench.lab.views.length_views import EpisodeLengths, VisitsMap
from rlbench.lab.views.memory_views import CarryView, carried_lately
from rlbench.lab.page.page import chosen_views
from rlbench.lab.time.player import Player
from rlbench.lab.views.pins import pin, pins_of
from rlbench.lab.views.pins_view import number_names
from rlbench.lab.views.policy_maps import PolicyMap, greedy_actions
from rlbench.lab.views.term_views import TermsView
from rlbench.lab.views.updates import GradientView, TargetsView, UpdateView
from rlbench.lab.views.value_views import GridValues, ValueSurface, ValueTrace
from rlbench.lab.views.views import ActionBars, LearningCurve
from rlbench.training.evaluate import evaluate
from rlbench.training.trainer import Trainer, load
from tests.cases import CASES

NEW = (BanditView, ChainValues, EpisodeLengths, VisitsMap, DensityView, CarryView, PolicyMap, PartsHistory,
       EvaluationCurve)
BY_TASK = {"bandit", "chain", "values", "lengths", "visits", "actions", "density", "carry", "policy_map"}


def shown(trainer, who="agent"):
    "Names of the views that a run gets, of those that depend on the task"
    return {kind.name for kind in chosen_views(None, trainer, who)} & BY_TASK


# ---- which views there are

@pytest.mark.parametrize("env, algo, expected", [
    ("rlbench/Bandit-v0", "bandit", {"bandit"}),
    ("rlbench/Bandit-v0", "gradient_bandit", {"bandit"}),
    ("rlbench/Bandit-v0", "ppo", {"bandit"}),
    ("rlbench/Walk-v0", "td", {"chain"}),
    ("rlbench/Gambler-v0", "value_iteration", {"chain", "actions"}),
    ("rlbench/DynaMaze-v0", "dyna", {"values", "lengths", "visits", "actions"}),
    ("rlbench/BlockingMaze-v0", "dyna", {"values", "lengths", "visits", "actions"}),
    ("FrozenLake-v1", "sarsa", {"values", "lengths", "visits", "actions"}),
    ("Taxi-v4", "qlearning", {"values", "lengths", "actions"}),
    ("rlbench/CliffWalk-v0", "ppo", {"values", "lengths", "visits", "actions"}),
    ("CartPole-v1", "ppo", {"values", "actions", "policy_map"}),
    ("CartPole-v1", "reinforce", {"values", "actions", "policy_map"}),
    ("CartPole-v1", "recurrent_ppo", {"values", "actions", "carry", "policy_map"}),
    ("rlbench/RepeatAfterMe-v0", "r2d2", {"actions", "carry"}),
    ("Pendulum-v1", "ppo", {"values", "density", "policy_map"}),
    ("Pendulum-v1", "td3", {"values", "density", "policy_map"}),
    ("Pendulum-v1", "stream_ac", {"values", "density", "policy_map"}),
    ("rlbench/SideAndForce-v0", "ppo", {"values", "density"}),
])
def test_views_are_chosen_by_task(env, algo, expected):
    assert shown(Trainer(env, algo, seed=0)) == expected


def test_a_view_that_stands_in_for_another_takes_its_place():
    walk = Trainer("rlbench/Walk-v0", "td", seed=0)
    bandit = Trainer("rlbench/Bandit-v0", "bandit", seed=0)
    assert GridValues.fits(walk, "agent") and GridValues.fits(bandit, "agent") and ActionBars.fits(bandit, "agent")
    assert [kind for kind in chosen_views(None, walk, "agent") if kind.name in ("values", "chain")] == [ChainValues]
    assert not {GridValues, ActionBars} & set(chosen_views(None, bandit, "agent"))
    assert chosen_views([GridValues], walk, "agent") == [GridValues]        # who asks for it has it
    assert chosen_views(["chain"], walk, "agent") == [ChainValues]


# ---- every algorithm, at any moment

ONCE = list({case.algo: case for case in CASES}.values())
RECURRENT = [case for case in CASES if case.cls.recurrent]


def drawn(trainer, views):
    "What each view says, drawn in both themes; the pixels of the dark one differ"
    told = {}
    for view in views:
        sights = []
        for dark in (True, False):
            view.dark(dark)
            view.draw(trainer, moving=dark)
            sights.append(view.tile())
        assert isinstance(view.text(), str) and view.text(), view.name
        assert (sights[0] is None) == (sights[1] is None)
        if sights[0] is not None:
            assert np.asarray(sights[0]).shape == np.asarray(sights[1]).shape
            assert not np.array_equal(sights[0], sights[1]), f"{view.name} is the same in the dark"
        seen = None if sights[1] is None else np.asarray(sights[1]).tobytes()
        told[view.name] = view.text(), view.ready(trainer), seen
    return told


@pytest.mark.parametrize("case", ONCE, ids=str)
def test_new_views_draw_at_the_start_later_and_after_going_back(case):
    trainer = case.trainer()
    views = [kind(trainer, "agent") for kind in NEW if kind.fits(trainer, "agent")]
    assert {PartsHistory, EvaluationCurve} <= {type(view) for view in views}
    first = drawn(trainer, views)
    start = trainer.snapshot()
    trainer.watchers += [view.note for view in views if view.note]
    for _ in range(40):
        trainer.advance()
    here = trainer.snapshot()
    later = drawn(trainer, views)
    assert same(trainer.state(), here)                                      # looking changes nothing
    assert later["parts"][1] or trainer.updates == 0
    trainer.restore(start)
    for view in views:
        view.begin(trainer)
    assert {name: told[:2] for name, told in drawn(trainer, views).items()} == {
        name: told[:2] for name, told in first.items()}                     # as it was in the beginning


@pytest.mark.parametrize("case", RECURRENT, ids=str)
def test_what_is_carried_is_what_the_policy_carried(case):
    trainer = case.trainer()
    kept = []
    for _ in range(6):
        carry = trainer.actors["agent"].carry
        kept.append(np.zeros(1) if carry is None else carry[0].numpy().copy())
        trainer.until("step")
    carry, first = carried_lately(trainer.learner, 100)
    assert len(carry) == 7 and first[0]
    assert all(np.allclose(a, b) for a, b in zip(carry, [*kept, trainer.actors["agent"].carry[0].numpy()]))


def test_a_page_that_goes_back_shows_what_it_showed():
    wb = Workbench("rlbench/DynaMaze-v0", "dyna", driver="sync", seed=0, views=["lengths", "visits"])
    wb.step("episode", 3)
    before = {card.view.name: card.view.text() for card in wb.page.cards}
    wb.step("episode", 2)
    assert before != {card.view.name: card.view.text() for card in wb.page.cards}
    wb.rewind("episode", -2)
    assert before == {card.view.name: card.view.text() for card in wb.page.cards}
    wb.reset()
    assert not any(card.view.ready(wb.trainer) for card in wb.page.cards)
    wb.close()


# ---- nothing to show

@pytest.mark.parametrize("kind", [UpdateView, GradientView, TargetsView, BufferView, PartsHistory])
def test_a_view_is_not_ready_until_there_is_something(kind):
    trainer = Trainer("CartPole-v1", "dqn", seed=0, learning_starts=20)
    view = kind(trainer, "agent")
    trainer.watchers += [view.note] if view.note else []
    view.draw(trainer, moving=False)
    assert not view.ready(trainer) and view.text()
    trainer.until("episode", 2)
    trainer.until("update", 2)
    view.draw(trainer, moving=False)
    assert view.ready(trainer)


def test_what_shows_something_is_ready():
    trainer = Trainer("CartPole-v1", "stream_q", seed=0)
    for kind in (MomentsView, ValueSurface, PolicyMap, ActionBars):
        view = kind(trainer, "agent")
        view.draw(trainer, moving=False)
        assert view.ready(trainer), kind


# ---- numbers



def test_a_chain_shows_its_truth():
    walk = Trainer("rlbench/Walk-v0", "td", seed=0, gamma=.9).run(steps=50)
    view = ChainValues(walk, "agent")
    view.draw(walk, moving=False)
    exact = evaluate_policy(model_of(walk.env.single), np.ones((21, 1)), .9)
    states, truth = view.picture.lines["truth"].get_data()
    states = states.astype(int)
    assert np.allclose(truth, exact[states])
    assert np.allclose(view.picture.lines["learned"].get_ydata(), walk.learner.nets.v.values.ravel()[states])


@pytest.mark.parametrize("distribution", ["gaussian", "state_gaussian", "squashed", "beta", "gsde"])
def test_a_density_is_that_of_the_policy(distribution):
    trainer = Trainer("Pendulum-v1", "ppo", seed=0, distribution=distribution, num_envs=2, n_steps=16).run(steps=40)
    view = DensityView(trainer, "agent")
    [(curve, _)] = view.curves(trainer)
    x = np.linspace(-30, 30, 200_001)
    assert np.trapezoid(curve.of(x), x) == pytest.approx(1, abs=5e-3)
    here = torch.from_numpy(trainer.obs["agent"][:1])
    with torch.inference_mode():
        dist = trainer.actors["agent"].nets.policy(here)
        logp = dist.logp(torch.tensor([[.7]]))
    assert curve.of(np.array([.7]))[0] == pytest.approx(float(logp.exp()), rel=1e-4)
    assert curve.greedy == pytest.approx(float(dist.mode()[0, 0]))



def test_looking_at_a_policy_with_noise_draws_nothing():
    trainer = Trainer("Pendulum-v1", "ddpg", seed=0, exploration="ou", learning_starts=20).run(steps=30)
    before = trainer.snapshot()
    for kind in (DensityView, PolicyMap):
        kind(trainer, "agent").draw(trainer, moving=False)
    assert same(trainer.state(), before)
    assert distribution_here(trainer.actors["agent"], trainer.obs["agent"][:1]).mode().shape == (1, 1)



def test_the_greedy_action_is_called_so_and_not_the_mode():
    trainer = Trainer("Pendulum-v1", "sac", seed=0, learning_starts=50)
    view = DensityView(trainer, "agent")
    view.draw(trainer, moving=False)
    [(curve, _)] = view.curves(trainer)
    act = greedy_actions(trainer.actors["agent"], trainer.obs["agent"][:1])[0, 0]
    assert curve.name == "torque (N m)" and curve.greedy == pytest.approx(act, abs=1e-5)
    assert view.text().startswith("greedy ") and "mode" not in view.text() + view.shown.svg + view.help


@pytest.mark.parametrize("words, names", [(("left", "right"), ["left", "right"]), (("go",), ["act 0", "act 1"])])
def test_numbers_of_an_action_have_the_environments_names(words, names):
    class Arm(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (3,))
        action_space = gym.spaces.Box(-1, 1, (2,))
        metadata = dict(actions=words)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(3, np.float32), {}

        def step(self, act):
            return np.zeros(3, np.float32), 0., False, False, {}

    trainer = Trainer(Arm, "ppo", seed=0)
    assert [curve.name for curve, _ in DensityView(trainer, "agent").curves(trainer)] == names
    assert PolicyMap(trainer, "agent").names == names
    pin(trainer)
    assert number_names(trainer, "agent", pins_of(trainer)["1"]) == names


# ---- sliders


def test_a_moved_slider_stays_until_it_is_told_to_follow():
    trainer = Trainer("CartPole-v1", "dqn", seed=0, learning_starts=20).run(steps=60)
    view = PolicyMap(trainer, "agent")
    view.draw(trainer, moving=False)
    slider = view.plane.others.sliders[1]
    as_page(slider, value=slider.max)
    trainer.run(steps=1)
    view.draw(trainer, moving=False)
    assert slider.value == pytest.approx(slider.max) and not view.plane.others.follow.value
    moved = trainer.obs["agent"][:1].copy()
    moved[0, 1] = slider.value
    moved[0, 3] = view.plane.others.sliders[3].value
    act = greedy_actions(trainer.actors["agent"], moved)[0]
    assert view.text().startswith(f"{view.names[act]} at the cross")
    as_page(view.plane.others.follow, value=True)
    assert slider.value == pytest.approx(float(trainer.obs["agent"][0, 1]))



# ---- evaluations

def test_a_beat_changes_nothing_and_is_kept_by_a_reset():
    wb = Workbench("CartPole-v1", "dqn", driver="sync", seed=0, learning_starts=20, views=["evaluations"])
    wb.evaluate_every(100)
    wb.step("step", 250)
    alone = Trainer("CartPole-v1", "dqn", seed=0, learning_starts=20)
    alone.until("step", 250)
    assert same(alone.state(), wb.trainer.state())
    [card] = wb.page.cards
    assert card.view.beat.every.value == 100 and "at step 200" in card.view.text()
    assert wb.evaluations.told("greedy", "agent", 250)[:, 0].tolist() == [0, 100, 200]
    wb.rewind("step", -100)
    assert wb.evaluations.told("greedy", "agent", wb.trainer.steps)[:, 0].tolist() == [0, 100]
    wb.reset()
    assert wb.evaluations.every == 100
    assert wb.evaluations.told("greedy", "agent", wb.trainer.steps)[:, 0].tolist() == [0]
    wb.evaluate_every(None)
    assert wb.evaluations.every is None
    wb.close()


def test_whatever_is_evaluated_in_hand_is_on_the_curve():
    wb = Workbench("CartPole-v1", "ppo", driver="sync", seed=0, num_envs=2, n_steps=16, views=["evaluations"])
    [card] = wb.page.cards
    assert not wb.page.is_seen(card)                    # there is nothing to see yet
    found = wb.evaluate(episodes=3, seed=5)
    assert wb.page.is_seen(card)
    assert found.returns.tolist() == evaluate(wb.trainer, 3, seed=5).returns.tolist()
    wb.page.judge.ask().result()
    [greedy], [exploring] = wb.evaluations.values()     # at the same step the newer one counts
    assert (len(greedy.by["agent"].returns), len(exploring.by["agent"].returns)) == (10, 5)
    assert "2 evaluations took" in wb.page.cards[0].view.text()
    wb.close()



@pytest.mark.parametrize("steps", [0, -5, .5, "often"])
def test_a_beat_that_is_none_is_refused(steps):
    trainer = Trainer("CartPole-v1", "ppo", seed=0)
    with pytest.raises((ConfigError, ValueError), match="evaluate_every: steps"):
        evaluate_every(trainer, steps)
    assert evaluations_of(trainer).every is None


def test_another_run_takes_the_beat_and_what_was_found_on_the_common_way():
    player = Player(Trainer("CartPole-v1", "ppo", seed=0, num_envs=2, n_steps=16), "sync")
    player.ask(lambda: evaluate_every(player.trainer, 50))
    player.beside("other", lr=.1)
    player.step("step", 40)
    assert len(evaluations_of(player.trainer)["greedy"]) == 2
    player.go_on("other")
    assert isinstance(evaluations_of(player.trainer), Evaluations)
    assert evaluations_of(player.trainer).every == 50
    assert [one.steps for one in evaluations_of(player.trainer)["greedy"]] == [0]
    player.close()


class Termed(gym.Env):
    "Pays for speed, costs fuel, ends after ten steps"
    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        terms = dict(speed=float(action), fuel=-.25 * self.t)
        return np.zeros(2, np.float32), sum(terms.values()), self.t >= 10, False, dict(reward_terms=terms)


def test_terms_keep_their_curve_and_bars_where_one_goes_back_or_loads(tmp_path):
    trainer = Trainer(Termed, "ppo", seed=1, num_envs=1, n_steps=16, batch_size=16, hidden=(8,))
    view = TermsView(trainer, "agent")
    trainer.watchers.append(view.note)
    trainer.run(steps=505)
    there = trainer.snapshot()
    view.draw(trainer, moving=False)
    points = list(view.points)
    bars = np.array(trainer.env.episodes["agent"].latest)
    assert len(points) == 50 and len(bars) == 5 and np.allclose(bars[:, 1], -.25 * np.arange(1, 6))
    trainer.run(steps=300)
    trainer.restore(there)
    view.begin(trainer)
    assert np.allclose(view.points, points) and np.array_equal(trainer.env.episodes["agent"].latest, bars)
    trainer.save(tmp_path / "run.rlb")
    other = load(tmp_path / "run.rlb", env=Termed)
    later = TermsView(other, "agent")
    later.draw(other, moving=False)
    assert np.allclose(later.points, points) and np.array_equal(other.env.episodes["agent"].latest, bars)
    there["env"]["counts"]["episodes"]["agent"].pop("latest")       # a file of before
    trainer.restore(there)
    assert len(trainer.env.episodes["agent"].latest) == 0


def test_a_trace_of_values_knows_the_step_of_its_episode():
    def angle():
        pole = gym.make("CartPole-v1")
        return gym.wrappers.TransformObservation(pole, lambda obs: obs[2:3], gym.spaces.Box(-9, 9, (1,)))

    trainer = Trainer(angle, "ppo", seed=0, n_steps=16)
    trainer.until("step", 3)
    view = ValueTrace(trainer, "agent")
    view.draw(trainer, moving=False)
    assert "step 3 of the episode" in view.said


class Overheard(CartPoleEnv):
    "Tells of each step"
    heard = staticmethod(lambda: None)

    def step(self, act):
        Overheard.heard()
        return super().step(act)


def test_an_evaluation_on_the_beat_gives_way_to_whoever_asks(monkeypatch):
    player = Player(Trainer(Overheard, "dqn", seed=0, learning_starts=1000, num_envs=1), driver="sync")
    player.ask(lambda: evaluate_every(player.trainer, 50)).result()
    found = evaluations_of(player.trainer)
    answers = []

    def ask():
        "In the middle of the greedy one"
        if found.due == ["exploring"] and not answers:
            answers.append(player.ask(lambda: (player.trainer.steps, len(found["greedy"]))))
    monkeypatch.setattr(Overheard, "heard", staticmethod(ask))
    player.step("step", 60)
    assert answers[0].result() == (50, 1)                   # before it is done
    assert [one.steps for one in found["greedy"]] == [0, 51] == [one.steps for one in found["exploring"]]
    answers.clear()
    found.patience = 0                                      # who asks always does not keep it from ever being made
    player.step("step", 60)
    assert answers[0].result() == (100, 3)
    player.close()


def test_the_colours_of_a_policy_end_where_its_actions_do():
    trainer = Trainer("Pendulum-v1", "td3", seed=0, learning_starts=50, hidden=[8])
    trainer.run(100)
    view = PolicyMap(trainer, "agent")
    for size in (1.99, .1, 1.6):
        view.picture.colour(np.linspace(-size, size, 16).reshape(4, 4))
        low, high = view.picture.range
        assert low == -high and size <= high <= 2, size
    view.picture.colour(np.full((4, 4), 3.))              # a mean may lie beyond them
    assert view.picture.range[1] >= 3


def test_who_learns_from_a_given_memory_has_no_learning_curve_until_an_episode_has_ended():
    memory = record(Trainer("CartPole-v1", "dqn", seed=0, hidden=[8]), episodes=2)
    trainer = Trainer("CartPole-v1", "bc", memory=memory, seed=0, hidden=[8], n_epochs=1)
    view = LearningCurve(trainer, "agent")
    assert not view.ready(trainer)
    for event in trainer:
        view.note(trainer, event)
        if event.ended: break
    assert trainer.env.episodes["agent"].total and view.ready(trainer)
    online = Trainer("CartPole-v1", "dqn", seed=0, hidden=[8])
    assert LearningCurve(online, "agent").ready(online)
