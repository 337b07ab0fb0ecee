"Terms of a reward are summed beside the return, whoever learns, wherever they are told; and learning does not notice"
import warnings
from dataclasses import replace
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlbench import Trainer, load
from rlbench.core.spaces import AGENT
from rlbench.core.state import same
from rlbench.envs.env import EnvList, EnvProblem
from rlbench.envs.native import NativeVec
from rlbench.envs.terms import TermedEpisodes, TermsDoNotAddUp, hear_terms
from rlbench.lab.views.term_views import TermsView
from tests.cases import CASES, EPISODE, ONE_EACH


class Termed(gym.Wrapper):
    "An environment that tells of its reward: half of it is the task's, and what is left is for being there"
    told = True
    lost = 0.

    def step(self, action):
        obs, rew, term, trunc, info = self.env.step(action)
        if self.told:
            info = info | dict(reward_terms=dict(task=rew / 2, there=rew / 2 - self.lost))
        return obs, rew, term, trunc, info


def world(id, told):
    def make(**settings):
        env = Termed(gym.make(id, **settings))
        env.told = told
        return env
    return make


for number, id in enumerate(dict.fromkeys(case.env for case in CASES)):
    globals()[f"told_{number}"] = world(id, True)
    globals()[f"silent_{number}"] = world(id, False)
NUMBERS = {id: number for number, id in enumerate(dict.fromkeys(case.env for case in CASES))}
PLAIN = [case for case in ONE_EACH if not case.cls.exact]   # a wrapped world shows no model


def run_of(case, kind, **settings):
    "A run of a case whose environment tells terms, or the same that does not"
    return replace(case, env=f"tests.test_terms:{kind}_{NUMBERS[case.env]}").trainer(**settings)


def weights(trainer):
    return trainer.learner.nets.state_dict()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_terms_are_kept_for_every_algorithm_and_learning_does_not_notice(case):
    told = run_of(case, "told")
    silent = run_of(case, "silent")
    for run in (told, silent):
        for _, _ in zip(range(120), run): pass
    assert same(weights(told), weights(silent))
    episodes = told.env.episodes[AGENT]
    assert isinstance(episodes, TermedEpisodes) and not isinstance(silent.env.episodes[AGENT], TermedEpisodes)
    assert np.allclose(episodes.sums.sum(1)[episodes.length > 0], episodes.ret[episodes.length > 0], rtol=1e-4)
    for terms, ended in zip(episodes.past, episodes.finished, strict=True):
        assert terms.sum() == pytest.approx(ended.ret, rel=1e-4, abs=1e-5)
    if told.metrics.rows and told.steps:
        assert {"mean_return_task", "mean_return_there"} <= set(told.metrics.names)
        assert not {"mean_return_task"} & set(silent.metrics.names)
    for run in (told, silent): run.close()


def pole():
    return Termed(gym.make("CartPole-v1", **EPISODE))


def test_a_run_goes_back_saves_and_forks_with_its_terms(tmp_path):
    run = Trainer(pole, "ppo", num_envs=2, n_steps=16, log_every=10).run(60)
    there = run.snapshot()
    run.run(40)
    after = run.snapshot()
    run.restore(there)
    run.run(40)
    assert same(run.snapshot(), after)
    run.save(tmp_path / "a.rlb")
    assert same(load(tmp_path / "a.rlb", env=pole).run(20).state(), run.fork().run(20).state())


def test_terms_that_lack_something_are_named_once_with_numbers():
    run = Trainer(pole, "ppo", num_envs=2)
    inner = run.env.envs[1]
    while not isinstance(inner, Termed): inner = inner.env
    inner.lost = .25
    with pytest.warns(TermsDoNotAddUp, match="environment 1, step 1 of its episode: the reward is 1, and its terms "
                                             "task 0.5, there 0.25 come to 0.75"):
        run.advance()
    with warnings.catch_warnings():
        warnings.simplefilter("error", TermsDoNotAddUp)
        run.run(20)


