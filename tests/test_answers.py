"Environments that answer what they should not: refused, named, before anything is learned from it"
import copy
import re
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlbench.algos.algorithm import algorithms, get
from rlbench.core.spaces import AGENT
from rlbench.core.state import same
from rlbench.envs.env import EnvList, EnvProblem
from rlbench.envs.find import make
from rlbench.envs.native import NativeVec
from rlbench.envs.teams import TeamList
from rlbench.training.evaluate import evaluate
from rlbench.training.learner import NotFinite
from rlbench.training.trainer import Trainer, load

pytestmark = pytest.mark.filterwarnings("ignore::rlbench.training.trainer.CannotGoBack")
LATE = 5    # the step in which something is wrong


class Wrong(gym.Wrapper):
    "A known environment that answers something else in one step"

    def __init__(self, id, change):
        super().__init__(gym.make(id))
        self.change = change
        self.count = 0

    def step(self, action):
        self.count += 1
        answer = self.env.step(action)
        return self.change(*answer) if self.count == LATE else answer


POLE = {
    "four values": (lambda obs, rew, term, trunc, info: (obs, rew, term, info), "step gave 4 values, expected 5"),
    "only an observation": (lambda obs, *rest: obs, "step gave 1 values, expected 5"),
    "nan reward": (lambda obs, rew, *rest: (obs, np.nan, *rest), "the reward is nan, expected a finite number"),
    "inf reward": (lambda obs, rew, *rest: (obs, -np.inf, *rest), "the reward is -inf, expected a finite number"),
    "no reward": (lambda obs, rew, *rest: (obs, None, *rest), "the reward is None, expected one number"),
    "a reward beyond 32 bits": (lambda obs, rew, *rest: (obs, 1e300, *rest), "the reward is 1e+300, expected a finite"),
    "an endless reward": (lambda obs, rew, *rest: (obs, 10**400, *rest), "expected one number"),
    "text in an array": (lambda obs, rew, *rest: (obs, np.array("1"), *rest), "the reward is array('1', dtype='<U1')"),
    "objects": (lambda obs, rew, *rest: (obs, np.array(1., object), *rest), "expected one number"),
    "a time": (lambda obs, rew, *rest: (obs, np.timedelta64(1, "s"), *rest), "expected one number"),
    "beyond 32 bits": (lambda obs, *rest: (obs.astype(float) + 1e39, *rest), "is not finite: [1e+39, 1e+39"),
    "gradients": (lambda obs, *rest: (torch.ones(4, requires_grad=True), *rest), "is Tensor, expected numbers"),
    "reward in a list": (lambda obs, rew, *rest: (obs, [1.], *rest), "the reward is [1.0], expected one number"),
    "reward in an array": (lambda obs, rew, *rest: (obs, np.ones(1), *rest), "expected one number"),
    "text for a flag": (lambda obs, rew, term, *rest: (obs, rew, "False", *rest), "terminated is 'False'"),
    "none for a flag": (lambda obs, rew, term, trunc, info: (obs, rew, term, None, info), "truncated is None"),
    "number for a flag": (lambda obs, rew, term, *rest: (obs, rew, .5, *rest), "terminated is 0.5"),
    "scalar observation": (lambda obs, *rest: (0., *rest), "has shape (), expected (4,)"),
    "short observation": (lambda obs, *rest: (obs[:1], *rest), "has shape (1,), expected (4,)"),
    "batched observation": (lambda obs, *rest: (obs[None], *rest), "has shape (1, 4), expected (4,)"),
    "nan observation": (lambda obs, *rest: (obs * np.nan, *rest), "is not finite"),
    "text observation": (lambda obs, *rest: (np.array(list("pole")), *rest), "expected numbers"),
    "no observation": (lambda obs, *rest: (None, *rest), "expected (4,)"),
}
LAKE = {
    "state -1": (lambda obs, *rest: (-1, *rest), "is -1, which is not in Discrete(16)"),
    "state 1.7": (lambda obs, *rest: (1.7, *rest), "is 1.7, which is not in Discrete(16)"),
    "state 16": (lambda obs, *rest: (16, *rest), "is 16, which is not in Discrete(16)"),
}


