"Traced updates are the eager ones: to 1e-5, after a change of settings, after a load; and where they cannot be traced"
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch._inductor.cpp_builder import cpp_compiler_search

import rlbench
from rlbench.algos.ppo import PPO
from rlbench.core.state import same
from rlbench.training.actor import Actor
from rlbench.training.learner import NotFinite
from rlbench.training.quick_actor import QuickActor
from rlbench.training.trainer import Trainer, load
from rlbench.training.traced import NotTraced, Recipe

SMALL = dict(hidden=(8,), seed=3)
ROLLOUT = dict(SMALL, n_steps=16, num_envs=2)
REPLAY = dict(SMALL, learning_starts=8, batch_size=8)
CASES = [
    ("ppo", "CartPole-v1", dict(ROLLOUT, n_epochs=2, batch_size=8, clip_range_vf=.2)),    # minibatches of several sizes
    ("trpo", "Pendulum-v1", dict(ROLLOUT, normalize_obs=True)),                           # what two networks share
    ("a2c", "Pendulum-v1", ROLLOUT),
    ("dqn", "CartPole-v1", dict(REPLAY, prioritized_replay_alpha=.5)),
    ("c51", "CartPole-v1", REPLAY),
    ("sac", "rlbench/SideAndForce-v0", REPLAY),
    ("td3", "Pendulum-v1", dict(REPLAY, policy_delay=2, normalize_obs=True)),
    ("crossq", "Pendulum-v1", dict(REPLAY, critic_hidden=(8,))),
    ("pqn", "CartPole-v1", dict(ROLLOUT, n_epochs=1, batch_size=8)),                      # layer norms
    ("dqn", "MinAtar/Breakout-v1", REPLAY),                                               # convolutions
]
PLAIN = [("ppo", "CartPole-v1"), ("a2c", "Pendulum-v1"), ("trpo", "CartPole-v1"), ("reinforce", "CartPole-v1")]
OTHERS = [("dqn", "CartPole-v1"), ("sac", "Pendulum-v1"), ("impala", "CartPole-v1"), ("recurrent_ppo", "CartPole-v1"),
          ("ppo", "rlbench/CliffWalk-v0"), ("ppo", "rlbench/Forbidden-v0")]
WAYS = [(case, "traced") for case in CASES] + [(CASES[2], "compiled"), (CASES[3], "compiled")]     # 5 s each


def run_of(case, steps, **more):
    algo, env, settings = case
    return Trainer(env, algo, **settings | more).run(steps)


def apart(one, other):
    "The largest difference of weights"
    pairs = zip(one.learner.nets.parameters(), other.learner.nets.parameters())
    return max((mine - others).abs().max().item() for mine, others in pairs)


def told(what):
    "What is said of updates that are not traced"
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        what()
    return [str(one.message) for one in found if one.category is NotTraced]


@pytest.mark.filterwarnings("error::rlbench.training.traced.NotTraced")
@pytest.mark.parametrize("case, way", WAYS, ids=[f"{case[0]}-{way}" for case, way in WAYS])
def test_like_eager_and_after_a_load(case, way, tmp_path):
    eager = run_of(case, 64)
    traced = run_of(case, 64, **{way: True})
    recipes = traced.learner.recipes.values()
    assert recipes and all(isinstance(recipe, Recipe) for recipe in recipes)
    assert traced.updates == eager.updates > 0
    assert apart(eager, traced) < 1e-5

    traced.until("update")                                # amid what is owed, where that is several
    traced.save(tmp_path / "run")
    loaded = load(tmp_path / "run")
    assert getattr(loaded.settings, way)
    for run in (traced, loaded): run.run(16)
    assert same(traced.learner.state(), loaded.learner.state())


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this build has no oneDNN")
@pytest.mark.filterwarnings("error::rlbench.training.traced.NotTraced")
@pytest.mark.parametrize("way", ["traced", "compiled"])
def test_wide_products_by_onednn_are_the_same(way, monkeypatch):
    case = "td3", "Pendulum-v1", dict(REPLAY, hidden=(128, 128), policy_delay=2)
    eager = run_of(case, 32)
    monkeypatch.setattr("rlbench.training.rewrites.is_onednn_quicker", lambda: True)
    other = run_of(case, 32, **{way: True})
    for recipe in other.learner.recipes.values():         # with a step of the actor and without
        assert "by_onednn" in str(recipe.graph)
    assert apart(eager, other) < 1e-5


def test_a_changed_setting_counts():
    case = CASES[0]
    runs = [run_of(case, 32, traced=trace) for trace in (False, True)]
    still = run_of(case, 64)
    for run in runs:
        run.set(clip_range=.01, ent_coef=.5, lr=1e-2)
        run.run(32)
    assert apart(*runs) < 1e-5 < apart(still, runs[1])


def test_what_moves_by_a_schedule_is_not_traced():
    runs = []
    case = CASES[0]
    moving = dict(clip_range="linear(.2, 0, 1000)")
    assert "read clip_range" in "".join(told(lambda: runs.append(run_of(case, 32, traced=True, **moving))))
    assert apart(runs[0], run_of(case, 32, **moving)) < 1e-5     # targets are made by numpy
    assert not told(lambda: run_of(case, 32, traced=True, lr="linear(.1, 0, 1000)"))      # no loss reads it


