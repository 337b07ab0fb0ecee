"A run stops at the event at which a condition holds, and says why"
import re
import warnings
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from rlbench.algos.ppo import PPO
from rlbench.core.batch import Batch
from rlbench.envs.env import EnvProblem
from rlbench.lab.time.breakpoints import Breakpoints, Prefers, limit_in, names_for
from rlbench.lab.time.expressions import BadExpression, Expression
from rlbench.lab.time.not_finite import cause
from rlbench.lab.time.player import Player
from rlbench.lab.time.timeline import Timeline
from rlbench.training.learner import NotFinite
from rlbench.training.trainer import Trainer
from tests.cases import ONE_EACH, Case
from tests.test_workbench import bench                                                  # noqa: F401

REPLAY = dict(seed=0, learning_starts=20, batch_size=8)


def test_a_run_stops_before_the_next_event_and_says_why(bench):                         # noqa: F811
    wb = bench(algo="dqn", views=["curve"], **REPLAY)
    number = wb.break_when("episode_length > 20")
    wb.step("step", 5000)
    assert wb.player.hit.number == number and wb.trainer.episodes.finished[-1].length > 20
    assert "episode_length = " in repr(wb) and wb.trainer.steps < 5000
    steps = wb.trainer.steps
    wb.unbreak(number).step("step", 3)
    assert wb.trainer.steps == steps + 3 and wb.player.hit is None


def test_every_kind_of_condition(bench):                                                # noqa: F811
    wb = bench(algo="dqn", views=["curve"], **REPLAY)
    for what in ("updates == 7", lambda trainer, event: trainer.steps == 40):
        wb.break_when(what)
        wb.step("step", 500)
        assert wb.player.hit
    assert wb.trainer.steps == 40
    wb.unbreak().break_when(obs=np.zeros(4, np.float32))
    wb.step("step", 2000)
    assert "before" in wb.player.hit.words
    with pytest.raises(BadExpression, match="did you mean 'td_error'"):
        wb.break_when("td_err > 1")
    with pytest.raises(ValueError, match="unknown breakpoint"):
        wb.unbreak(99)


def test_a_reward_that_is_no_number_is_found_at_once():
    trainer = Trainer("CartPole-v1", "dqn", check_env=False, **REPLAY)
    stops = Breakpoints()
    stops.add("nan", trainer)
    step = trainer.env.envs[0].step

    def paid_nothing_at_all(act):
        obs, _, *rest = step(act)
        return obs, np.nan, *rest

    trainer.env.envs[0].step = paid_nothing_at_all
    assert stops.look(trainer, trainer.advance()).words == "not finite: rew of agent"


@pytest.mark.parametrize("who", ["chaser", "runner"])
def test_of_several_behaviours_each_is_looked_at(who):
    trainer = Trainer("rlbench/Chase-v0", dict(chaser="dqn", runner="ppo"), seed=0, num_envs=2)
    stops = Breakpoints()
    for what in ("nan", "rew > 1000", "rew > 1e6"): stops.add(what, trainer)
    event = trainer.advance()
    assert stops.look(trainer, event) is None
    row = event.rows[who]
    event.rows[who] = Batch(row, rew=np.array([0., np.nan]))
    assert stops.look(trainer, event).words == f"not finite: rew of {who}"
    event.rows[who] = Batch(row, rew=np.array([0., 2000.]))
    hit = stops.look(trainer, event)
    assert (hit.number, hit.words) == (2, f"rew = 2000, row 1 of 2, of {who}")


def test_a_reward_of_the_first_of_several_stops_the_page(bench):                         # noqa: F811
    wb = bench("rlbench/Chase-v0", dict(chaser="dqn", runner="ppo"), num_envs=1, views=["curve"])
    wb.break_when("rew > -1000")
    wb.step("step", 3)
    assert wb.trainer.steps == 1 and wb.player.hit.words.endswith("of chaser")


COLUMNS = [[.7], [.1, .7], [.7, 1.], [np.nan, .7], [np.nan], [0, 1]]
WHOLE = np.int64, np.uint8, bool
KINDS = [np.float16, np.float32, np.float64, *WHOLE, torch.float32, torch.float64]