@pytest.mark.parametrize("case", POLE)
@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_a_wrong_answer_stops_the_run(algo, case):
    change, words = POLE[case]
    trainer = Trainer(lambda: Wrong("CartPole-v1", change), algo, num_envs=2)
    with pytest.raises(EnvProblem) as found:
        trainer.run(steps=100)
    assert words in str(found.value) and str(found.value).startswith("CartPole-v1: ")
    assert all(weight.isfinite().all() for weight in trainer.learner.nets.state_dict().values())


PICTURE = {
    "divided": (lambda x: x / 255., "the observation from step holds what uint8 cannot: "),
    "below": (lambda x: x.astype(int) - 300, "holds what uint8 cannot: -"),
    "above": (lambda x: x.astype(int) + 256, "holds what uint8 cannot: "),
    "nan": (lambda x: x * np.nan, "holds what uint8 cannot: nan at (0, 0, 0)"),
}


class Painted(gym.Env):
    "Pictures of bytes, which are changed before they are shown"
    observation_space = gym.spaces.Box(0, 255, (8, 8, 1), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, change):
        self.change = change
        self.picture = np.arange(64, dtype=np.uint8).reshape(8, 8, 1) + 1

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.picture, {}

    def step(self, action):
        return self.change(self.picture), 1., False, False, {}


@pytest.mark.parametrize("case", PICTURE)
def test_a_picture_of_other_numbers_stops_the_run(case):
    change, words = PICTURE[case]
    with pytest.raises(EnvProblem) as found:
        Trainer(partial(Painted, change), "ppo", n_steps=2, num_envs=1).run(steps=4)
    assert words in str(found.value)


def test_a_picture_of_the_same_numbers_does_not():
    Trainer(partial(Painted, np.float32), "ppo", n_steps=2, num_envs=1).run(steps=4)


def test_a_space_that_changes_stops_the_run():
    class Shifting(Painted):
        def reset(self, seed=None, options=None):
            answer = super().reset(seed=seed)
            if seed == 8: self.observation_space = gym.spaces.Discrete(4)
            return (2, {}) if seed == 8 else answer

    vec = make(partial(Shifting, np.array), 1)
    vec.reset(0)
    with pytest.raises(EnvProblem, match="Shifting: the observation from reset has shape"):
        vec.envs[0].reset(seed=8)


def test_what_is_no_space_is_named():
    class Bare(Painted):
        observation_space = None

    with pytest.raises(EnvProblem, match="its observation_space is None, expected one of gymnasium.spaces"):
        Trainer(partial(Bare, np.array), "ppo")


@pytest.mark.parametrize("case", LAKE)
def test_a_state_that_there_is_not_stops_the_run(case):
    change, words = LAKE[case]
    with pytest.raises(EnvProblem) as found:
        Trainer(lambda: Wrong("FrozenLake-v1", change), "qlearning").run(steps=100)
    assert words in str(found.value)


def test_an_environment_of_the_old_gym_is_known_by_its_reset():
    class Old(gym.Wrapper):
        def reset(self, **how): return self.env.reset(**how)[0]

    with pytest.raises(EnvProblem, match="CartPole-v1: reset must give an observation and a dictionary"):
        Trainer(lambda: Old(gym.make("CartPole-v1")), "ppo")


def test_who_does_not_want_it_is_not_asked():
    change, _ = POLE["nan reward"]
    trainer = Trainer(lambda: Wrong("CartPole-v1", change), "ppo", num_envs=2, n_steps=16, check_env=False)
    with pytest.raises(NotFinite, match="the length of the gradient is nan: not finite is that of .*weight"):
        trainer.run(steps=100)
    assert all(weight.isfinite().all() for weight in trainer.learner.nets.state_dict().values())