def test_names_stay_the_same():
    run = Trainer(pole, "ppo")
    inner = run.env.envs[0]
    while not isinstance(inner, Termed): inner = inner.env
    inner.told = False
    with pytest.raises(EnvProblem, match="reward_terms are of nothing, and were of task, there before"):
        run.run(10)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_vector_tells_arrays_in_every_mode_of_autoreset(mode):
    def vector(n):
        return NativeVec("poles", pole(), SyncVectorEnv([pole] * n, autoreset_mode=mode))
    vec = vector(3)
    hear_terms(vec, vector(2))
    vec.reset(0)
    for _ in range(80):
        step = vec.step({AGENT: np.ones(3, np.int64)})[AGENT]
        assert np.allclose(vec.episodes[AGENT].now.sum(1), step.rew)
    assert vec.episodes[AGENT].total > 10
    assert [one.sum() for one in vec.episodes[AGENT].past] == [one.ret for one in vec.episodes[AGENT].finished]


def test_what_tells_nothing_is_left_alone():
    run = Trainer("CartPole-v1", "ppo")
    assert type(run.env.episodes[AGENT]).__name__ == "Episodes"
    assert "Reads" not in type(run.env.env).__name__


def test_pictures_of_terms_have_numbers_on_both_axes_and_words_that_can_be_read():
    run = Trainer(pole, "ppo", num_envs=2, n_steps=16).run(100)
    view = TermsView(run, AGENT)
    for event, _ in zip(run, range(40)): view.note(run, event)
    view.draw(run, moving=False)
    words = view.shown.words
    assert {"whole episodes", "steps of this episode", "0", "1", "60", f"{run.steps:,} steps"} <= set(words)
    assert min(mark.size for mark in view.shown.marks if hasattr(mark, "words")) >= 10


def in_vector(id, make, n):
    return NativeVec(id, make(), SyncVectorEnv([make] * n))


class Odd(gym.Env):
    "Tells what it is asked to tell of its rewards, from some step of its episodes on"
    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, told, since=0):
        self.told = told
        self.since = since

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, act):
        self.t += 1
        info = dict(reward_terms=self.told) if self.t > self.since else {}
        return np.zeros(2, np.float32), 1., self.t > 9, False, info


@pytest.mark.parametrize("told, words", [
    (None, r"Odd: info\['reward_terms'\] is None, expected {name: number}"),
    ([1.], r"is \[1.0\], expected {name: number}"),
    (dict(way=1., fuel="full"), r"\['fuel'\] is 'full', expected one number"),
    (dict(way=np.array([1.]), fuel=0.), r"\['way'\] is array\(\[1.\]\), expected one number"),
])
@pytest.mark.parametrize("make", [EnvList, in_vector], ids=["list", "vector"])
def test_what_is_no_sum_of_named_numbers_is_named(told, words, make):
    with pytest.raises(EnvProblem, match="expected" if make is not EnvList else words):
        Trainer(partial(make, "odd", partial(Odd, told), 2), "ppo").run(2)


def test_odd_terms_in_the_middle_are_named():
    run = Trainer(lambda: Odd(dict(way=1.)), "ppo")
    run.env.envs[0].unwrapped.told = dict(way=[1.])
    with pytest.raises(EnvProblem, match=r"\['way'\] is \[1.0\], expected one number"):
        run.run(2)


def test_names_of_terms_may_be_numbers():
    run = Trainer(lambda: Odd({0: .25, 1: .75}), "ppo", num_envs=1).run(20)
    assert run.episodes.names == ("0", "1") and run.episodes.mean_terms.tolist() == [2.5, 7.5]


@pytest.mark.parametrize("settings, since, why", [(dict(check_env=False), 0, "check_env=False"),
                                                  ({}, 4, "the first step of its trial told none")])
def test_terms_that_nobody_keeps_are_said_once(settings, since, why):
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        run = Trainer(lambda: Odd(dict(way=1.), since), "ppo", num_envs=2, **settings).run(100)
        run.fork().run(20)
    assert [why in str(one.message) for one in heard if "nobody keeps them" in str(one.message)] == [True]
