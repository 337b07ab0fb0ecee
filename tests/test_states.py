"One state of any run: what is thought of it, what comes of it, and that asking changes nothing"
from time import perf_counter

import gymnasium as gym
import numpy as np
import pytest

from rlbench.algos.algorithm import algorithms
from rlbench.core.state import same
from rlbench.core.words import ConfigError
from rlbench.envs.env import EnvProblem
from rlbench.envs.place import state_names
from rlbench.envs.tabular import evaluate_policy, model_of, solve
from rlbench.lab.views.hindsight_view import HindsightView
from rlbench.lab.page.workbench import Workbench
from rlbench.lab.pictures.scene import Line, Window, Words, width_of
from rlbench.lab.views.pins import Pin, Pins, opinion, pin, pins_of
from rlbench.lab.views.pins_view import PinsView, Stories
from rlbench.lab.views.rollouts import rollout_from
from rlbench.training.doctor.evidence import beliefs
from rlbench.training.hindsight import value_against_return
from rlbench.training.trainer import Trainer
from tests.cases import HOMES, ONE_EACH, differs, homes_of
from tests.test_workbench import bench, find, view                                      # noqa: F401

every_case = pytest.mark.parametrize("case", ONE_EACH, ids=str)
REPLAY = dict(seed=0, learning_starts=20, batch_size=8)
UNMEASURED = {"r2d2", "recurrent_ppo", "gradient_bandit", "bc", "gail", "linear_td"}


@every_case
def test_every_algorithm_is_asked_and_the_run_goes_on_as_if_nobody_had(case):
    trainer = case.begun(num_envs=2)
    twin = case.begun(num_envs=2)
    pin(trainer, name="here")
    pins_of(trainer).share = .5
    card = PinsView(trainer, "agent")
    trainer.until("event", 30)
    twin.until("event", 30)
    card.draw(trainer, moving=False)
    if case.env in HOMES:
        rollout_from(trainer, steps=5, times=2)
    if HindsightView.fits(trainer, "agent"):
        value_against_return(trainer, episodes=2)
    here = pins_of(trainer)["here"]
    assert np.isfinite(here.values).all() or beliefs(trainer.actors["agent"], here.obs) is None
    assert np.isfinite(here.numbers).all() and here.updates[-1] == trainer.updates
    assert differs(trainer.snapshot(), twin.snapshot()) == ""


def test_who_has_no_values_that_can_be_measured_says_why():
    refused = set()
    for algo in algorithms():
        for case in homes_of(algo)[-1:]:
            trainer = case.trainer()
            if HindsightView.fits(trainer, "agent"): continue
            with pytest.raises(ConfigError, match=f"{algo} (values|has no values)"):
                value_against_return(trainer)
            refused.add(algo)
    assert refused == UNMEASURED & set(algorithms())