def test_what_runs_away_in_a_table_is_noticed():
    change, _ = POLE["inf reward"]
    trainer = Trainer(lambda: Wrong("FrozenLake-v1", change), "qlearning", check_env=False)
    with pytest.raises(NotFinite, match="delta is not finite in an update"):
        trainer.run(steps=100)


@pytest.mark.parametrize("algo", [name for name in algorithms() if get(name).update and not get(name).exact])
def test_a_table_stays_as_it_was_before_what_is_not_finite(algo):
    change, _ = POLE["nan reward"]
    env = "CartPole-v1" if "stream" in algo else "FrozenLake-v1"
    trainer = Trainer(lambda: Wrong(env, change), algo, check_env=False)
    with pytest.raises(NotFinite):
        while True:
            before = {name: table.clone() for name, table in trainer.learner.nets.state_dict().items()}
            trainer.advance()
    assert same(before, dict(trainer.learner.nets.state_dict()))


# ---- environments of several behaviours

class WrongDuel:
    "Two that act at once; in one step something is wrong"
    possible_agents = ["black", "white"]
    metadata = {}

    def __init__(self, change=lambda *answer: answer):
        self.change = change
        self.count = 0

    @property
    def unwrapped(self):
        return self

    def observation_space(self, agent):
        return gym.spaces.Box(0, 1, (2,))

    def action_space(self, agent):
        return gym.spaces.Discrete(2)

    def seen(self):
        return {agent: np.zeros(2, np.float32) for agent in self.possible_agents}

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return self.seen(), {}

    def step(self, acts):
        self.count += 1
        no = dict.fromkeys(acts, False)
        answer = self.seen(), dict.fromkeys(acts, 1.), no, no, {}
        return self.change(*answer) if self.count == LATE else answer

    def close(self):
        "Nothing to close"


def white(value):
    return dict(black=0, white=value)


TEAM = {
    "four values": (lambda obs, *rest: (obs, *rest[:3]), "step must give observations, rewards, terminated"),
    "an array of rewards": (lambda obs, rew, *rest: (obs, np.ones(2), *rest), "the reward is ndarray, expected a dict"),
    "a stranger": (lambda obs, rew, *rest: (obs, dict(red=1.), *rest), "the reward is of red, expected only black"),
    "nan reward": (lambda obs, rew, *rest: (obs, white(np.nan), *rest), "white: the reward is nan, expected a finite"),
    "text reward": (lambda obs, rew, *rest: (obs, white("1"), *rest), "white: the reward is '1', expected one number"),
    "text flag": (lambda obs, rew, term, *rest: (obs, rew, white("no"), *rest), "white: terminated is 'no'"),
    "number flag": (lambda obs, rew, term, trunc, info: (obs, rew, term, white(.5), info), "white: truncated is 0.5"),
    "nothing shown": (lambda obs, *rest: (dict(black=obs["black"]), *rest), "white acted and was shown nothing"),
    "bare observation": (lambda obs, *rest: (obs["black"], *rest), "the observation from step is ndarray, expected"),
    "short": (lambda obs, *rest: (obs | dict(white=np.zeros(1)), *rest), "of white from step has shape (1,)"),
    "nan": (lambda obs, *rest: (obs | dict(white=np.full(2, np.nan)), *rest), "of white from step is not finite"),
}


@pytest.mark.parametrize("case", TEAM)
def test_of_several_behaviours_each_is_looked_at(case):
    change, words = TEAM[case]
    def one():
        return WrongDuel(change)

    for env in (one, TeamList("WrongDuel", one, 1)):
        trainer = Trainer(env, "dqn", learning_starts=2, batch_size=2)
        with pytest.raises(EnvProblem) as found:
            trainer.run(steps=100)
        assert str(found.value).startswith("WrongDuel: ") and words in str(found.value)