def column_of(numbers, kind):
    "An array or a tensor of a kind; whole numbers have no nan"
    if isinstance(kind, torch.dtype): return torch.tensor(numbers, dtype=kind)
    return np.array(np.nan_to_num(numbers) if kind in WHOLE else numbers).astype(kind)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("sign", [">", ">=", "<", "<="])
def test_the_quick_look_and_the_expression_agree(kind, sign):
    for number, column in product((.7, .1, 1, -1, 1e4), COLUMNS):
        text = f"rew {sign} {number}"
        rew = column_of(column, kind)
        kept = limit_in(text)(None, SimpleNamespace(kind="collect", data=dict(rew=rew)))
        held = Expression(text)(dict(rew=np.asarray(rew))).any()
        assert not (kept and held) and (kept or held or number in column or np.isnan(column).any()), (text, rew)


def test_a_return_is_of_the_behaviour_whose_episode_ended_and_names_its_environment():
    trainer = Trainer("rlbench/Pennies-v0", "ppo", seed=0, num_envs=3)
    stops = Breakpoints()
    stops.add("episode_return > .5", trainer)
    for _ in range(5):
        hit = None
        while not hit:
            event = trainer.advance()
            hit = stops.look(trainer, event)
        won = [(one.who, f"episode_return = {one.ret:.4g}, environment {one.env} of 3") for one in event.ended
               if one.ret > .5]
        assert hit.words in [f"{words}, of {who}" for who, words in won]


def test_an_episode_is_asked_together_with_the_row_that_it_ended_with():
    trainer = Trainer("CartPole-v1", "ppo", seed=0, num_envs=16)
    stops = Breakpoints()
    number = stops.add("episode_return > 12 and obs[2] < 0", trainer)
    for _ in range(80):
        event = trainer.advance()
        if event.kind != "collect": continue
        hit = stops.look(trainer, event)
        ended = [one for one in event.ended if one.ret > 12 and event.data.obs[one.env, 2] < 0]
        assert bool(hit) == bool(ended)
        if hit:
            assert hit.words.endswith(f"environment {ended[0].env} of 16")
    assert stops.hits[number] > 5


@pytest.mark.parametrize("env, num_envs, text", [
    ("CartPole-v1", 16, "obs > 0 and rew > 0"),
    ("CartPole-v1", 4, "obs > 0 and rew > 0"),          # numpy would pair numbers of one row with four rows
    ("Pendulum-v1", 3, "act > 0 and rew < 0"),          # and every row with every other
])
def test_each_row_is_asked_alone(env, num_envs, text):
    trainer = Trainer(env, "ppo", num_envs=num_envs)
    stops = Breakpoints()
    stops.add(text, trainer)
    event = trainer.advance()
    column = event.data[text.partition(" ")[0]].reshape(num_envs, -1)
    held = np.flatnonzero((column > 0).any(1) & (event.data.rew != 0))
    assert stops.look(trainer, event).words.endswith(f"row {held[0]} of {num_envs}")


def test_a_row_that_is_no_transition_hits_nothing():
    trainer = Trainer("CartPole-v1", "dqn", seed=0, num_envs=4, learning_starts=1000)
    stops = Breakpoints()
    for text in ("nan", "rew < 1", "abs(rew) < 1", "min(rew) < 1"):
        stops.add(text, trainer)
    anew = 0
    for _ in range(100):
        event = trainer.advance()
        gaps = ~event.steps["agent"].valid
        anew += gaps.any()
        event.data.next_obs[gaps] = np.nan
        assert stops.look(trainer, event) is None
    assert anew > 5
    event.data.rew[2:] = 0
    event.steps["agent"].valid[:3] = False
    assert stops.look(trainer, event).words == "rew = 0, row 3 of 4"


def test_large_numbers_are_finite_and_nobody_is_warned():
    trainer = Trainer("CartPole-v1", "ppo", num_envs=2)
    stops = Breakpoints()
    stops.add("nan", trainer)
    event = trainer.advance()
    event.data.rew[0] = event.data.next_obs[1, 2] = 1e30
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stops.look(trainer, event) is None
        event.data.next_obs[0, :2] = np.inf, -np.inf
        assert stops.look(trainer, event).words == "not finite: next_obs of agent"