class Paid(gym.Env):
    "Pays 1 a step for ever; the number of the step is seen"
    observation_space = gym.spaces.Box(0, 1e6, (1,))
    action_space = gym.spaces.Discrete(2)

    def place(self, obs):
        self.t = int(obs[0])

    def look(self):
        return np.array([self.t], np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.look(), {}

    def step(self, act):
        self.t += 1
        return self.look(), 1., False, False, {}


@pytest.mark.parametrize("env, algo", [("rlbench/RepeatAfterMe-v0", "dqn"), ("rlbench/FrozenLake-v0", "ppo"),
                                       ("rlbench/FrozenLake-v0", "stream_ac"), ("CartPole-v1", "dqn")])
def test_where_nothing_could_be_measured_that_is_said(env, algo):
    trainer = Trainer(env, algo, seed=0)
    found = value_against_return(trainer, episodes=1, longest=3, unseen=.1)
    assert found.left_out and repr(found).startswith("Hindsight(nothing: all ")
    assert "of a return is the value at a cut" in repr(value_against_return(trainer, episodes=1, longest=3))


PARTS = dict(
    pair=gym.spaces.Tuple((gym.spaces.Discrete(3), gym.spaces.Box(-1, 1, (2,)))),
    nested=gym.spaces.Tuple((gym.spaces.Dict(a=gym.spaces.Discrete(2), b=gym.spaces.Box(-1, 1, (1,))),
                             gym.spaces.Tuple((gym.spaces.MultiBinary(2), gym.spaces.Box(-2, 2, (2, 2)))))),
)


@pytest.mark.parametrize("algo, parts, size", [("sac", "pair", 3), ("ppo", "pair", 3), ("ppo", "nested", 8)])
def test_a_pin_tells_every_number_of_an_action_in_parts(algo, parts, size):
    class Made(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (2,))
        action_space = PARTS[parts]

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(2, np.float32), {}

        def step(self, act):
            assert act in self.action_space
            return np.zeros(2, np.float32), 1., False, False, {}

    trainer = Trainer(Made, algo, seed=0)
    trainer.until("step", 3)
    pin(trainer, name="here")
    assert pins_of(trainer)["here"].kind == "action"
    assert pins_of(trainer)["here"].numbers.shape == (1, size)
    trainer.close()


def test_a_cut_is_completed_by_the_value_there():
    trainer = Trainer(lambda: gym.wrappers.TimeLimit(Paid(), 40), "ppo", gamma=.9, n_steps=8, num_envs=2)
    found = value_against_return(trainer, episodes=1)
    cut = beliefs(trainer.actors["agent"], np.array([[40.]], np.float32))[0]
    steps = 40 - found.obs[:, 0]
    assert found.returns == pytest.approx((1 - .9**steps) / .1 + .9**steps * cut, rel=1e-5)
    assert found.left_out == np.sum(.9 ** np.arange(1, 41) > .1) and found.greedy is False


def test_a_rollout_is_cut_by_its_steps_by_a_limit_or_ends():
    trainer = Trainer(lambda: gym.wrappers.TimeLimit(Paid(), 40), "ppo", gamma=.9)
    short = rollout_from(trainer, [3.], steps=10)
    assert short.ending == "still going" and short.rows.obs[:, 0].tolist() == list(range(3, 13))
    after = beliefs(trainer.actors["agent"], short.rows.next_obs[-1:])[0]
    assert short.ret == pytest.approx((1 - .9**10) / .1 + .9**10 * after, rel=1e-5)
    assert short.unseen == pytest.approx(.9**10) and short.frames == {} and short.reach < 1e-6
    assert rollout_from(trainer, [3.], steps=100).ending == "cut by a limit"
    pole = Trainer("CartPole-v1", "ppo")
    over = rollout_from(pole, [0, 0, .2, 3.])
    assert over.ending == "ended" and over.unseen == 0
    assert over.ret == pytest.approx((1 - .99**len(over.rows.rew)) / .01)


PLACED = ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "FrozenLake-v1", "Taxi-v4"]


@pytest.mark.parametrize("env", PLACED)
def test_the_environment_shows_the_state_that_was_asked_for(env):
    trainer = Trainer(env, "ppo", seed=3, n_steps=16, num_envs=3).run(steps=96)
    for obs in (trainer.obs["agent"][1], trainer.learner.memory.gather(np.array([4])).obs[0]):
        found = rollout_from(trainer, obs, steps=3, times=2)
        assert np.array_equal(found.rows.obs[0], obs)


def test_a_rollout_of_a_sure_thing_is_the_exact_value():
    trainer = Trainer("rlbench/CliffWalk-v0", "qlearning", seed=0).run(steps=8000)
    exact, _ = solve(model_of(trainer.env.single), trainer.learner.algo.gamma)
    for state in (36, 24, 35):
        assert rollout_from(trainer, state).ret == pytest.approx(exact[state], rel=1e-6)
    found = value_against_return(trainer, episodes=1)
    assert abs(found.bias) < 1e-3 and found.correlation > .999


def test_watching_costs_a_hundredth():
    trainer = Trainer("CartPole-v1", "dqn", **REPLAY)
    pin(trainer)
    pins = pins_of(trainer)
    asked = []
    ask = pins.ask

    def timed(trainer):
        start = perf_counter()
        ask(trainer)
        asked.append(perf_counter() - start)

    pins.ask = timed
    start = perf_counter()
    while perf_counter() - start < 1.: trainer.advance()
    assert 1 < len(asked) and sum(asked[:-1]) < .02


