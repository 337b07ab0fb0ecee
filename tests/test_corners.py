"Settings and spaces at their edges"
from functools import partial

import gymnasium as gym
import numpy as np
import pytest

from rlbench.core.spaces import AGENT, SpaceProblem
from rlbench.core.state import same
from rlbench.envs.env import EnvList, EnvProblem
from rlbench.envs.native import NativeVec
from rlbench.training.trainer import Trainer, load


class Seen(gym.Env):
    "Two steps in which some element of a space is seen"

    def __init__(self, space):
        self.observation_space = space
        self.action_space = gym.spaces.Discrete(2)
        space.seed(0)
        self.shown = space.sample()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.shown, {}

    def step(self, act):
        self.steps += 1
        return self.shown, 1., self.steps == 2, False, {}


PICTURE = gym.spaces.Box(0, 255, (36, 36, 3), np.uint8)
FLAGS = gym.spaces.Box(0, 1, (3,), np.bool_)
WITHOUT = [PICTURE, FLAGS, gym.spaces.Discrete(3), gym.spaces.Dict(a=gym.spaces.Discrete(2))]


@pytest.mark.parametrize("space", WITHOUT, ids=lambda space: type(space).__name__)
def test_what_has_no_mean_is_not_normalised_and_says_so(space):
    with pytest.raises(SpaceProblem, match="normalize_obs"):
        Trainer(lambda: Seen(space), "ppo", n_steps=4, normalize_obs=True)


@pytest.mark.parametrize("algo", ["stream_q", "stream_ac"])
def test_streams_see_what_has_no_mean_as_it_is(algo):
    assert Trainer(lambda: Seen(FLAGS), algo, hidden=(4,)).run(steps=9).updates


@pytest.mark.parametrize("algo", ["ppo", "recurrent_ppo"])
def test_a_single_number_is_normalised(algo):
    box = gym.spaces.Box(-1, 1, ())
    trainer = Trainer(lambda: Seen(box), algo, n_steps=4, hidden=(4,), normalize_obs=True).run(steps=32)
    assert trainer.updates


def test_a_box_without_width_has_nothing_to_squash_into():
    class Still(Seen):
        def __init__(self):
            super().__init__(gym.spaces.Box(-1, 1, (2,)))
            self.action_space = gym.spaces.Box(0, 0, (1,))

    with pytest.raises(SpaceProblem, match="there is nothing between its bounds"):
        Trainer(Still, "sac")


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_numbers_of_any_precision_are_chosen_and_learned_from(kind):
    class Fine(Seen):
        def __init__(self):
            super().__init__(gym.spaces.Box(-1, 1, (2,), kind))
            self.action_space = gym.spaces.Box(-1, 1, (1,), kind)

        def step(self, act):
            assert act in self.action_space
            return super().step(act)

    trainer = Trainer(Fine, "ppo", n_steps=8, hidden=(4,)).run(steps=16)
    assert trainer.policy.act(trainer.obs["agent"][0], greedy=False) in Fine().action_space
    Trainer(Fine, "bc", memory=trainer.learner.memory, hidden=(4,)).run(updates=2)


def test_a_minibatch_larger_than_a_rollout_is_all_of_it():
    trainer = Trainer("CartPole-v1", "ppo", num_envs=1, n_steps=4, batch_size=1000, n_epochs=3)
    trainer.until("iteration")
    assert (trainer.updates, len(trainer.learner.last.batch)) == (3, 4)


def test_a_policy_stays_inside_the_box():
    trainer = Trainer("Pendulum-v1", "ppo", num_envs=1, n_steps=4)
    obs = np.tile(trainer.env.observation_space.sample(), (200, 1))
    act = trainer.policy.act(obs, greedy=False)
    assert abs(act).max() == 2          # some were chosen beyond it


def test_episodes_longer_than_the_memory_are_named():
    trainer = Trainer("CartPole-v1", "reinforce", num_envs=1, buffer_size=3, n_episodes=1)
    with pytest.raises(ValueError, match="set buffer_size larger than the longest episode"):
        trainer.run(steps=300)


# ---- rows that come late

class Far(gym.Env):
    "States that are counted from 5 on"
    observation_space = gym.spaces.Discrete(3, start=5)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return 5, {}

    def step(self, act):
        self.time += 1
        return 5 + self.time % 3, 1., self.time == 7, False, {}


class Late(EnvList):
    "Two environments, of which one makes no transitions in its first steps"

    def __init__(self, idle):
        super().__init__("Late", Far, 2)
        self.idle = idle                # steps without a row

    def step(self, acts):
        self.idle -= 1
        step = super().step(acts)[AGENT]
        return {AGENT: step._replace(valid=np.array([self.idle < 0, True]))}