def test_a_preference_is_asked_anew_where_the_run_sets_out(bench):                      # noqa: F811
    wb = bench(algo="dqn", views=["curve"], lr=1e-2, **REPLAY)
    wb.break_when(obs=np.array([0, .1, 0, -.1], np.float32))
    wb.step("update", 500)
    at, words = wb.timeline.at, wb.player.hit.words
    for _ in range(2):
        wb.rewind(at - 1).step()
        assert (wb.timeline.at, wb.player.hit.words) == (at, words)


def test_a_preference_for_an_action_in_parts():
    trainer = Trainer("rlbench/SideAndForce-v0", "ppo", seed=0, num_envs=2, n_steps=8)
    watched = Prefers(trainer.obs["agent"][0], "agent", trainer)
    event = trainer.until("update")
    watched(trainer, event)
    watched.updates -= 1                                    # asked once more about the same weights
    assert watched(trainer, event) == ""


@pytest.mark.parametrize("owed", [1, 3])
def test_a_hand_on_the_way_to_its_step_stops_at_a_breakpoint(bench, owed):              # noqa: F811
    wb = bench(algo="dqn", views=["curve"], **REPLAY).step("iteration")
    wb.trainer.learner.owe(owed)
    wb.break_when("loss > 0")
    steps, updates = wb.trainer.steps, wb.trainer.updates
    wb.act(1)
    assert (wb.trainer.steps, wb.trainer.updates, wb.trainer.chosen) == (steps, updates + 1, {})
    assert "Paused at breakpoint 1" in repr(wb) and "choose" not in wb.timeline.script()[-1]
    wb.unbreak().act(1)
    assert wb.trainer.steps == steps + 1 and wb.trainer.learner.by_hand


GOOD = ["rew", "rew > 1 or (adv < 0 and not term)", "obs[0] * 2 + 1 >= -3", "1 < rew < 3", "mean(abs(rew)) == 0",
        "rew % 2 == 1", "-rew ** 2 < 4"]
BAD = ["rew.shape", "().__class__", "print(rew)", "rew := 1", "f'{rew}'", "rew[0:2]", "rew, adv", "rew if adv else 1",
       "yield rew", "await rew", "rew @ adv", "rew << 2", "'rew'", "...", "max(rew, key=abs)", "abs(*rew)",
       "a" * 100_000, "(" * 2000 + ")" * 2000, "rew\nadv"]


@pytest.mark.parametrize("text", GOOD)
def test_expressions_answer_as_numpy_would_row_by_row(text):
    rng = np.random.default_rng(0)
    rows = dict(rew=rng.integers(-3, 4, 50).astype(float), adv=rng.normal(size=50), term=rng.random(50) < .5,
                obs=rng.normal(size=(50, 3)))
    found = np.broadcast_to(Expression(text, rows)(rows), 50)
    for i in range(50):
        row = {name: column[i] for name, column in rows.items()}
        row |= dict(mean=lambda x: np.mean(np.abs(rows["rew"])), abs=abs)
        assert eval(text, row) == found[i]


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_nothing_else_is_an_expression(text):
    with pytest.raises(BadExpression):
        Expression(text, ["rew", "adv"])


def test_the_cause_of_an_update_that_is_fine_is_none():
    trainer = Trainer("CartPole-v1", "ppo", num_envs=2, n_steps=8, batch_size=8)
    trainer.until(lambda event: event.kind == "process")
    before = trainer.snapshot()
    assert cause(trainer.learner) == ""
    trainer.advance()
    after = trainer.snapshot()
    trainer.restore(before)
    trainer.advance()
    assert str(trainer.snapshot()) == str(after)


# ---- the first number that is not finite, named

@dataclass(frozen=True)
class Faulty(PPO):
    "PPO with something added to its loss"
    added = staticmethod(lambda val: 0. * val)

    def losses(self, nets, batch):
        for group, loss, named in super().losses(nets, batch):
            yield group, loss + self.added(self.values(nets, batch.obs)).sum(), named


def about_to_learn(algo="ppo", env="CartPole-v1", **settings):
    "A trainer whose next event is an update"
    more = dict(num_envs=2, n_steps=8, batch_size=8) if algo == "ppo" or isinstance(algo, Faulty) else REPLAY
    trainer = Trainer(env, algo, **({} if algo == "qlearning" else more) | settings)
    trainer.until(lambda event: event.kind == "process")
    return trainer


