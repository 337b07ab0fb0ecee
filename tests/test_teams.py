"""Several behaviours in one world: who acts, who comes late, who leaves early, and what each of them is told."""
import gymnasium as gym
import numpy as np
import pytest
import torch

from rlbench.core.state import same
from rlbench.envs.find import find, make
from rlbench.envs.games import Chase, Pennies, apart
from rlbench.envs.teams import TeamList, specs_of, teams_of
from rlbench.training.trainer import Trainer

CLOCK = gym.spaces.Box(0, 99, (2,))


class Shift:
    "Two workers and a boss; worker b comes at step 2, worker a leaves at step 4, and at step 6 it is over for all"
    possible_agents = ["a", "boss", "b"]
    metadata = dict(render_modes=[])

    def __init__(self, end=6):
        self.end = end
        self.agents = []

    @property
    def unwrapped(self):
        return self

    def behaviour_of(self, agent):
        return "boss" if agent == "boss" else "worker"

    def observation_space(self, agent):
        return CLOCK

    def action_space(self, agent):
        return gym.spaces.Box(-1, 1, (1,)) if agent == "boss" else gym.spaces.Discrete(3)

    def look(self, agents):
        return {agent: np.array([self.t, self.luck], np.float32) for agent in agents}

    def reset(self, seed=None, options=None):
        self.luck = np.random.default_rng(seed).integers(90)
        self.t = 0
        self.agents = ["a", "boss"]
        return self.look(self.agents), {}

    def step(self, acts):
        assert set(acts) == set(self.agents)
        self.t += 1
        paid = {agent: float(np.sum(act)) for agent, act in acts.items()}
        ended = {agent: agent == "a" and self.t == 4 for agent in acts}
        cut = {agent: self.t == self.end for agent in acts}
        told = list(acts)
        if self.t == 2: told.append("b")
        self.agents = [agent for agent in told if not ended.get(agent) and not cut.get(agent)]
        return self.look(told), paid, ended, cut, {}

    def close(self):
        "Nothing to close"


def acts(n, worker=1, boss=.5):
    return dict(worker=np.full(2 * n, worker), boss=np.full((n, 1), boss, np.float32))


def test_behaviours_are_groups_of_agents():
    assert teams_of(Shift()) == dict(worker=["a", "b"], boss=["boss"])
    specs = specs_of(Shift(), 3)
    assert {name: spec.num_envs for name, spec in specs.items()} == dict(worker=6, boss=3)
    assert teams_of(Pennies()) == dict(even=["even"], odd=["odd"])
    assert find(Shift, {}).behaviours == ["worker", "boss"]


def test_who_comes_late_and_who_leaves_early():
    "Rows of worker: a and b of environment 0, then of environment 1"
    env = make(Shift, 2)
    obs = env.reset(0)
    assert isinstance(env, TeamList) and obs["worker"].shape == (4, 2) and obs["boss"].shape == (2, 2)
    steps = [env.step(acts(2)) for _ in range(7)]
    worker = [step["worker"] for step in steps]
    boss = [step["boss"] for step in steps]
    there = np.array([step.valid for step in worker])
    assert (there[:, 0] == there[:, 2]).all() and (there[:, 1] == there[:, 3]).all()
    assert there[:, 0].tolist() == [True] * 4 + [False] * 2 + [True]        # left with step 4, comes again
    assert there[:, 1].tolist() == [False] * 2 + [True] * 4 + [False]       # came with step 2, acts from step 3 on
    assert [step.first[0] for step in worker] == [False] * 5 + [True, False]
    assert [step.first[1] for step in worker] == [False, True] + [False] * 5
    assert [step.valid.all() for step in boss] == [True] * 7


def test_ends_and_cuts_belong_to_each():
    env = make(Shift, 1)
    env.reset(0)
    steps = [env.step(acts(1)) for _ in range(6)]
    worker = [step["worker"] for step in steps]
    assert [step.term.tolist() for step in worker] == [[False] * 2] * 3 + [[True, False]] + [[False] * 2] * 2
    assert [step.trunc.tolist() for step in worker] == [[False] * 2] * 5 + [[False, True]]
    assert [step["boss"].trunc.item() for step in steps] == [False] * 5 + [True]
    [left] = worker[3].ended
    assert (left.env, left.ret, left.length, left.term, left.who) == (0, 4., 4, True, "worker")
    [cut] = worker[5].ended
    assert (cut.env, cut.ret, cut.length, cut.term) == (1, 4., 4, False)
    assert env.episodes["boss"].mean_return == pytest.approx(3.) and env.episodes["worker"].total == 2
    assert worker[5].next_obs[1, 0] == 6 and worker[5].obs[0, 0] == 0       # the last view, and the first of the next


