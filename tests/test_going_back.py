"Whether an environment can be put back into an episode: found out before a run, said once, exact where it can"
import copy
import random
import threading
import warnings
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from rlbench.core.state import FileProblem, same
from rlbench.envs import env as envs
from rlbench.envs import replays
from rlbench.envs.env import EnvProblem
from rlbench.envs.native import NativeVec
from rlbench.envs.place import layers, means_in
from rlbench.lab.page.workbench import Workbench
from rlbench.launch.cli import main
from rlbench.training.evaluate import evaluate
from rlbench.training.trainer import CannotGoBack, Trainer, load
from rlbench.training.visits import fresh_envs

pytestmark = pytest.mark.filterwarnings("ignore::rlbench.training.trainer.CannotGoBack")
SMALL = dict(num_envs=2, n_steps=8, batch_size=8, hidden=(4,))


class Pole(gym.Wrapper):
    "CartPole, which can be put back"

    def __init__(self, render_mode=None):
        super().__init__(gym.make("CartPole-v1"))


class SharedDice(Pole):
    "Draws from the generator that everybody shares"

    def step(self, act):
        obs, *rest = self.env.step(act)
        return obs + np.float32(np.random.random()), *rest


class SeededDice(SharedDice):
    "Seeds it at every reset, so that two of them disturb one another"

    def reset(self, seed=None, options=None):
        np.random.seed(seed)
        return self.env.reset(seed=seed)


class Counting(Pole):
    "Counts episodes"
    episodes = 0

    def reset(self, **how):
        self.episodes += 1
        self.left = 12 - self.episodes % 7
        return self.env.reset(**how)


class OtherRewards(Counting):
    "Pays something else in every episode"

    def step(self, act):
        obs, rew, *rest = self.env.step(act)
        return obs, rew + self.episodes, *rest


class OtherEnds(Counting):
    "Ends otherwise in every episode"

    def step(self, act):
        obs, rew, term, *rest = self.env.step(act)
        self.left -= 1
        return obs, rew, term or self.left < 0, *rest


class OtherCuts(Counting):
    "Is cut otherwise in every episode"

    def step(self, act):
        obs, rew, term, trunc, info = self.env.step(act)
        self.left -= 1
        return obs, rew, term, trunc or self.left < 0, info


class OtherBeginnings(Counting):
    "Shows something else after every reset"

    def reset(self, **how):
        obs, info = super().reset(**how)
        return obs + np.float32(self.episodes), info


class TellsAll(OtherEnds):
    "Counts and draws, and tells it all"

    def reset(self, **how):
        self.dice = np.random.default_rng(self.episodes)
        return super().reset(**how)

    def step(self, act):
        obs, rew, *rest = super().step(act)
        return obs, rew + self.episodes + self.dice.random(), *rest

    @property
    def unwrapped(self):
        return self

    def get_state(self):
        pole = self.env.unwrapped
        return dict(episodes=self.episodes, left=self.left, dice=self.dice.bit_generator.state,
                    pole=np.array(pole.state))

    def set_state(self, state):
        self.episodes = state["episodes"]
        self.left = state["left"]
        self.dice.bit_generator.state = state["dice"]
        self.env.unwrapped.state = state["pole"]
        self.env.unwrapped.steps_beyond_terminated = None


class TellsTooLittle(TellsAll):
    "Forgets to tell how many episodes there were"

    def get_state(self):
        return super().get_state() | dict(episodes=3)


class TellsObjects(TellsAll):
    "Tells what no file can hold"

    def get_state(self):
        return super().get_state() | dict(self=self)


class Chase:
    "Two that act at once; the prey is paid for the episodes that it ever began"
    possible_agents = ["hunter", "prey"]
    metadata = {}
    episodes = 0

    @property
    def unwrapped(self):
        return self

    def observation_space(self, agent):
        return gym.spaces.Box(0, 99, (1,))

    def action_space(self, agent):
        return gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.time = 0
        self.episodes += 1
        self.agents = list(self.possible_agents)
        return self.seen(), {}

    def seen(self):
        return {agent: np.array([self.time], np.float32) for agent in self.possible_agents}

    def step(self, acts):
        self.time += 1
        over = self.time == 5
        if over: self.agents = []
        flags = dict.fromkeys(self.possible_agents, over)
        return self.seen(), dict(hunter=1., prey=float(self.episodes)), flags, dict.fromkeys(flags, False), {}

    def close(self):
        "Nothing to close"