def with_loss(added):
    "A trainer whose loss has one more part, a function of values"
    return about_to_learn(type("Faulty", (Faulty,), dict(added=staticmethod(added)))())


def nan_in(column):
    trainer = about_to_learn()
    trainer.learner.data[column][:] = np.nan
    return trainer


def with_weight(name, number, env="CartPole-v1"):
    trainer = about_to_learn(env=env)
    with torch.no_grad():
        dict(trainer.learner.nets.named_parameters())[name].fill_(number)
    return trainer


def log_of_nothing(val):
    return (val * 0).log()


def nothing_by_nothing(val):
    return (val * 0) / (val * 0)


def root_of_nothing(val):
    return (val * 0).sqrt()


def far_too_much(val):
    return (val + 1000).exp()


CASES = {
    "a return": (nan_in, ["ret"], "ret in rows 0, 1"),
    "an advantage": (nan_in, ["adv"], "adv in rows 0, 1"),
    "an observation": (nan_in, ["obs"], "obs in rows 0, 1"),
    "a weight": (with_weight, ["value.layers.2.bias", np.inf], "weights were not finite before: value.layers.2.bias"),
    "a layer": (with_weight, ["value.layers.2.weight", 3e38], "addmm in value.layers.2"),
    "a deviation": (with_weight, ["policy.head.log_std", 200., "Pendulum-v1"], "exp in policy.head"),
    "a logarithm": (with_loss, [log_of_nothing], "log in the loss, in rows 0, 1"),
    "a quotient": (with_loss, [nothing_by_nothing], "div in the loss, in rows 0, 1"),
    "a root": (with_loss, [root_of_nothing], "div in the gradient of the loss"),
    "an exponential": (with_loss, [far_too_much], "exp in the loss, in rows 0, 1"),
}


def with_everything_times(factor, algo, env, part):
    "A trainer of any algorithm, with weights of a part of its networks multiplied"
    trainer = about_to_learn(algo, env)
    with torch.no_grad():
        for name, weight in trainer.learner.nets.named_parameters():
            if name.startswith(part) and weight.ndim > 1:
                weight.mul_(factor)
    return trainer


def with_moments(number):
    trainer = about_to_learn("dqn")
    trainer.advance()
    trainer.until(lambda event: event.kind == "process")
    for moments in trainer.learner.groups["all"].optimiser.state.values():
        moments["exp_avg_sq"][3] = number
    trainer.learner.data["ret"][:] = np.nan
    return trainer


def with_cell(algo, env, row):
    trainer = about_to_learn(algo, env)
    for table in trainer.learner.nets.buffers():
        if len(table) > row: table[row] = np.nan
    return trainer


CASES |= {
    "a target network": (with_everything_times, [np.nan, "dqn", "CartPole-v1", "target"],
                         "weights were not finite before: target.layers.0.weight"),
    "a layer beside a target": (with_everything_times, [1e38, "dqn", "CartPole-v1", "q"], "addmm in q.layers."),
    "a policy": (with_everything_times, [1e38, "sac", "CartPole-v1", "policy"], "addmm in policy.net.layers."),
    "moments": (with_moments, [np.nan], "all.state.0.exp_avg_sq was not finite before, in row 3"),
    "a table": (with_cell, ["qlearning", "rlbench/CliffWalk-v0", 36], "q.values was not finite before, in row 36"),
}


def spoil_moments(trainer):
    "From now on a finite gradient makes weights that are not finite"
    for group in trainer.learner.groups.values():
        for moments in group.optimiser.state.values():
            moments["exp_avg_sq"].fill_(-1.)


ROLLOUT = dict(num_envs=2, n_steps=8, batch_size=8)


@pytest.mark.parametrize("algo, settings", [("ppo", ROLLOUT), ("dqn", REPLAY)])
def test_a_finite_gradient_whose_step_spoils_the_weights_is_found_with_that_step(bench, algo, settings):   # noqa: F811
    wb = bench(algo=algo, views=["curve"], **settings)
    wb.step("update", 3).break_when("nan")
    wb.call(spoil_moments)
    updates = wb.trainer.updates
    wb.step("update", 5)
    assert wb.trainer.updates == updates + 1 and "down a finite gradient" in wb.player.hit.words