def test_one_that_answers_as_it_should_goes_on():
    Trainer(WrongDuel, "dqn", learning_starts=2, batch_size=2).run(steps=12).fork().run(steps=12)


# ---- vectors

class WrongPoles(gym.vector.VectorWrapper):
    "CartPoles computed at once; in one step something is wrong"

    def __init__(self, change):
        super().__init__(gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode="vector_entry_point"))
        self.change = change
        self.count = 0

    def step(self, acts):
        self.count += 1
        answer = self.env.step(acts)
        return self.change(*answer) if self.count == LATE else answer


def with_last(column, value):
    "The same column with something else for the last environment"
    column = np.array(column, float)
    column[-1] = value
    return column


VECTOR = {
    "four values": (lambda obs, *rest: (obs, *rest[:3]), "step must give observations, rewards, terminated"),
    "nan reward": (lambda obs, rew, *rest: (obs, with_last(rew, np.nan), *rest), "reward of environment 2 is nan"),
    "beyond 32 bits": (lambda obs, rew, *rest: (obs, with_last(rew, 1e39), *rest), "reward of environment 2 is 1e+39"),
    "rewards in columns": (lambda obs, rew, *rest: (obs, rew[:, None], *rest), "rewards have shape (3, 1)"),
    "one reward": (lambda obs, rew, *rest: (obs, 1., *rest), "have shape (), expected (3,)"),
    "text rewards": (lambda obs, rew, *rest: (obs, np.array(["1"] * 3), *rest), "hold <U1, expected numbers"),
    "half a flag": (lambda obs, rew, term, *rest: (obs, rew, with_last(term, .5), *rest), "flag of environment 2 is"),
    "one flag": (lambda obs, rew, term, trunc, info: (obs, rew, term, False, info), "truncated flags have shape ()"),
    "nan": (lambda obs, *rest: (with_last(obs, np.nan), *rest), "the observation of environment 2 is [nan"),
    "short": (lambda obs, *rest: (obs[:, :2], *rest), "have shape (3, 2), expected (3, 4)"),
    "one for all": (lambda obs, *rest: (obs[0], *rest), "have shape (4,), expected (3, 4)"),
}


def wrong_poles(case):
    return NativeVec("WrongPoles", gym.make("CartPole-v1"), WrongPoles(VECTOR[case][0]))


@pytest.mark.parametrize("case", VECTOR)
def test_vectors_are_looked_at_all_at_once(case):
    trainer = Trainer(wrong_poles(case), "ppo", n_steps=4)
    with pytest.raises(EnvProblem) as found:
        trainer.run(steps=100)
    assert str(found.value).startswith("WrongPoles: ") and VECTOR[case][1] in str(found.value)


def test_where_a_vector_is_not_looked_at_the_loss_says_what_is_wrong():
    trainer = Trainer(wrong_poles("nan reward"), "dqn", learning_starts=30, batch_size=30, check_env=False)
    with pytest.raises(NotFinite, match=r"of the parts of the loss .*delta \(row \d+ of 30\)"):
        trainer.run(steps=300)


def test_known_vectors_are_not_asked():
    trainer = Trainer("CartPole-v1", "ppo", num_envs=3)
    assert type(trainer.env) is NativeVec and not isinstance(trainer.env.env, gym.vector.VectorWrapper)


def flags_as(kind):
    "Changes flags into numbers of a kind"
    return lambda obs, rew, term, trunc, info: (obs, rew, term.astype(kind), trunc.astype(kind), info)


class Flags(WrongPoles):
    "CartPoles whose flags are always something else"
    count = LATE

    def step(self, acts):
        return self.change(*self.env.step(acts))