LEARNERS = dict(ppo=dict(n_steps=8), recurrent_ppo=dict(n_steps=8, hidden=(4,)), dqn=dict(learning_starts=4),
                reinforce=dict(n_episodes=2), qlearning={}, sarsa={}, td_lambda={}, monte_carlo={}, dyna={},
                prioritised_sweeping={},
                count_bonus={}, linear_sarsa={})


@pytest.mark.parametrize("algo", LEARNERS)
def test_an_environment_may_give_no_rows_for_a_while(algo, tmp_path):
    trainer = Trainer(partial(Late, 20), algo, num_envs=2, **LEARNERS[algo]).run(steps=60)
    assert trainer.updates > 0
    trainer.save(tmp_path / "run.rlb")
    there = load(tmp_path / "run.rlb", env=partial(Late, -1))
    assert same(there.state(), trainer.state())
    trainer.run(steps=60)


class Relief:
    "One worker; a second one comes when others would have learned already"
    possible_agents = ["first", "second"]
    metadata = dict(render_modes=[])
    agents = ()

    def __init__(self, space, shown):
        self.space = space
        self.shown = shown

    @property
    def unwrapped(self):
        return self

    def behaviour_of(self, agent):
        return "worker"

    def observation_space(self, agent):
        return self.space

    def action_space(self, agent):
        return gym.spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        self.time = 0
        self.agents = ["first"]
        return dict(first=self.shown), {}

    def step(self, acts):
        self.time += 1
        told = [*acts, "second"] if self.time == 30 else list(acts)
        cut = {agent: self.time == 40 for agent in acts}
        self.agents = [agent for agent in told if not cut.get(agent)]
        return dict.fromkeys(told, self.shown), dict.fromkeys(acts, 1.), dict.fromkeys(acts, False), cut, {}

    def close(self):
        "Nothing to close"


MASK = np.array([1, 0, 1], np.int8)
SHOWN = [
    (gym.spaces.Discrete(3, start=5), 6),
    (gym.spaces.MultiDiscrete([3, 3], start=[4, 4]), np.array([4, 6])),
    (gym.spaces.Dict(place=gym.spaces.Discrete(2, start=1), action_mask=gym.spaces.MultiBinary(3)),
     dict(place=2, action_mask=MASK)),
]


@pytest.mark.parametrize("algo", ["ppo", "recurrent_ppo", "dqn", "qlearning", "reinforce"])
@pytest.mark.parametrize("space, shown", SHOWN, ids=lambda one: type(one).__name__)
def test_who_has_not_come_yet_is_shown_something_that_there_is(algo, space, shown, tmp_path):
    if algo == "qlearning" and isinstance(shown, dict):
        return                          # it obeys no mask
    make = partial(Relief, space, shown)
    settings = dict(n_steps=8) if "ppo" in algo else {}
    trainer = Trainer(make, algo, **settings).run(steps=35)
    trainer.save(tmp_path / "run.rlb")
    assert same(load(tmp_path / "run.rlb", env=make).run(steps=30).state(), trainer.run(steps=30).state())


# ---- masks that allow nothing

class Closing(gym.Env):
    "Of three actions two are allowed; where it ends, none is, and in one state that is not the end as it is told"

    def __init__(self, cut=False, stuck=9):
        self.observation_space = gym.spaces.Dict(x=gym.spaces.Box(-1, 1, (2,)), action_mask=gym.spaces.MultiBinary(3))
        self.action_space = gym.spaces.Discrete(3)
        self.cut = cut
        self.stuck = stuck

    def seen(self, over):
        closed = over or self.time == self.stuck
        mask = np.zeros(3) if closed else np.arange(3) != self.time % 3
        return dict(x=np.full(2, self.time / 9, np.float32), action_mask=mask.astype(np.int8))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.seen(False), {}

    def step(self, act):
        assert act != self.time % 3
        self.time += 1
        over = self.time == 4
        return self.seen(over), 1., over and not self.cut, over and self.cut, {}


class Pair(Relief):
    "Two workers, of whom one leaves early, and none of them may do anything then"

    def __init__(self, stuck=9):
        super().__init__(Closing().observation_space, None)
        self.stuck = stuck

    def seen(self, over):
        mask = np.zeros(3) if over or self.time == self.stuck else np.array([1, 0, 1])
        return dict(x=np.zeros(2, np.float32), action_mask=mask.astype(np.int8))

    def reset(self, seed=None, options=None):
        self.time = 0
        self.agents = ["first", "second"]
        return {agent: self.seen(False) for agent in self.agents}, {}

    def step(self, acts):
        self.time += 1
        over = {agent: self.time == 7 or (agent == "first" and self.time == 3) for agent in acts}
        self.agents = [agent for agent in acts if not over[agent]]
        assert 1 not in acts.values()
        seen = {agent: self.seen(over[agent]) for agent in acts}
        return seen, dict.fromkeys(acts, 1.), over, dict.fromkeys(acts, False), {}