def is_sound(trainer):
    "Whether all that the networks of its learners hold is finite"
    state = trainer.learner.nets.state_dict().values()
    return all(x.isfinite().all() for x in state if isinstance(x, torch.Tensor))


@pytest.mark.parametrize("algo", ["dqn", "ppo", "recurrent_ppo"])
def test_a_rate_that_is_far_too_large_names_parameter_and_step_and_leads_back(bench, algo):                # noqa: F811
    sizes = dict(seed=0, learning_starts=20) if algo == "dqn" else dict(num_envs=4, n_steps=16)
    wb = bench(algo=algo, views=["curve"], lr=1e38, **sizes)
    with pytest.raises(NotFinite, match=r"First: _fused_adam_ in the step .* lr = 1e\+38, .*: .*weight.*rewind"):
        wb.step("event", 600)
    wb = bench(algo=algo, views=["curve"], lr=1e38, **sizes)
    wb.break_when("nan")
    wb.step("event", 600)
    words = wb.player.hit.words
    assert ".weight" in words and "the step of all with lr = 1e+38, the largest gradient" in words
    assert not is_sound(wb.trainer)
    wb.rewind(int(words.split("rewind(")[1].split(")")[0]))
    assert is_sound(wb.trainer) and wb.player.at > 1


class Nothing(nn.Linear):
    "Takes the logarithm of nothing"
    def forward(self, x): return (0 * super().forward(x)).log()


@dataclass(frozen=True)
class WrongValues(PPO):
    "PPO with a critic that takes the logarithm of nothing"
    def nets(self, spec, rng):
        nets = super().nets(spec, rng)
        nets["value"] = nn.Sequential(nn.Linear(4, 8), Nothing(8, 1))
        return nets


def test_targets_that_are_not_finite_name_layer_operation_and_rows(bench):                                 # noqa: F811
    wb = bench(algo=WrongValues(), views=["curve"], **ROLLOUT)
    with pytest.raises(NotFinite, match=r"First: log in value.1, in rows 0, 1, 2, 3, 4 and 11 more"):
        wb.step("event", 600)
    wb = bench(algo=WrongValues(), views=["curve"], **ROLLOUT)
    wb.break_when("nan")
    wb.step("event", 600)
    assert wb.player.at == 9 and not wb.trainer.updates
    assert "log in value.1, in rows 0, 1, 2, 3, 4 and 11 more" in wb.player.hit.words


@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_an_action_that_is_none_is_told_before_what_the_environment_made_of_it(bench, algo):               # noqa: F811
    wb = bench(env="Pendulum-v1", algo=algo, views=["curve"], lr=1e20, **REPLAY)
    wb.break_when("nan")
    wb.step("event", 600)
    assert wb.player.hit.words.startswith("not finite: act, rew, next_obs of agent. First: ")
    assert " in policy." in wb.player.hit.words


def test_weights_of_features_are_found_with_the_update_that_spoilt_them(bench):                            # noqa: F811
    wb = bench(env="MountainCar-v0", algo="linear_sarsa", views=["curve"], lr=1e6, seed=0)
    wb.break_when("nan")
    wb.step("event", 600)
    assert "q.w[" in wb.player.hit.words
    assert not is_sound(wb.trainer)
    wb.rewind(wb.player.at - 1)
    assert is_sound(wb.trainer)


def test_a_step_that_spoils_what_the_next_group_learns_from_is_named():
    trainer = about_to_learn("sac")
    trainer.advance()
    trainer.until(lambda event: event.kind == "process")
    spoil_moments(trainer)
    assert str(cause(trainer.learner)).startswith("_fused_adam_ in the step of critic")


def test_weights_that_a_person_spoilt_are_not_taken_for_a_step_that_did(bench):                            # noqa: F811
    wb = bench(views=["curve"], **ROLLOUT)
    wb.step("update", 3).break_when("nan")
    wb.call(lambda trainer: trainer.learner.groups["all"].vector.data.fill_(np.nan))
    with pytest.raises(NotFinite, match="weights were not finite before"):
        wb.step("update", 5)
    assert wb.player.hit is None and wb.player.state == "failed"