def test_a_long_story_is_thin_everywhere():
    trainer = Trainer("CartPole-v1", "dqn", **REPLAY)
    pin(trainer)
    one = pins_of(trainer)["1"]
    one.most = 20
    trainer.watchers.append(lambda trainer, event: event.kind == "learn" and one.ask(trainer))
    trainer.run(steps=1500)
    assert len(one.story) < 20 * (1 + np.log(1500)) and one.updates[[0, -1]].tolist() == [0, trainer.updates]


def test_pins_go_back_with_the_run_and_on_with_another(bench, tmp_path):                # noqa: F811
    wb = bench(algo="dqn", **REPLAY)
    assert wb.pin(name="start") == "start"
    wb.pins.share = .9
    wb.step("update", 30).save(tmp_path / "run.rlb")
    assert len(wb.pins["start"].story) > 1
    wb.rewind("update", -20)
    assert wb.pins["start"].updates[-1] == wb.trainer.updates < 30
    wb.load(tmp_path / "run.rlb")
    assert wb.pins["start"].updates[-1] == 30
    wb.reset()
    assert wb.pins["start"].updates.tolist() == [0]
    assert sum(isinstance(one, Pins) for one in wb.trainer.watchers) == 1
    assert not wb.unpin().pins and view(wb, "pins").text() == "no state is pinned"


def test_the_buttons_do_what_the_methods_do(bench):                                     # noqa: F811
    wb = bench(algo="dqn", **REPLAY)
    wb.step("step", 40)
    before = wb.snapshot()
    card = view(wb, "buffer")
    card.wanted(7)
    find(card.widget, "rl-pin").click()
    find(card.widget, "rl-rollout").click()
    stored = wb.trainer.learner.memory.gather(np.array([7])).obs[0]
    assert np.array_equal(wb.pins["1"].obs[0], stored)
    assert np.array_equal(card.transition.here.played.rows.obs, wb.rollout(row=7).rows.obs)
    pins = view(wb, "pins")
    assert pins.tile() is not None and "1" in pins.text()
    find(pins.widget, "rl-pin").click()
    assert list(wb.pins) == ["1", "2"] and len(pins.pick.options) == 3
    pins.pick.value = "2"
    find(pins.widget, "rl-unpin").click()
    assert list(wb.pins) == ["1"] and pins.pick.value == ""
    find(view(wb, "hindsight").widget, "rl-measure").click()
    assert view(wb, "hindsight").found.bias == wb.value_against_return(episodes=5).bias
    assert same(wb.snapshot(), before)


def test_a_pin_is_seen_at_once_and_says_which_one_is_meant(bench):                      # noqa: F811
    wb = bench("CartPole-v1", "ppo", views=["pins"], seed=0, n_steps=16)
    wb.page.flip(wb.page.cards[0], True)
    card = view(wb, "pins")
    forget = find(card.widget, "rl-unpin")
    find(card.widget, "rl-pin").click()
    assert forget.disabled and "on the right probability in pin 1" in card.text()
    seen = [(mark, box) for box in card.shown.marks if isinstance(box, Window) for mark in box.marks]
    dots = [mark for mark, _ in seen if isinstance(mark, Line) and mark.kind == "dots"]
    assert len(dots) == 3                                 # its value, and two actions
    words = [(mark, box) for mark, box in seen if isinstance(mark, Words)]
    assert {mark.words for mark, _ in words} == {"1", "push left", "push right"}
    for mark, box in words:
        wide = width_of(mark.words, 8)
        start = mark.x - wide * (mark.anchor == "rb")
        assert box.left <= start and start + wide <= box.right
        assert box.top + 8 <= mark.y <= box.bottom
    assert "what would be done in pin 1" in card.shown.words
    find(card.widget, "rl-pin").click()
    card.pick.value = "2"
    assert not forget.disabled and "in pin 2" in card.text() and "what would be done in pin 2" in card.shown.words
    forget.click()
    assert list(wb.pins) == ["1"] and forget.disabled