class Locked(OtherEnds):
    "Holds what cannot be copied"

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class ClassDice(OtherEnds):
    "Draws from a generator that belongs to all of its kind"
    dice = np.random.default_rng(0)

    def step(self, act):
        obs, rew, *rest = super().step(act)
        return obs, rew + self.dice.random(), *rest


class CopiedDice(ClassDice):
    "Draws from a generator of its own, and passes it on to its copies"

    def __init__(self):
        super().__init__()
        dice = np.random.default_rng(0)
        self.draw = lambda: dice.random()

    def step(self, act):
        obs, rew, *rest = self.env.step(act)
        return obs, rew + self.draw(), *rest


class OwnWay(Locked):
    "Is copied in its own way"

    def __deepcopy__(self, memo):
        twin = OwnWay()
        twin.episodes = self.episodes
        twin.left = self.left
        twin.env = copy.deepcopy(self.env)
        return twin


class Entangled(OtherRewards):
    "Is held by parts of its own"

    def __init__(self):
        super().__init__()
        self.part = dict(whole=self, pay=self.pay)

    def pay(self):
        self.left -= 1
        return self.left

    def step(self, act):
        obs, rew, *rest = super().step(act)
        return obs, rew + self.part["pay"]() + self.part["whole"].left, *rest


class RareDice(Pole):
    "Slips once in ten steps, by a generator that everybody shares"

    def step(self, act):
        return self.env.step(act if random.random() > .1 else 1 - act)


class OnceSeeded(Pole):
    "Takes a seed only the first time"
    seeded = False

    def reset(self, seed=None, options=None):
        obs, info = self.env.reset(seed=None if self.seeded else seed)
        self.seeded = True
        return obs, info


class Moody(Pole):
    "Pays more in a mood that it carries through its episodes"
    mood = 0.

    def step(self, act):
        obs, rew, *rest = self.env.step(act)
        self.mood = .99 * self.mood + .01 * float(obs[0])
        return obs, rew + (self.mood > 0), *rest


LIARS = [SharedDice, SeededDice, ClassDice, CopiedDice, Locked, RareDice]
COPIED = [OtherRewards, OtherEnds, OtherCuts, OtherBeginnings, TellsTooLittle, TellsObjects, OwnWay, Entangled,
          OnceSeeded, Moody]


@pytest.mark.parametrize("kind", COPIED)
def test_what_can_be_copied_goes_back_in_the_process(kind, tmp_path):
    with pytest.warns(UserWarning, match=f"{kind.__name__} cannot be put back.*fresh_episodes.*goes back by copies"):
        trainer = Trainer(kind, "ppo", **SMALL)
    envs_were = [*trainer.env.envs]
    trainer.run(steps=43)
    there = trainer.snapshot()
    trainer.save(tmp_path / "run.rlb")
    with warnings.catch_warnings():
        warnings.simplefilter("error")                      # it was said
        twin = trainer.fork()
    assert not {id(env) for env in twin.env.envs} & {id(env) for env in envs_were}
    texts = [trainer.advance().text for _ in range(50)]
    end = trainer.snapshot()
    assert [twin.advance().text for _ in range(50)] == texts
    for _ in range(2):                                      # a snapshot may be used again
        trainer.restore(there)
        assert [trainer.advance().text for _ in range(50)] == texts
        assert same(trainer.state(), end)
    assert [*map(id, trainer.env.envs)] == [*map(id, envs_were)]
    with pytest.raises(FileProblem, match="cannot be put back into an episode.*goes back by copies"):
        load(tmp_path / "run.rlb", env=kind)
    assert load(tmp_path / "run.rlb", env=kind, fresh_episodes=True).run(steps=20).steps >= 63