def test_where_no_way_leads_back_the_update_after_it_tells(bench, monkeypatch):                             # noqa: F811
    def rewind(timeline, to):
        raise EnvProblem("no way back")

    wb = bench(views=["curve"], **ROLLOUT)
    wb.step("update", 3).break_when("nan")
    wb.call(spoil_moments)
    monkeypatch.setattr(Timeline, "rewind", rewind)
    with pytest.raises(NotFinite, match="First: _fused_adam_ in the step of all with lr"):
        wb.step("update", 5)


@pytest.mark.parametrize("name", CASES)
def test_the_first_number_that_is_not_finite_is_named(name):
    make, given, words = CASES[name]
    trainer = make(*given)
    assert words in cause(trainer.learner)
    with pytest.raises(NotFinite):
        trainer.advance()


# ---- what would be silent

@pytest.mark.parametrize("text, steps", [("episode_return > 10 or kl > 5", 60), ("steps > 300 or kl > 5", 302),
                                         ("loss > 1e9 or episode_length > 12", 60)])
def test_each_side_of_an_or_is_asked_of_the_events_that_tell_of_it(bench, text, steps):                     # noqa: F811
    wb = bench(algo="ppo", views=["curve"], num_envs=2, n_steps=16, seed=0)
    wb.break_when(text)
    wb.step("step", 400)
    assert wb.player.hit and wb.trainer.steps <= steps and "kl" not in wb.player.hit.words


def test_sides_of_an_or_are_looked_at_as_expressions_are(bench):                                           # noqa: F811
    wb = bench(views=["curve"], **ROLLOUT)
    for text in ("True", "1 > 0", "kl > 5 or 1 > 0"):
        with pytest.raises(BadExpression, match="asks for nothing that a run tells"):
            wb.break_when(text)
    with pytest.raises(BadExpression, match="did you mean 'kl'"):
        wb.break_when("kll > 1 or rew > 2")
    wb.break_when("kl > -1 and rew > 0 or rew > 5")
    wb.step("event", 40)
    assert wb.player.hit.words.startswith("kl = ")


def test_a_name_that_nobody_tells_of_is_warned_of_after_the_first_update():
    trainer = Trainer("CartPole-v1", "ppo", seed=0, **ROLLOUT)
    stops = Breakpoints()
    stops.add("td_error > 10", trainer)
    with pytest.warns(UserWarning, match="'td_error > 10': this run told nothing of td_error so far"):
        while not trainer.updates: stops.look(trainer, trainer.advance())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stops.look(trainer, trainer.advance())


class InParts(gym.Env):
    "Observations and actions in parts"
    observation_space = gym.spaces.Dict(a=gym.spaces.Box(-1, 1, (3,), np.float32), b=gym.spaces.Discrete(4))
    action_space = gym.spaces.Tuple((gym.spaces.Discrete(2), gym.spaces.Discrete(3)))

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.seen(), {}

    def seen(self):
        return dict(a=self.np_random.uniform(-1, 1, 3).astype(np.float32), b=int(self.np_random.integers(4)))

    def step(self, act):
        self.steps += 1
        return self.seen(), 1., self.steps > 8, False, {}


def test_parts_are_known_before_the_first_step_and_asked_for_as_they_are_offered(bench):                   # noqa: F811
    wb = bench(env=InParts, algo="ppo", views=["curve"], num_envs=2, n_steps=8, batch_size=8)
    offered = [name for name in names_for(wb.trainer) if name.startswith(("obs", "act")) and not name.isidentifier()]
    assert offered == ["obs.a", "obs.b", "act[0]", "act[1]"]
    for text in ("obs.a[0] > -2", "obs.b >= 0", "act[1] >= 0"):
        wb.unbreak().break_when(text)
        wb.step("event", 1)
        assert wb.player.hit, text
    for text, words in {"obs > 1": "it has parts; ask for one of obs.a, obs.b",
                        "act > 1": r"it has parts; ask for one of act\[0\], act\[1\]"}.items():
        wb.unbreak().break_when(text)
        with pytest.raises(BadExpression, match=words):
            wb.step("event", 40)


def test_what_a_breakpoint_would_ignore_is_refused(bench):                                                 # noqa: F811
    wb = bench(views=["curve"], **ROLLOUT)
    for wrong in (dict(what="rew > 0", who="nobody"), dict(what="rew > 0", obs=np.zeros(4))):
        with pytest.raises(ValueError, match="expected a condition alone, or obs"):
            wb.break_when(**wrong)
    assert not wb.breakpoints.conditions