def closing_vector(mode, **how):
    one = partial(Closing, **how)
    return NativeVec("Closing", one(), gym.vector.SyncVectorEnv([one] * 3, autoreset_mode=mode))


def closing_pair(cut=False, stuck=9):
    return partial(Pair, stuck)


SORTS = dict(single=partial(partial, Closing), team=closing_pair)
SORTS |= {mode.name: partial(closing_vector, mode) for mode in gym.vector.AutoresetMode}
OBEDIENT = dict(ppo=dict(n_steps=8), recurrent_ppo=dict(n_steps=8), reinforce={}, dqn=dict(learning_starts=8))


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("algo", OBEDIENT)
def test_where_an_episode_is_over_no_action_need_be_allowed(algo, sort, cut):
    trainer = Trainer(SORTS[sort](cut=cut), algo, hidden=(4,), **OBEDIENT[algo])
    trainer.run(steps=100)
    assert trainer.updates and all(weight.isfinite().all() for weight in trainer.learner.nets.state_dict().values())
    if sort in ("single", "team"):
        trainer.fork().close()          # and it can be gone back to


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("algo", OBEDIENT)
def test_where_an_episode_goes_on_some_action_must_be(algo, sort):
    with pytest.raises(EnvProblem, match="(Closing|Pair).*: an observation allows no action"):
        Trainer(SORTS[sort](stuck=2), algo, hidden=(4,), **OBEDIENT[algo]).run(steps=200)


# ---- what is legal, and seldom

class Paid(Seen):
    "Rewards and ends as numpy has them"

    def __init__(self, told, over):
        super().__init__(gym.spaces.Box(-1, 1, (2,)))
        self.told = told
        self.over = over

    def step(self, act):
        obs, _, term, trunc, info = super().step(act)
        return obs, self.told, self.over(term), self.over(trunc), info


@pytest.mark.parametrize("over", [np.bool_, np.array, np.int8, int])
@pytest.mark.parametrize("told", [np.bool_(True), np.array(1.), np.int64(1), True])
def test_rewards_and_ends_may_be_numbers_of_numpy(told, over):
    trainer = Trainer(lambda: Paid(told, over), "ppo", num_envs=1, n_steps=8, hidden=(4,)).run(steps=16)
    assert trainer.env.episodes[AGENT].mean_return == 2


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_a_part_of_an_observation_may_hold_nothing(algo, tmp_path):
    make = partial(Seen, gym.spaces.Dict(a=gym.spaces.Box(-1, 1, (0, 2)), b=gym.spaces.Discrete(2)))
    settings = dict(n_steps=8) if algo == "ppo" else dict(learning_starts=8, batch_size=4)
    trainer = Trainer(make, algo, hidden=(4,), **settings).run(steps=20)
    trainer.save(tmp_path / "run.rlb")
    twin = load(tmp_path / "run.rlb", env=make)
    assert same(twin.run(steps=30).state(), trainer.run(steps=30).state())


def test_an_action_in_parts_is_as_its_environment_takes_it():
    class Parts(Seen):
        def __init__(self, kind):
            super().__init__(gym.spaces.Box(-1, 1, (2,)))
            self.action_space = kind

    inner = gym.spaces.Tuple([gym.spaces.Discrete(2, start=1), gym.spaces.Box(-1, 1, (2,))])
    for kind in (inner, gym.spaces.Dict(a=inner, b=gym.spaces.MultiBinary(2))):
        policy = Trainer(partial(Parts, kind), "ppo", num_envs=1, n_steps=8, hidden=(4,)).policy
        assert policy.act(np.zeros(2, np.float32)) in kind


@pytest.mark.parametrize("algo", ["sac", "td3", "tqc", "crossq"])
def test_bounds_without_a_finite_width_are_none(algo):
    class Far(Seen):
        def __init__(self):
            super().__init__(gym.spaces.Box(-1, 1, (2,)))
            most = np.finfo(np.float32).max
            self.action_space = gym.spaces.Box(-most, most, (1,))

    with pytest.raises(SpaceProblem, match="finite bounds; take a Gaussian, as ppo has"):
        Trainer(Far, algo)


@pytest.mark.parametrize("space", [gym.spaces.Discrete(4, start=3),
                                   gym.spaces.Dict(a=gym.spaces.MultiDiscrete([2, 2], start=[5, -7]))])
def test_rows_that_nobody_wrote_are_not_looked_at(space):
    settings = dict(learning_starts=8, sequence_length=20, burn_in=4, batch_size=4, memory_size=4, hidden=(4,))
    trainer = Trainer(lambda: Seen(space), "r2d2", num_envs=1, buffer_size=300, **settings)
    assert trainer.run(steps=40).updates


def test_values_that_are_linear_in_a_single_number():
    assert Trainer(lambda: Seen(gym.spaces.Box(-1, 1, ())), "linear_td").run(steps=9).updates