def test_actions_are_clipped_and_those_who_are_away_are_not_asked():
    env = make(Shift, 1)
    env.reset(0)
    assert env.step(acts(1, boss=5.))["boss"].rew.item() == 1


def test_teams_are_put_back_exactly():
    env = make(Shift, 2)
    env.reset(5)
    rng = np.random.default_rng(0)

    def drawn():
        return dict(worker=rng.integers(3, size=4), boss=rng.normal(size=(2, 1)).astype(np.float32))

    for _ in range(9): env.step(drawn())
    there = env.state()
    later = [drawn() for _ in range(14)]
    ahead = [env.step(act) for act in later]
    twin = make(Shift, 2)
    twin.reset(7)
    twin.restore(there)
    for act, was in zip(later, ahead):
        assert same({name: tuple(step) for name, step in twin.step(act).items()},
                    {name: tuple(step) for name, step in was.items()})


def test_only_true_transitions_are_remembered():
    trainer = Trainer(Shift, dict(worker="ppo", boss="ppo"), num_envs=2, n_steps=20, hidden=(8,), batch_size=20)
    trainer.learning = False
    trainer.until("step", 12)                                               # two episodes
    memories = {name: learner.memory for name, learner in trainer.learners.items()}
    assert memories["boss"].written.tolist() == [12, 12]
    assert memories["worker"].written.tolist() == [8, 8, 8, 8]
    rows = memories["worker"].gather(memories["worker"].latest())
    assert ((rows.next_obs[:, 0] - rows.obs[:, 0]) == 1).all()              # from one step to the next, always


@pytest.mark.parametrize("algo", ["ppo", "recurrent_ppo"])
def test_two_behaviours_learn_at_once_and_go_on_to_the_bit(algo):
    settings = dict(seed=1, num_envs=2, n_steps=8, batch_size=8, n_epochs=1, hidden=(8,))
    trainer = Trainer(Shift, dict(worker=algo, boss=algo), **settings).run(steps=100)
    assert all(learner.updates > 0 for learner in trainer.learners.values())
    there = trainer.snapshot()
    trainer.run(steps=50)
    away = trainer.snapshot()
    trainer.restore(there)
    assert same(trainer.run(steps=50).snapshot(), away)


class Break(Shift):
    "The boss is away from step 3 to 5, nobody says why, and at step 6 nobody is told that it is over"
    def step(self, acts):
        seen, paid, *_ = super().step(acts)
        gone = ["boss"] * (3 <= self.t < 5)
        self.agents = [agent for agent in (*acts, "b") if agent not in gone and (agent != "b" or self.t >= 2)]
        if self.t == 5: self.agents.append("boss")
        self.agents = [] if self.t == 6 else list(dict.fromkeys(self.agents))
        return self.look({*acts, *self.agents}), paid, {}, {}, {}


class ChoosingBreak(Break):
    def action_space(self, agent):
        return gym.spaces.Discrete(3)


def test_who_goes_away_and_comes_back_begins_anew():
    env = make(Break, 2)
    env.reset(0)
    steps = [env.step(acts(2))["boss"] for _ in range(12)]
    there = [step.valid.all() for step in steps]
    assert there == [step.valid.any() for step in steps] == ([True] * 3 + [False] * 2 + [True]) * 2
    cut = [step.trunc.all() for step in steps]
    assert [one for one, is_there in zip(cut, there) if is_there] == [False, False, True, True] * 2
    assert steps[2].next_obs[:, 0].tolist() == [3, 3]                       # as shown when it left
    assert [step.first.all() for step in steps] == ([False] * 4 + [True] * 2) * 2
    assert [(one.ret, one.length, one.term) for one in env.episodes["boss"].finished] == \
        [(1.5, 3, False)] * 2 + [(.5, 1, False)] * 2 + [(1.5, 3, False)] * 2 + [(.5, 1, False)] * 2
    env.step(acts(2))
    twin = make(Break, 2)
    twin.reset(7)
    twin.restore(env.state())                                               # what was paid is counted alike