def test_a_function_that_fails_is_named_and_dropped_and_the_run_goes_on(bench):                            # noqa: F811
    def by_nothing(trainer, event): return 1 / 0

    wb = bench(views=["curve"], **ROLLOUT)
    wb.break_when(by_nothing)
    with pytest.raises(BadExpression, match="breakpoint 1 is dropped: by_nothing: ZeroDivisionError"):
        wb.step("event", 5)
    wb.step("event", 5)
    assert wb.player.at == 6 and not wb.breakpoints.conditions


# ---- the first number that is not finite, of every algorithm with networks

NUMBERED = Case("bc", "Pendulum-v1")        # of counted actions it tells no number too large to be one
NETWORKED = [NUMBERED if case.algo == "bc" else case for case in ONE_EACH if hasattr(case.cls, "hidden")]
OPERATION = r"First: \w+ in (the (gradient of )?(loss|step of)|[a-z_]+[.\w]*[,;])"


def said_after(case, spoil):
    "What is said of the first number that is none, where somebody spoils a run that has just learned"
    player = Player(case.begun(), "sync")
    player.call(spoil).result()
    player.step("event", 400).result()
    assert isinstance(player.problem, NotFinite), player.problem
    return str(player.problem)


def weights_that_run_away(trainer):
    with torch.no_grad():
        for name, weight in trainer.learner.nets.named_parameters():
            if weight.ndim > 1: weight.mul_(1e30)


def rewards_that_are_none(trainer):
    trainer.learner.memory.places["rew"][:] = np.nan


@pytest.mark.parametrize("case", NETWORKED, ids=str)
def test_layer_and_operation_are_named_whatever_the_algorithm(case):
    assert re.search(OPERATION, said_after(case, weights_that_run_away))


KEPT = [case for case in NETWORKED if (case.cls.replays or case.cls.offline) and "rew" in case.cls.reads]


@pytest.mark.parametrize("case", KEPT, ids=str)
def test_rows_that_somebody_spoilt_are_named_whatever_the_algorithm(case):
    assert re.search("First: the (minibatch|memory).*rew (in|hold nan in) row", said_after(case, rewards_that_are_none))


@pytest.mark.parametrize("case", [case for case in NETWORKED if not case.cls.update], ids=str)
def test_an_operation_of_the_loss_is_named_whatever_the_algorithm(case):
    def losses(algo, nets, batch):
        for group, loss, named in case.cls.losses(algo, nets, batch):
            yield group, loss + (loss * 0).log(), named

    trainer = case.trainer()
    trainer.until(lambda event: event.kind == "process" and trainer.learner.todo)
    trainer.learner.algo = copied_as(trainer.learner.algo, losses)
    assert str(cause(trainer.learner)).startswith("log in the loss")


def copied_as(algo, losses):
    "The same algorithm with other losses"
    kind = type(algo)
    twin = object.__new__(type(kind.__name__, (kind,), dict(losses=losses)))
    twin.__dict__.update(vars(algo))
    return twin


@pytest.mark.parametrize("algo", ["stream_ac", "trpo", "dqn", "sac"])
def test_a_spoilt_weight_of_a_policy_is_noticed_and_named(bench, algo):                  # noqa: F811
    small = dict(trpo=dict(n_steps=16, batch_size=16), stream_ac={}).get(algo, dict(learning_starts=40, batch_size=16))
    wb = bench(Trainer("CartPole-v1", algo, seed=0, num_envs=1, hidden=(8,), **small), views=["curve"])
    wb.step("update", 2).break_when("nan")

    def spoil(trainer):
        [weight] = [one for name, one in trainer.learner.nets.named_parameters()
                    if name in ("policy.net.layers.1.weight", "q.layers.1.weight")]
        weight.data[0, 0] = torch.nan
    wb.call(spoil)
    try:
        wb.step("update", 12)
        told = str(wb.player.hit)
    except NotFinite as problem:
        told = str(problem)
    assert ("kl, ent of the policy" if algo == "trpo" else "layers.1.weight") in told and "rewind(" in told