@pytest.mark.parametrize("numbers", [[.5, .5, .501], [0., .01, .02], [1., 1., 1.], [.3, np.nan, .3]])
def test_names_at_the_ends_of_lines_are_apart(numbers):
    pins = dict(first=Pin("agent", None))
    pins["first"].story = [(at, .5, np.array(numbers) * (at + 1)) for at in range(9)]
    sheet = Stories().tell(pins, {}, pins["first"], ["left", "up", "right"])
    window = sheet.marks[-1]
    heights = sorted(mark.y for mark in window.marks if isinstance(mark, Words))
    assert len(heights) == np.isfinite(numbers).sum() and np.diff(heights).min() >= 9.9
    assert window.top < heights[0] - 8 and heights[-1] <= window.bottom


def test_a_click_on_the_map_is_a_state(bench):                                          # noqa: F811
    wb = bench("rlbench/CliffWalk-v0", "qlearning", seed=0)
    grid = view(wb, "values")
    grid.grids[0].selected = 24
    find(grid.widget, "rl-rollout").click()
    find(grid.widget, "rl-pin").click()
    assert grid.here.played.rows.obs[0] == 24 == wb.pins["1"].obs[0]


def test_where_nobody_can_be_put_the_page_says_so(bench):                               # noqa: F811
    wb = bench(Trainer("rlbench/Chase-v0", dict(chaser="dqn", runner="ppo"), **REPLAY), views=["pins"])
    card = view(wb, "pins")
    find(card.widget, "rl-rollout").click()              # where the run is, a copy of it plays on
    assert len(card.here.played.rows.rew)
    assert wb.pin(who="runner") == "1" and card.text() == "no state is pinned"
    wb.pin(who="chaser", name="here")
    card.pick.value = "here"
    find(card.widget, "rl-rollout").click()
    assert "one behaviour does not see all of it" in wb.page.complaint.widget.value
    with pytest.raises(ConfigError, match="which behaviour"):
        wb.pin()


def noted(wb):
    "What pins and evaluations hold: (updates of the pin, steps of the greedy evaluations)"
    return wb.pins["p"].updates.tolist(), [one.steps for one in wb.evaluations["greedy"]]


def test_what_is_remembered_happened_on_the_way_to_here(bench, tmp_path):               # noqa: F811
    wb = bench(views=["curve"], driver="sync", n_steps=16, num_envs=1)
    wb.step("step", 32).pin(name="p")
    wb.pins.share = .9
    first = wb.trainer.updates
    wb.evaluate(episodes=1)
    branch_at = wb.timeline.at
    wb.step("step", 100).evaluate(episodes=1)
    held = noted(wb)
    assert held[0][0] == first and len(held[0]) > 2 and held[1] == [32, 132]

    wb.rewind(branch_at)
    assert noted(wb) == ([first], [32])
    one = wb.pins["p"]
    thought = {first: one.values[0]}
    wb.trainer.watchers.append(lambda run, _: thought.update({run.updates: opinion(run.actors["agent"], one.obs)[0]}))
    wb.set(lr=1e-9).step("step", 120)                    # past where the other branch was evaluated
    assert len(one.story) > 2 and noted(wb)[1] == [32]
    assert [thought[at] for at in one.updates] == one.values.tolist()
    wb.evaluate(episodes=1)
    assert noted(wb)[1] == [32, 152]
    here = wb.timeline.at

    wb.rewind(wb.timeline.ways[0].end, branch=1)         # where it was abandoned, all is as it was
    assert noted(wb)[1] == held[1] and set(held[0]) <= set(noted(wb)[0])
    wb.rewind(here, branch=2)
    wb.beside("other", lr=.1)
    wb.step("step", 50).evaluate(episodes=1)
    wb.go_on("other")
    assert noted(wb)[1] == [32, 152]
    wb.go_on("run")
    assert noted(wb)[1] == [32, 152, 202]
    wb.drop("other")
    wb.save(tmp_path / "run.rlb").load(tmp_path / "run.rlb")
    assert noted(wb) == ([wb.trainer.updates], [])       # from a file: nobody knows what was before
    wb.reset()
    assert noted(wb) == ([0], [])