def test_a_copy_of_several_behaviours_goes_back_too():
    trainer = Trainer(Chase, "dqn", num_envs=2, learning_starts=10).run(steps=43)
    twin = trainer.fork()
    there = trainer.snapshot()
    texts = [trainer.advance().text for _ in range(50)]
    trainer.restore(there)
    assert [trainer.advance().text for _ in range(50)] == texts
    assert same(twin.run(steps=50).state(), trainer.run(steps=twin.steps - trainer.steps).state())


def test_what_can_be_copied_no_more_says_so():
    trainer = Trainer(OtherEnds, "ppo", **SMALL).run(steps=43)
    trainer.env.envs[0].unwrapped.lock = threading.Lock()
    there = trainer.snapshot()
    for back in (lambda: trainer.restore(there), trainer.fork):
        with pytest.raises(EnvProblem, match="could not be copied.*cannot pickle '_thread.lock'"):
            back()
    trainer.run(steps=20)
    trainer.restore(there, fresh_episodes=True)
    assert trainer.run(steps=20).steps >= 63


def test_the_workbench_rewinds_by_copies():
    bench = Workbench(OtherEnds, "ppo", driver="sync", **SMALL)
    bench.step("step", 20)
    there = bench.snapshot()
    bench.step("step", 30)
    after = bench.trainer.state()["env"]["counts"]
    bench.rewind(there).step("step", 30)
    assert same(bench.trainer.state()["env"]["counts"], after)
    bench.close()


@pytest.mark.parametrize("kind", LIARS)
def test_what_cannot_be_put_back_is_found_before_a_run(kind, tmp_path):
    with pytest.warns(UserWarning, match=f"{kind.__name__} cannot be put back into an episode.*fresh_episodes=True"):
        trainer = Trainer(kind, "ppo", **SMALL)
    trainer.run(steps=40)
    before = trainer.snapshot()
    trainer.save(tmp_path / "run.rlb")
    for back in (lambda: trainer.restore(before), trainer.fork):
        with pytest.raises(EnvProblem, match="cannot be put back"):
            back()
    assert same(trainer.state(), before)                    # and nothing has happened
    with pytest.raises(FileProblem, match="cannot be put back"):
        load(tmp_path / "run.rlb", env=kind)
    assert load(tmp_path / "run.rlb", env=kind, fresh_episodes=True).run(steps=20).steps == 60
    assert len(evaluate(trainer, 2, longest=30).returns) == 2


def test_of_several_behaviours_too():
    with pytest.warns(UserWarning, match="Chase cannot be put back.*another reward"):
        Trainer(Chase, "dqn")