@pytest.mark.parametrize("steps", range(1, 6))
def test_a_break_is_gone_back_into(steps):
    env = make(Break, 1)
    env.reset(0)
    for _ in range(steps): env.step(acts(1))
    twin = make(Break, 1)
    twin.reset(7)
    twin.restore(env.state())
    assert same({name: tuple(step) for name, step in twin.step(acts(1)).items()},
                {name: tuple(step) for name, step in env.step(acts(1)).items()})


def test_no_memory_reaches_across_a_break():
    settings = dict(seed=0, num_envs=2, hidden=(8,), lr=0.)
    trainer = Trainer(Break, dict(worker="ppo", boss="recurrent_ppo"), n_steps=16, **settings)
    learner = trainer.learners["boss"]
    while not learner.updates: trainer.advance()
    batch = learner.last
    torch.testing.assert_close(batch.parts.ratio, torch.ones_like(batch.parts.ratio), atol=1e-5, rtol=0)

    trainer = Trainer(ChoosingBreak, dict(worker="ppo", boss="r2d2"), **settings).run(steps=60)
    memory = trainer.learners["boss"].memory
    index = memory.latest()
    rows = memory.gather(index)
    assert (rows.next_obs[:, 0] == rows.obs[:, 0] + 1).all()
    np.testing.assert_array_equal(memory.begins(index), np.isin(rows.obs[:, 0], [0, 5]))
    assert (rows.carry[memory.begins(index)] == 0).all()


def test_who_acts_in_every_step_is_not_cut_whoever_has_the_turn():
    env = make("rlbench/Pennies-v0", 2)
    env.reset(0)
    steps = [env.step(dict(even=np.zeros(2, int), odd=np.zeros(2, int))) for _ in range(9)]
    assert not any(step[name].trunc.any() for step in steps for name in step)


# ---- games

def test_pennies_pays_what_it_takes():
    env = make("rlbench/Pennies-v0", 4)
    env.reset(0)
    even = np.array([0, 0, 1, 1])
    odd = np.array([0, 1, 0, 1])
    steps = [env.step(dict(even=even, odd=odd)) for _ in range(10)]
    assert steps[0]["even"].rew.tolist() == [1, -1, -1, 1]
    assert all((step["even"].rew == -step["odd"].rew).all() for step in steps)
    assert [step["even"].trunc.all() for step in steps] == [False] * 9 + [True]
    assert [one.ret for one in steps[9]["odd"].ended] == [-10, 10, 10, -10]


def test_a_way_on_a_circle_is_the_shorter_one():
    a = np.linspace(-9, 9, 37)
    way = apart(a[:, None], a)
    assert (np.abs(way) <= np.pi).all()
    np.testing.assert_allclose(np.cos(a[:, None] + way), np.broadcast_to(np.cos(a), way.shape), atol=1e-9)


def test_a_chaser_that_follows_comes_near():
    env = make("rlbench/Chase-v0", 8)
    obs = env.reset(0)
    for _ in range(49):
        ahead = obs["chaser"][:, 1]                                         # sine of the way to the runner
        step = env.step(dict(chaser=1 + np.sign(ahead).astype(int), runner=np.zeros((8, 1), np.float32)))
        obs = {name: one.obs for name, one in step.items()}
    assert (step["chaser"].rew >= -Chase.stride / np.pi).all()
    assert (step["chaser"].rew == -step["runner"].rew).all()


def test_a_runner_cannot_outrun_its_legs():
    game = Chase()
    game.reset(seed=0)
    before = game.at["runner"]
    game.step(dict(chaser=1, runner=np.array([7.])))
    assert game.at["runner"] - before == pytest.approx(Chase.stride * Chase.slower)


class Silent(Shift):
    "At step 6 everybody is gone, and nobody is told that it is over"
    def step(self, acts):
        seen, paid, ended, cut, info = super().step(acts)
        return seen, paid, ended, {agent: False for agent in cut}, info


def test_who_is_left_without_a_word_was_cut():
    "The next row is of a new episode, and no return may reach into it"
    env = make(Silent, 1)
    env.reset(0)
    steps = [env.step(acts(1)) for _ in range(12)]
    ends = [index for index, step in enumerate(steps) if step["boss"].trunc.all()]
    assert ends == [5, 11] and not any(step["boss"].term.any() for step in steps)
    assert steps[5]["boss"].next_obs[0, 0] == 6 and steps[5]["boss"].obs[0, 0] == 0
    assert [one.length for one in env.episodes["boss"].finished] == [6, 6]