def test_a_pin_that_is_younger_than_where_one_goes_is_asked_there(bench):               # noqa: F811
    wb = bench(views=["curve"], driver="sync", n_steps=16)
    wb.step("step", 200).pin(name="p")
    tree = wb.snapshot()
    wb.rewind("step", -150)
    assert wb.pins["p"].updates.tolist() == [wb.trainer.updates]
    wb.set(lr=.1).step("step", 10).rewind(tree)          # no way leads there: what was known of this one is nothing
    assert wb.pins["p"].updates.tolist() == [wb.trainer.updates]


class Nothing(gym.Env):
    "Thirty steps that pay nothing"
    observation_space = gym.spaces.Box(0, 1, (1,))
    action_space = gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(1, self.t / 30, np.float32), 0., self.t >= 30, False, {}


@pytest.mark.parametrize("algo", ["sac", "tqc", "crossq"])
def test_entropy_counts_in_the_return_as_it_does_in_the_value(algo):
    trainer = Trainer(Nothing, algo, seed=0, ent_coef=.2, learning_starts=100, batch_size=64, hidden=(32,))
    trainer.until("update", 5)
    found = value_against_return(trainer, episodes=3)
    gamma, alpha = trainer.learner.algo.gamma, .2
    assert found.bonus == pytest.approx(found.returns.mean()) and found.bonus > 0 and not found.greedy
    least, most = (alpha * ent * (1 - gamma**29) / (1 - gamma) * gamma for ent in (0, np.log(2)))
    assert least < found.returns.max() < 1.05 * most     # of an action in [-1, 1] at most log 2 nats, by samples
    assert found.returns[-1] == 0 and "for entropy" in repr(found)


@pytest.mark.parametrize("env, algo", [("Pendulum-v1", "sac"), ("MountainCar-v0", "dqn")])
def test_value_against_return_is_at_hand_where_every_episode_is_cut(env, algo):
    trainer = Trainer(env, algo, seed=0, learning_starts=50, batch_size=16, hidden=(16,)).run(steps=60)
    found = value_against_return(trainer, episodes=2)
    assert len(found.values) == 100 and found.left_out == 300
    assert found.unseen == pytest.approx(.99**151) and "22% of a return is the value at a cut" in repr(found)
    assert len(value_against_return(trainer, episodes=1, unseen=1.).values) == 200
    assert len(value_against_return(trainer, episodes=1, unseen=.1).values) == 0
    for wrong in (-.1, 2, "all"):
        with pytest.raises(ValueError, match="unseen = .*expected a share"):
            value_against_return(trainer, episodes=1, unseen=wrong)


@pytest.mark.parametrize("algo", ["td", "td_lambda", "linear_td"])
def test_who_learns_values_of_a_given_policy_rolls_that_out(algo):
    trainer = Trainer("FrozenLake-v1", algo, seed=0)
    model = model_of(trainer.env.single)
    gamma = trainer.learner.algo.gamma
    exact = evaluate_policy(model, np.full((16, 4), .25), gamma)[9]
    found = rollout_from(trainer, 9, times=2000, steps=500)
    assert exact > .05 and abs(found.mean - exact) < 2 * found.reach


def test_pin_and_rollout_mean_the_same_value():
    trainer = Trainer("FrozenLake-v1", "sarsa", seed=0).run(steps=3000)
    pin(trainer, 9, "here")
    assert rollout_from(trainer, 9).val[0] == pins_of(trainer)["here"].values[-1]


@pytest.mark.parametrize("env, algo", [("Blackjack-v1", "qlearning"),
                                       ("rlbench/Chase-v0", dict(chaser="dqn", runner="ppo"))])