@pytest.mark.parametrize("kind, way", [(Pole, "replay"), (TellsAll, "told"), ("CartPole-v1", "replay")])
def test_what_can_be_put_back_goes_on_exactly(kind, way, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer = Trainer(kind, "ppo", native=False, **SMALL).run(steps=75)
    assert trainer.env.ways[0] == way
    trainer.save(tmp_path / "run.rlb")
    twins = load(tmp_path / "run.rlb", env=kind), trainer.fork()
    trainer.run(steps=100)
    for twin in twins:
        assert same(twin.run(steps=100).state(), trainer.state())


class Writes(gym.Env):
    "Moves by what it makes of its action, in the array that it is given"
    action_space = gym.spaces.Box(-1, 1, (2,))
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = np.zeros(2, np.float32)
        return self.at.copy(), {}

    def step(self, act):
        act *= 2
        self.at += act
        return self.at.copy(), float(act.sum()), False, False, {}


class WritesNumbers(Writes):
    action_space = gym.spaces.MultiDiscrete([3, 3])


class WritesChase(Chase):
    "The same of several behaviours"

    def action_space(self, agent):
        return gym.spaces.MultiDiscrete([3, 3])

    def step(self, acts):
        answers = super().step(acts)
        for act in acts.values(): act *= 2
        paid = {agent: float(act.sum()) for agent, act in acts.items()}
        return answers[0], paid, *answers[2:]

    def reset(self, seed=None, options=None):
        self.episodes = 0
        return super().reset(seed)


@pytest.mark.parametrize("kind", [Writes, WritesNumbers, WritesChase])
def test_who_writes_into_its_actions_changes_no_record(kind, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer = Trainer(kind, "ppo", **SMALL).run(steps=29)
    first = next(iter(trainer.learners.values())).memory
    if kind is Writes:
        assert not np.array_equal(first.places.rew[:3], first.places.act[:3].clip(-1, 1).sum(-1))
    trainer.save(tmp_path / "run.rlb")
    twin = load(tmp_path / "run.rlb", env=kind).run(steps=50)
    assert same(twin.state(), trainer.run(steps=50).state())


def test_the_run_itself_is_not_touched():
    made = []

    class Watched(Pole):
        def __init__(self):
            super().__init__()
            self.calls = []
            made.append(self)

        def reset(self, **how):
            self.calls.append("reset")
            return self.env.reset(**how)

        def step(self, act):
            self.calls.append("step")
            return self.env.step(act)

        def close(self):
            self.calls.append("close")
            super().close()

    was = np.random.get_state()
    trainer = Trainer(Watched, "ppo", **SMALL)
    assert same(was, np.random.get_state())
    inside = [one for env in trainer.env.envs for one in made if one in layers(env)]
    assert [one.calls for one in inside] == [["reset"], ["reset"]]
    assert sum("close" not in one.calls for one in made) == 3       # theirs, and the one that is only asked
    assert sum(map(len, [one.calls for one in made])) < 3000


def test_who_does_not_want_it_is_not_told():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Trainer(OtherRewards, "ppo", check_env=False, **SMALL)


def test_one_that_fails_when_tried_says_so_when_it_is_run():
    class Broken(Pole):
        def step(self, act):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Trainer(Broken, "ppo", **SMALL).run(steps=4)


class Endless(gym.Env):
    "An episode that never ends"
    observation_space = gym.spaces.Box(0, np.inf, (1,))
    action_space = gym.spaces.Box(-1, 1, (1,))

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, act):
        self.time += 1
        return np.array([self.time], np.float32), float(act[0]), False, False, {}


def test_the_record_of_an_endless_episode_does_not_grow_for_ever(monkeypatch, tmp_path):
    monkeypatch.setattr(envs, "LONGEST", 50)
    monkeypatch.setattr(replays, "LONGER", 0)               # a trial of the way back is shorter than that
    monkeypatch.setattr(replays, "PATIENCE", 0)
    trainer = Trainer(Endless, "ppo", **SMALL).run(steps=90)
    assert same(trainer.fork().run(steps=4).state(), trainer.run(steps=4).state())
    trainer.run(steps=100)
    assert [len(taken) for taken in trainer.env.taken] == [51, 51]
    before = trainer.snapshot()
    twin = trainer.fork()                                   # by copies, within the process
    after = trainer.run(steps=20).snapshot()
    assert same(twin.run(steps=20).state(), after)
    trainer.restore(before)
    assert same(trainer.run(steps=20).state(), after)
    trainer.save(tmp_path / "run.rlb")
    with pytest.raises(FileProblem, match="an episode of more than 50 steps.*fresh_episodes=True"):
        load(tmp_path / "run.rlb", env=Endless)
    load(tmp_path / "run.rlb", env=Endless, fresh_episodes=True).run(steps=10)


class EndsLate(Endless):
    "Its episodes last 300 steps, and every one a step longer than the one before"
    episodes = 0

    def reset(self, seed=None, options=None):
        self.episodes += 1
        return super().reset(seed=seed)

    def step(self, act):
        obs, rew, term, _, info = super().step(act)
        return obs, rew, term, self.time == 300 + self.episodes, info


def test_an_end_that_comes_late_is_seen(monkeypatch):
    monkeypatch.setattr(replays, "PATIENCE", 60)            # on the slowest of machines
    with pytest.warns(UserWarning, match="EndsLate cannot be put back.*another cut after"):
        trainer = Trainer(EndsLate, "ppo", **SMALL)
    assert trainer.env.ways == ("copy",)


def test_nobody_waits_for_a_slow_environment(monkeypatch):
    steps = []

    class Slow(Endless):
        def step(self, act):
            steps.append(1)
            return super().step(act)

    monkeypatch.setattr(replays, "PATIENCE", 0)
    Trainer(Slow, "ppo", **SMALL)
    few = len(steps)
    assert few <= 12 * (replays.FEW + 1)                    # two copies of two, and two ways
    monkeypatch.setattr(replays, "LONGER", 0)
    Trainer(Slow, "ppo", **SMALL)
    assert len(steps) == few + 24                           # two of them to hear of terms of the reward


def test_rewards_and_ends_are_compared_when_going_back():
    class Late(Endless):
        "Pays something else from its hundredth step on, and shows nothing of it"
        steps = 0

        def step(self, act):
            self.steps += 1
            obs, rew, *rest = super().step(act)
            return obs, rew + (self.steps > 100), *rest

    trainer = Trainer(Late, "ppo", check_env=False, **SMALL).run(steps=300)
    trainer.env.begin(0)
    trainer.env.step(dict(agent=np.zeros((2, 1), np.float32)))
    with pytest.raises(EnvProblem, match="led to another reward"):
        trainer.fork()


class Payday(Chase):
    "Pays the prey something else in every episode from its hundredth step on, and shows nothing of it"
    steps = 0

    def step(self, act):
        self.steps += 1
        seen, paid, *rest = super().step(act)
        return seen, paid | dict(prey=float(self.steps > 100 and self.steps)), *rest


class Many(gym.vector.VectorEnv):
    "Several that pay what they draw, all at once"
    metadata = dict(autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    single_observation_space = gym.spaces.Box(0, 99, (1,))
    single_action_space = gym.spaces.Discrete(2)

    def __init__(self, num_envs=2):
        self.num_envs = num_envs
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = np.zeros(self.num_envs)
        return self.seen(), {}

    def seen(self):
        return self.time[:, None].astype(np.float32)

    def draw(self):
        return self.np_random.random(self.num_envs)

    def step(self, acts):
        self.time += 1
        over = self.time >= 7
        final = self.seen()
        self.time[over] = 0
        return self.seen(), self.draw(), over, np.zeros_like(over), dict(final_obs=final)


class ManyShared(Many):
    "They draw from the generator that everybody shares"

    def draw(self):
        return np.random.random(self.num_envs)


class ManyThings(Many):
    "They keep something that is no number"
    counts = None

    def draw(self):
        self.counts = self.counts or SimpleNamespace(n=0)
        self.counts.n += 1
        return np.full(self.num_envs, self.counts.n, float)


class One(gym.Env):
    "One of them, to ask"
    observation_space = Many.single_observation_space
    action_space = Many.single_action_space


class OneShared(Endless):
    "Pays what everybody shares"

    def step(self, act):
        obs, rew, *rest = super().step(act)
        return obs, np.random.random(), *rest


def vector_of(kind):
    return lambda: NativeVec(kind.__name__, One(), kind())


def listed(kind):
    return lambda: envs.EnvList(kind.__name__, kind, 2)


VECTORS = [
    (vector_of(Many), ("attributes", "copy")),
    (vector_of(ManyThings), ("copy",)),
    (vector_of(ManyShared), ()),
    (listed(Endless), ("replay", "copy")),
    (listed(OtherEnds), ("copy",)),
    (listed(OneShared), ()),
]


class Bare(envs.VecEnv):
    "A vector of somebody's own that tells nothing"

    def __init__(self):
        single = One()
        super().__init__("Bare", single, envs.spec_of(single, 2), 2)

    def reset(self, seed):
        self.time = 0
        self.count_anew()
        return dict(agent=np.zeros((2, 1), np.float32))

    def step(self, acts):
        self.time += 1
        self.steps += 2
        rew = np.ones(2, np.float32)
        over = np.full(2, self.time % 5 == 0)
        here = np.full((2, 1), self.time, np.float32)
        everyone = np.ones(2, bool)
        ended = self.episodes["agent"].add(rew, over, over, everyone)
        return dict(agent=envs.Step(here, rew, over, np.zeros(2, bool), here.copy(), everyone, over, ended))


class Telling(Bare):
    "It tells all there is"

    def state(self):
        return dict(time=self.time, counts=self.counts())

    def restore(self, tree):
        self.time = tree["time"]
        self.recount(tree["counts"])


class TellingLies(Telling):
    "It tells something else"

    def state(self):
        return super().state() | dict(time=4)


VECTORS += [(Bare, ()), (Telling, ("own",)), (TellingLies, ())]


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("make, ways", VECTORS)
def test_vectors_made_by_hand_are_tried_too(make, ways, ready, tmp_path):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer = Trainer(make() if ready else make, "ppo", **SMALL).run(steps=24)
    assert trainer.env.ways == ways
    assert len(said) == (ways in ((), ("copy",)))
    trainer.save(tmp_path / "run.rlb")
    there = trainer.snapshot()
    if ways:
        texts = [trainer.advance().text for _ in range(30)]
        after = trainer.snapshot()
        trainer.restore(there)
        assert ([trainer.advance().text for _ in range(30)], same(trainer.state(), after)) == (texts, True)
    else:
        with pytest.raises(EnvProblem, match="cannot be put back"):
            trainer.restore(there)
    if said:
        with pytest.raises(FileProblem, match="cannot be put back"):
            load(tmp_path / "run.rlb", env=make)
    assert load(tmp_path / "run.rlb", env=make, fresh_episodes=bool(said)).run(steps=20).steps == 44


def test_a_vector_that_is_registered_is_tried_too(monkeypatch):
    monkeypatch.setattr(gym.envs.registration, "registry", dict(gym.registry))
    gym.register("Shared-v0", entry_point=One, vector_entry_point=f"{__name__}:ManyShared")
    with pytest.warns(UserWarning, match="Shared-v0 cannot be put back.*another reward.*native=False"):
        Trainer("Shared-v0", "ppo", **SMALL)


def test_what_cannot_be_written_is_saved_without_being_tried(tmp_path):
    trainer = Trainer(vector_of(ManyThings), "ppo", check_env=False, **SMALL).run(steps=24)
    trainer.save(tmp_path / "run.rlb")
    with pytest.raises(EnvProblem, match="its attribute 'counts' is more than arrays and numbers"):
        trainer.restore(trainer.snapshot())
    with pytest.raises(FileProblem, match="its attributes could not be written down.*fresh_episodes"):
        load(tmp_path / "run.rlb", env=vector_of(ManyThings))
    assert load(tmp_path / "run.rlb", env=vector_of(ManyThings), fresh_episodes=True).run(steps=20).steps == 44


class Leaving(Payday):
    "Some leave early, some are only shown that they are there, and nobody hears that it is over"
    steps = -1_000_000

    def step(self, act):
        seen, paid, ended, cut, info = super().step(act)
        ended = dict(hunter=self.time == 3, prey=False)
        self.agents = [agent for agent in self.agents if agent == "prey" or self.time < 3]
        return seen, paid | dict(hunter=.1), ended, cut, info


def test_rewards_of_several_behaviours_are_compared_when_going_back():
    trainer = Trainer(Payday, "dqn", check_env=False, num_envs=2, learning_starts=10).run(steps=40)
    assert same(trainer.fork().state(), trainer.state())
    trainer.run(steps=213)
    assert trainer.env.envs[0].time == 2
    with pytest.raises(EnvProblem, match="led to another reward"):
        trainer.fork()


@pytest.mark.parametrize("steps", range(41, 52))
def test_rewards_of_those_who_come_and_go_are_not_taken_for_others(steps):
    trainer = Trainer(Leaving, "dqn", check_env=False, learning_starts=100)
    while trainer.steps < steps: trainer.advance()
    twin = trainer.fork()
    assert same(twin.run(steps=20).state(), trainer.run(steps=20).state())


def test_the_command_line_says_it_in_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "own.py").write_text("from tests.test_going_back import OtherEnds\n")
    monkeypatch.chdir(tmp_path)
    words = ["train", "own.py:OtherEnds", "dqn", "--steps", "40", "--set", "eval_every=0", "--quiet"]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(words) == 0
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and said[0].startswith("rlbench: own.py:OtherEnds cannot be put back into an episode")


# ---- what wrappers count from one episode to the next

def scaled():
    return gym.wrappers.NormalizeReward(gym.wrappers.NormalizeObservation(gym.make("Pendulum-v1")))


@pytest.fixture(scope="module")
def counted():
    with warnings.catch_warnings():
        warnings.simplefilter("error", CannotGoBack)
        return Trainer(scaled, "ppo", seed=0, **SMALL).run(450)               # in the second episode of each


def counts_of(env):
    return [one["obs_rms"]["count"] for one in means_in(env) if "obs_rms" in one]


def test_running_means_are_saved(counted, tmp_path):
    counted.save(tmp_path / "run")
    loaded = load(tmp_path / "run", env=scaled)
    assert counted.digest() == loaded.digest()
    for run in (counted, loaded): run.run(500)
    assert counted.digest() == loaded.digest()
    afresh = load(tmp_path / "run", env=scaled, fresh_episodes=True)
    assert counts_of(afresh.env.envs[0])[0] > 200         # the policy sees what it has learned from


def test_a_copy_goes_on_from_them_and_counts_no_more(counted):
    before = means_in(counted.env.envs[0])
    copy_of = fresh_envs(counted, 3)
    copy_of.reset(0)
    copy_of.step({"agent": np.zeros((3, 1), np.float32)})
    assert [counts_of(env) for env in copy_of.envs] == 3 * [counts_of(counted.env.envs[0])]
    assert same(means_in(counted.env.envs[0]), before)
    copy_of.close()


def given_later_changed(w, array, deed):
    "What stands after a deed with what somebody gave, and after it was done again when that had been changed"
    there = w.timeline.at
    deed()
    w.step("event", 5)
    end = w.timeline.at
    before = w.trainer.digest()
    array += .03
    assert w.trainer.digest() == before
    w.rewind(there).rewind(end)
    return before == w.trainer.digest()


@pytest.mark.parametrize("what", ["place", "edit", "change", "act", "by the trainer"])
def test_what_was_done_is_done_again_with_what_was_given_then(what):
    w = Workbench("Pendulum-v1", "sac", driver="sync", views=[], seed=0, learning_starts=100)
    w.step("event", 8)
    obs = w.trainer.obs["agent"][0].copy()
    act = np.array([.5], np.float32)
    settings = {"gamma": .5}
    if what == "place":
        assert given_later_changed(w, obs[2:], lambda: w.place(obs=obs))
    if what == "edit":
        assert given_later_changed(w, obs, lambda: w.edit(0, obs=obs))
    if what == "act":
        assert given_later_changed(w, act, lambda: w.act(act))
    if what == "by the trainer":
        w.trainer.place(obs)
        before = w.trainer.digest()
        obs += .1
        assert w.trainer.digest() == before
        w.trainer.choose(act)
        before = w.trainer.digest()
        act += .1
        assert w.trainer.digest() == before
    if what == "change":
        w.player.change(settings)
        w.step("event", 3)
        settings["gamma"] = .9
        w.rewind(8).rewind(11)
        assert w.trainer.learner.settings.gamma == .5
    w.close()


WRITES = dict(
    set=lambda trainer: trainer.set(lr=.01),
    choose=lambda trainer: trainer.choose(0),
    place=lambda trainer: trainer.place(np.zeros(4, np.float32)),
    set_env=lambda trainer: trainer.set_env(gravity=5.),
    collecting=lambda trainer: setattr(trainer, "collecting", False),
    learning=lambda trainer: setattr(trainer, "learning", False),
    exploring=lambda trainer: setattr(trainer, "exploring", False),
    restore=lambda trainer: trainer.restore({}))


def test_nobody_writes_while_a_thread_plays():
    w = Workbench("CartPole-v1", "dqn", views=[], seed=0, learning_starts=10)
    w.play()
    for name, write in WRITES.items():
        with pytest.raises(ValueError, match=f"{name}.*the run is on its way; pause it, or ask whoever plays it"):
            write(w.trainer)
    w.set(lr=.01).switch(learning=False)
    w.pause()
    for name, write in list(WRITES.items())[:-1]:
        write(w.trainer)
    assert not w.trainer.collecting and w.trainer.touches
    w.close()