@pytest.mark.parametrize("kind", [np.uint8, float])
def test_flags_that_are_numbers_are_flags(kind):
    runs = []
    for change in (flags_as(bool), flags_as(kind)):
        vector = NativeVec("Flags", gym.make("CartPole-v1"), Flags(change))
        runs.append(Trainer(vector, "ppo", n_steps=8, n_epochs=1).run(steps=60))
    assert runs[0].updates > 0 and same(*(run.learner.nets.state_dict() for run in runs))


@pytest.mark.parametrize("value", [-1, 16, 1.7, 1.])
def test_states_of_a_vector_are_whole_numbers_of_its_space(value):
    lakes = gym.vector.SyncVectorEnv([lambda: gym.make("FrozenLake-v1")] * 2)

    class Lakes(gym.vector.VectorWrapper):
        def step(self, acts):
            obs, *rest = self.env.step(acts)
            return np.full(2, value), *rest

    trainer = Trainer(NativeVec("Lakes", gym.make("FrozenLake-v1"), Lakes(lakes)), "qlearning")
    with pytest.raises(EnvProblem, match="^Lakes: the observation"):
        trainer.run(steps=9)


def test_vectors_of_gymnasium_are_not_one_environment():
    def many():
        return gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2)

    for env in (many, many()):
        for check in (True, False):
            with pytest.raises(EnvProblem, match="SyncVectorEnv, .*pass what makes one environment.*NativeVec"):
                Trainer(env, "ppo", check_env=check)


# ---- vectors of one's own, with a step of their own

class WrongList(EnvList):
    "Three environments in a list; in one step something is wrong"

    def __init__(self, id, change):
        super().__init__(id, partial(gym.make, id), 3)
        self.change = change
        self.count = 0

    def step(self, acts):
        self.count += 1
        answer = super().step(acts)
        return self.change(answer) if self.count == LATE else answer


def but(**columns):
    "The same answer, other columns in it"
    return lambda answer: {AGENT: answer[AGENT]._replace(**columns)}


def ends(what):
    return but(term=np.array(what))


NO = np.zeros(3, bool)
OWN = {
    "no dictionary": (lambda answer: answer[AGENT], "step gave Step, expected a dictionary by behaviour"),
    "nothing": (lambda answer: None, "step gave NoneType, expected a dictionary by behaviour"),
    "another behaviour": (lambda answer: dict(red=answer[AGENT]), "step is of red, expected agent"),
    "five values": (lambda answer: {AGENT: tuple(answer[AGENT])[:5]}, "step gave tuple, expected a Step"),
    "nan reward": (but(rew=np.array([0, np.nan, 1])), "reward of environment 1 is nan"),
    "inf reward": (but(rew=np.array([0, 1, -np.inf])), "reward of environment 2 is -inf"),
    "rewards in columns": (but(rew=np.ones((3, 1))), "rewards have shape (3, 1), expected (3,)"),
    "one reward": (but(rew=1.), "rew is float, expected an array"),
    "text rewards": (but(rew=np.array(["1"] * 3)), "rewards hold <U1, expected numbers"),
    "rewards in a list": (but(rew=[1., 1., 1.]), "rew is list, expected an array"),
    "text flags": (ends(["False"] * 3), "term flags hold <U5, expected bool"),
    "one flag": (ends(False), "term flags have shape (), expected (3,)"),
    "no flags": (but(trunc=np.array([None] * 3)), "trunc flags hold object, expected bool"),
    "numbers for flags": (but(trunc=np.zeros(3)), "trunc flags hold float64, expected bool"),
    "flags of rows": (but(valid=NO[:2]), "valid flags have shape (2,), expected (3,)"),
    "flags of beginnings": (but(first=None), "first is NoneType, expected an array"),
    "no ends": (but(ended=None), "ended is None, expected a list of Ended"),
    "ends by number": (but(ended=[1]), "ended is [1], expected a list of Ended"),
    "nan": (but(next_obs=np.full((3, 4), np.nan, np.float32)), "in next_obs the observation of environment 0 is [nan"),
    "nan to act on": (but(obs=np.full((3, 4), np.inf, np.float32)), "in obs the observation of environment 0 is [inf"),
    "short": (but(obs=np.zeros((3, 2), np.float32)), "in obs the observations have shape (3, 2), expected (3, 4)"),
    "one for all": (but(next_obs=np.zeros(4, np.float32)), "the observations have shape (4,), expected (3, 4)"),
    "in a list": (but(obs=[[0.] * 4] * 3), "obs is list, expected an array"),
}
OWN_LAKE = {
    "state -1": (but(obs=np.array([0, -1, 0])), "in obs the observation of environment 1 is -1, of Discrete(16)"),
    "state 16": (but(next_obs=np.array([16, 0, 0])), "the observation of environment 0 is 16, of Discrete(16)"),
    "state 1.7": (but(next_obs=np.array([0, 0, 1.7])), "the observations hold float64, expected whole numbers"),
    "float states": (but(obs=np.zeros(3)), "the observations hold float64, expected whole numbers"),
}