def test_where_the_run_is_a_copy_of_it_plays_on(env, algo):
    trainer = Trainer(env, algo, seed=0, num_envs=2)
    trainer.until("step", 5)
    before = trainer.snapshot()
    who = list(trainer.actors)[0]
    found = rollout_from(trainer, who=who, times=20, steps=5)
    assert same(trainer.snapshot(), before) and np.array_equal(found.rows.obs[0], trainer.obs[who][0])
    again = rollout_from(trainer, who=who, times=1, steps=5)
    assert found.ret == again.ret and len(found.returns) == 20
    assert env != "Blackjack-v1" or len(np.unique(found.returns)) > 1
    with pytest.raises(ValueError, match="cannot be put into a state that is shown"):
        rollout_from(trainer, trainer.obs[who][0], who=who)


def test_how_far_a_pin_is_from_the_truth_is_a_number(bench):                           # noqa: F811
    wb = bench("rlbench/CliffWalk-v0", "qlearning", seed=0)
    wb.pin(36, name="start")
    exact, _ = solve(model_of(wb.trainer.env.single), wb.trainer.learner.algo.gamma)
    wb.step("step", 300)
    off = wb.pins["start"].values[-1] - exact[36]
    assert wb.distances() == dict(start=pytest.approx(off)) and "from the exact" in view(wb, "pins").said
def placed_by(place):
    "Pays 1 a step; it has something that is called place"
    return type("Somewhere", (Paid,), dict(place=place))


def put_elsewhere(self, obs):
    self.t = 0
    return self.look()


def put_exactly(self, obs):
    self.t = int(obs[0])
    return self.look()


def off_the_road(self, obs): raise KeyError("road")


@pytest.mark.parametrize("place, why", [
    (3, "its place is no place"),
    (lambda self, item, where: None, "its place is no place"),
    (lambda self, obs: False, "answers False"),
    (off_the_road, "raised KeyError: 'road'"),
    (put_elsewhere, "leads elsewhere"),
    (put_exactly, ""),
], ids=["a number", "another method", "no", "an error", "elsewhere", "there"])
def test_what_is_called_place_is_asked_where_it_leads(place, why):
    book = Workbench(placed_by(place), "ppo", driver="sync", n_steps=16, hidden=(8,), views=[])
    book.step("step", 5)
    for there in (book.rollout, book.place):
        if why:
            with pytest.raises((ValueError, EnvProblem), match=why):
                there(np.array([4.]))
        else: there(np.array([4.]))
    assert (book.trainer.obs["agent"][0, 0] == 4) == (not why)
    book.step("step")
    book.close()


def test_who_returns_nothing_is_not_believed_in_silence():
    with pytest.warns(UserWarning, match="nobody can tell whether it leads"):
        rollout_from(Trainer(Paid, "ppo", hidden=(8,)))


# ---- what stands between an environment and who sees it

def tenfold(obs): return 10 * obs


@pytest.mark.parametrize("wrap", [
    lambda env: gym.wrappers.TransformObservation(env, tenfold, None),
    lambda env: gym.wrappers.FrameStackObservation(env, 2),
    gym.wrappers.TimeAwareObservation,
    gym.wrappers.NormalizeObservation,
], ids=["scaled", "stacked", "timed", "normalised"])
def test_behind_a_wrapper_that_changes_what_is_seen_nothing_is_placed(wrap):
    book = Workbench(lambda: wrap(gym.make("CartPole-v1")), "ppo", driver="sync", n_steps=16, hidden=(8,), views=[])
    book.step("step", 5)
    there = book.trainer.obs["agent"][0].copy()
    for deed in (book.place, book.rollout):
        with pytest.raises((ValueError, EnvProblem), match="Observation changes what is seen"):
            deed(there)
    assert state_names(book.trainer.env.single) == ()
    book.step("step", 20)
    book.close()


@pytest.mark.parametrize("make", [
    lambda: gym.wrappers.FlattenObservation(gym.make("FrozenLake-v1")),
    lambda: gym.wrappers.TimeAwareObservation(gym.make("FrozenLake-v1")),
    lambda: gym.wrappers.FlattenObservation(gym.make("CliffWalking-v1")),
], ids=["flat lake", "timed lake", "flat cliff"])
def test_wrapped_worlds_open_in_a_workbench(make):
    book = Workbench(make, "dqn", driver="sync", hidden=(8,), learning_starts=10)
    assert book.step("step", 20).trainer.steps == 20
    book.close()