@dataclass(frozen=True)
class Looking(PPO):
    "Its loss depends on a number in the minibatch"
    def losses(self, nets, batch):
        for group, loss, named in super().losses(nets, batch):
            yield group, loss if batch.adv.mean() > 0 else 2 * loss, named


@dataclass(frozen=True)
class Counting(PPO):
    "Its loss depends on a number that is in no minibatch"
    def losses(self, nets, batch):
        for group, loss, named in super().losses(nets, batch):
            yield group, loss * int(torch.tensor(2)), named


@pytest.mark.parametrize("kind", [Looking, Counting])
def test_an_algorithm_that_looks_at_numbers_goes_on_as_ever(kind):
    algo = kind(n_steps=16, batch_size=8, hidden=(8,))
    runs = []
    said = told(lambda: runs.append(Trainer("CartPole-v1", algo, traced=True).run(256)))
    assert len(said) == 1 and "not traced" in said[0]
    assert apart(runs[0], Trainer("CartPole-v1", algo).run(256)) < 1e-5


def test_an_algorithm_of_ones_own_is_traced():
    @dataclass(frozen=True)
    class Own(PPO):
        def losses(self, nets, batch):
            for group, loss, named in super().losses(nets, batch):
                yield group, 2 * loss, named

    algo = Own(n_steps=16, batch_size=8, hidden=(8,))
    traced = Trainer("CartPole-v1", algo, traced=True).run(256)
    assert all(traced.learner.recipes.values())
    assert apart(traced, Trainer("CartPole-v1", algo).run(256)) < 1e-5


def test_without_torchs_interpreter(monkeypatch):
    def missing(*given, **more): raise RuntimeError("no torch.jit")

    monkeypatch.setattr(torch.jit, "script", missing)
    runs = []
    said = told(lambda: runs.append(run_of(CASES[2], 32, traced=True)))
    assert "no torch.jit" in said[0]
    assert apart(runs[0], run_of(CASES[2], 32)) < 1e-5


def test_without_a_compiler(monkeypatch):
    monkeypatch.setattr("torch._inductor.config.cpp.cxx", ("no-such-compiler",))
    cpp_compiler_search.cache_clear()
    traced = run_of(CASES[2], 32, traced=True)
    runs = []
    said = told(lambda: runs.append(run_of(CASES[2], 32, compiled=True)))
    cpp_compiler_search.cache_clear()
    assert said and all("not compiled" in one and "no-such-compiler" in one for one in said)
    assert same(runs[0].learner.state(), traced.learner.state())


def test_traced_runs_act_on_arrays_where_they_can():
    runs = [Trainer(env, algo, traced=True, hidden=(8,)) for algo, env in PLAIN + OTHERS]
    kinds = [type(run.learner.actor) for run in runs]
    assert kinds == [QuickActor] * len(PLAIN) + [Actor] * len(OTHERS)
    assert type(Trainer("CartPole-v1", "ppo", normalize_obs=True, traced=True).learner.actor) is Actor
    assert type(Trainer("CartPole-v1", "ppo").learner.actor) is Actor


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_actions_on_arrays_are_those_on_tensors(env, greedy):
    runs = [Trainer(env, "ppo", traced=trace, hidden=(8,), num_envs=3, seed=5) for trace in (False, True)]
    space = runs[0].learner.actor.spec.observation_space
    space.seed(0)
    for _ in range(50):
        obs = np.stack([space.sample() for _ in range(3)])
        (act, extra), (array_act, array_extra) = [run.learner.actor.act(obs, greedy) for run in runs]
        assert act.dtype == array_act.dtype and act.shape == array_act.shape
        np.testing.assert_allclose(act, array_act, atol=1e-5)
        np.testing.assert_allclose(extra["logp"], array_extra["logp"], atol=1e-4)
        assert extra["logp"].dtype == array_extra["logp"].dtype


def test_numbers_that_run_away_are_noticed_before_the_step():
    run = run_of(CASES[0], 32, traced=True)
    run.until(lambda event: event.kind == "process")
    run.learner.data.adv[:] = torch.inf
    before = run.snapshot()["learners"]["agent"]["actor"]["nets"]
    with pytest.raises(NotFinite, match="not finite is that of .*parts of the loss .*adv"):
        run.advance()
    assert same(before, run.learner.nets.state_dict())


def test_a_rewind_and_other_memory_behind_the_weights():
    run = run_of(CASES[0], 32, traced=True)
    here = run.snapshot()
    there = run.run(32).snapshot()
    run.restore(here)
    for weight in run.learner.nets.parameters():
        weight.data = weight.data.clone()
    run.learner.actor.look()
    assert same(run.run(32).snapshot()["learners"], there["learners"])


def test_tables_have_nothing_to_trace():
    assert rlbench.Trainer("rlbench/CliffWalk-v0", "qlearning", traced=True).run(20).updates == 20