def refused(env, algo):
    "What is said of an environment while it is learned from"
    trainer = Trainer(env, algo)
    with pytest.raises(EnvProblem) as found:
        trainer.run(steps=100)
    assert all(weight.isfinite().all() for weight in trainer.learner.nets.state_dict().values())
    return str(found.value)


@pytest.mark.parametrize("case", OWN)
def test_vectors_with_a_step_of_their_own_are_looked_at(case):
    change, words = OWN[case]
    said = refused(WrongList("CartPole-v1", change), "ppo")
    assert said.startswith("CartPole-v1: ") and words in said


def test_vectors_that_a_function_makes_are_looked_at():
    change, words = OWN["nan reward"]
    assert words in refused(partial(WrongList, "CartPole-v1", change), "ppo")


@pytest.mark.parametrize("case", OWN_LAKE)
def test_states_that_there_are_not_are_refused_in_vectors_of_ones_own(case):
    change, words = OWN_LAKE[case]
    assert words in refused(WrongList("FrozenLake-v1", change), "qlearning")


class InPlace(WrongList):
    "Shows one and the same array, in which it goes on writing"

    def step(self, acts):
        step = super().step(acts)[AGENT]
        self.buffer = getattr(self, "buffer", step.obs)
        self.buffer[:] = step.obs
        return {AGENT: step._replace(obs=self.buffer)}


class WritesActions(WrongList):
    def step(self, acts):
        steps = super().step(acts)
        acts[AGENT][:] = 1 - acts[AGENT]
        return steps


def test_what_was_shown_stays_as_it_was():
    assert "step wrote into observations that were shown before" in refused(InPlace("CartPole-v1", dict), "ppo")
    assert "step wrote into the actions that it was given" in refused(WritesActions("CartPole-v1", dict), "ppo")


@pytest.mark.parametrize("shown, words", [
    (np.zeros((2, 4)), "reset gave ndarray, expected a dictionary by behaviour"),
    ({AGENT: np.zeros(4)}, "from reset the observations have shape (4,), expected (3, 4)"),
])
def test_the_reset_of_ones_own_vector_is_looked_at(shown, words):
    class Begins(WrongList):
        def reset(self, seed): return shown

    with pytest.raises(EnvProblem, match=re.escape(words)):
        Trainer(Begins("CartPole-v1", None), "ppo")


def test_ones_own_vector_is_not_looked_at_where_nobody_wants_it():
    trainer = Trainer(WrongList("CartPole-v1", OWN["nan reward"][0]), "ppo", n_steps=8, check_env=False)
    assert type(trainer.env) is WrongList
    with pytest.raises(NotFinite):
        trainer.run(steps=100)