class TwoParts(gym.Env):
    "Shows a number and a count; it can be put where both are as asked"
    observation_space = gym.spaces.Tuple((gym.spaces.Box(0, 9, (1,)), gym.spaces.Discrete(9)))
    action_space = gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return self.look(), {}

    def look(self):
        return np.array([self.at], np.float32), self.at

    def place(self, obs):
        there, count = obs
        assert isinstance(obs, tuple) and there[0] == count
        self.at = int(count)
        return self.look()

    def step(self, act):
        self.at += 1
        return self.look(), 1., self.at == 8, False, {}


def test_an_environment_of_parts_is_told_them_as_its_space_has_them():
    book = Workbench(TwoParts, "ppo", driver="sync", n_steps=16, hidden=(8,), views=[])
    book.step("step", 3)
    book.place(obs=(np.array([5.], np.float32), 5))
    assert book.trainer.env.single.unwrapped.at == 5 or book.trainer.obs["agent"]["1"][0] == 5
    book.step("step", 1)
    assert book.trainer.obs["agent"]["1"][0] == 6
    book.close()


# ---- a click on the map of a world whose states are numbers

def clicked(one, share=(.5, .5)):
    "Click on a place of a map, as the page tells of it"
    left, top, right, bottom = one.picture.ax.box
    x = left + share[0] * (right - left)
    y = bottom - share[1] * (bottom - top)
    one.image._handle_custom_msg({"clicked": [x, y]}, [])


@pytest.mark.parametrize("name", ["values", "policy_map"])
def test_what_is_clicked_on_a_map_is_pinned_and_played_on_from(bench, name):            # noqa: F811
    wb = bench("CartPole-v1", "ppo", views=[name, "pins"], driver="sync", n_steps=16, num_envs=1)
    wb.step("step", 60)
    one = view(wb, name)
    before = wb.trainer.digest()
    clicked(one, (.25, .75))
    asked = one.meant(wb.trainer)
    (low, high), (bottom, top) = one.picture.ax.xlim, one.picture.ax.ylim
    assert asked[one.axes] == pytest.approx([low + .25 * (high - low), bottom + .75 * (top - bottom)], rel=1e-5)
    one.here.pin(wb.trainer)
    one.here.roll(wb.trainer)
    assert same(wb.pins["1"].obs[0], asked) and same(one.here.played.rows.obs[0], asked)
    assert wb.trainer.digest() == before


def test_without_a_click_the_sliders_state_is_meant(bench):                             # noqa: F811
    wb = bench("CartPole-v1", "ppo", views=["values", "pins"], driver="sync", n_steps=16, num_envs=1)
    wb.step("step", 20)
    one = view(wb, "values")
    assert same(one.meant(wb.trainer), wb.trainer.obs["agent"][0])
    hidden = next(axis for axis in range(4) if axis not in one.axes)
    slider = one.plane.others.sliders[hidden]
    slider.value = slider.max
    asked = one.meant(wb.trainer)
    assert asked[hidden] == pytest.approx(slider.max, rel=1e-5)
    one.here.pin(wb.trainer)
    assert same(wb.pins["1"].obs[0], asked)


def test_another_axis_and_a_rewind_forget_the_click(bench):                             # noqa: F811
    wb = bench("CartPole-v1", "ppo", views=["values"], driver="sync", n_steps=16, num_envs=1)
    wb.step("step", 20)
    one = view(wb, "values")
    clicked(one)
    assert one.spot is not None
    one.picks[0].value = next(axis for axis in range(4) if axis not in one.axes)
    assert one.spot is None and "here" in one.text()
    clicked(one)
    wb.rewind(3)
    assert view(wb, "values").spot is None


def test_maps_beside_each_other_are_not_clicked(bench):                                 # noqa: F811
    wb = bench("CartPole-v1", "ppo", driver="sync", n_steps=16, num_envs=1)
    wb.step("step", 20)
    wb.beside("other", lr=.1)
    wb.look("compare").step("step", 2)
    assert [one.image.clicks for one in view(wb, "both-values").views] == [False, False]