def test_ones_own_vector_is_learned_from_as_if_nobody_looked(tmp_path):
    right = partial(WrongList, "CartPole-v1", dict)
    env = right()
    trainer = Trainer(env, "ppo", n_steps=16, n_epochs=1).run(steps=60)
    plain = Trainer(right(), "ppo", n_steps=16, n_epochs=1, check_env=False)
    assert same(trainer.learner.nets.state_dict(), plain.run(steps=60).learner.nets.state_dict())
    twin = trainer.fork()
    assert twin.env.unwrapped is not env and trainer.env.unwrapped is env
    twin.run(steps=100)
    again = Trainer(trainer.env, "ppo")
    assert again.env.unwrapped is not env
    trainer.save(tmp_path / "run.rlb")
    there = load(tmp_path / "run.rlb", env=right)
    assert same(there.run(steps=100).learner.nets.state_dict(), twin.learner.nets.state_dict())
    again.close()
    trainer.close()
    assert env.closing.alive                # it came from outside
    assert same(copy.deepcopy(trainer.env).unwrapped.state(), env.state())
    evaluate(trainer, episodes=2)


# ---- tables with several environments

class OneStep(gym.Env):
    "One state, one action, one reward of 1, and the end"
    observation_space = gym.spaces.Discrete(1)
    action_space = gym.spaces.Discrete(1)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 0, 1., True, False, {}


def tabular():
    "Algorithms that keep a table or weights of features, and learn the values of single steps"
    names = ["qlearning", "sarsa", "expected_sarsa", "double_q", "sarsa_lambda", "td", "td_lambda", "linear_sarsa",
             "linear_td", "dyna", "prioritised_sweeping", "count_bonus", "bandit", "monte_carlo"]
    return [name for name in names if name in algorithms()]


@pytest.mark.parametrize("algo", tabular())
def test_corrections_of_many_environments_do_not_add_up(algo):
    trainer = Trainer(OneStep, algo, num_envs=16).run(steps=640)
    values = trainer.learner.algo.values(trainer.learner.nets, torch.zeros(1, dtype=torch.long))
    assert abs(values.max().item() - 1) < .05


# ---- evaluation of what does not end

class Coin(gym.Env):
    "The first observation says how much each of the next steps pays; it never ends"
    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return 0, {}

    def step(self, action):
        self.time += 1
        return int(self.time > 3), float(self.time <= 3), False, False, {}      # pays in the first three steps only


@pytest.mark.parametrize("num_envs", [1, 4])
def test_an_episode_that_is_cut_ends(num_envs):
    found = evaluate(Trainer(Coin, "qlearning"), episodes=8, num_envs=num_envs, longest=6)
    assert found.returns.tolist() == [3.] * 8 and found.lengths.tolist() == [6] * 8


def test_a_vector_made_by_hand_says_that_it_cannot_end_early():
    with pytest.raises(EnvProblem, match="cannot end it"):
        evaluate(Trainer(make("CartPole-v1", 4), "ppo"), episodes=4, longest=3)


# ---- the beat of replay

BEATS = [(8, 12, 80), (16, 12, 80), (1, 4, 240), (5, 7, 137), (8, 4, 240), (16, 3, 320)]


@pytest.mark.parametrize("num_envs, every, rounds", BEATS)
def test_the_beat_is_kept_with_several_environments(num_envs, every, rounds):
    trainer = Trainer("CartPole-v1", "dqn", num_envs=num_envs, native=False, train_freq=every, learning_starts=1,
                      gradient_steps=1, batch_size=2, hidden=(2,))
    trainer.run(steps=960)
    assert abs(trainer.updates - rounds) <= 1


def test_a_reset_without_a_seed_is_told_of():
    class Old(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (2,))
        action_space = gym.spaces.Discrete(2)

        def reset(self):
            return np.zeros(2, np.float32), {}

    for make_one in (Old, lambda: gym.wrappers.TimeLimit(Old(), 5)):
        with pytest.raises(EnvProblem, match="its reset takes no seed; expected reset"):
            make(make_one)
