"The family of benchmarks/faults.py about environments that cannot be put back, and may not know it"
import itertools
import random
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch

from benchmarks.fault_cases import ours

COUNTED = itertools.count()
SOURCES = {         # name -> a number from 0 to 1 that an environment takes from somewhere
    "nothing": lambda env: .5,
    "its seed": lambda env: env.np_random.random(),
    "its episode": lambda env: env.time % 5 / 5,
    "its life": lambda env: env.lived % 101 / 101,
    "its episodes": lambda env: env.episodes % 11 / 11,
    "all of its kind": lambda env: next(COUNTED) % 101 / 101,
    "np.random": lambda env: np.random.random(),
    "random": lambda env: random.random(),
    "torch": lambda env: torch.rand(()).item(),
    "the clock": lambda env: time.perf_counter() * 1e5 % 1,
}
HONEST = ("nothing", "its seed", "its episode")
SHOWN = ("observation", "reward", "end", "cut", "beginning")


class Liar(gym.Env):
    "A walk of at most 30 steps, in which one thing depends on what is no business of its episode"
    observation_space = gym.spaces.Box(-99, 99, (2,))
    action_space = gym.spaces.Discrete(2)
    lived = episodes = 0

    def __init__(self, source, shown, often):
        self.source = source
        self.shown = shown
        self.often = often              # one step in so many

    def number(self, what):
        "What is taken from somewhere, if it is shown in this"
        if what != self.shown or self.time % self.often: return .5
        return SOURCES[self.source](self)

    def seen(self, what):
        return np.array([self.at, self.number(what)], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        self.episodes += 1
        self.at = float(self.np_random.normal())
        return self.seen("beginning"), {}

    def step(self, act):
        self.time += 1
        self.lived += 1
        self.at += act - .5
        ends = self.time >= 30 or self.number("end") > .8
        return self.seen("observation"), self.number("reward"), ends, self.number("cut") > .8, {}


def one_by_one(make):
    return make


def listed(make):
    from rlbench.envs.env import EnvList
    return lambda: EnvList("liar", make, 2)


def as_vector(make):
    from rlbench.envs.native import NativeVec
    mode = gym.vector.AutoresetMode.SAME_STEP
    return lambda: NativeVec("liar", make(), gym.vector.SyncVectorEnv([make] * 2, autoreset_mode=mode))


def told_after(trainer, events=50):
    "What happens to a run next"
    return [trainer.advance().text for _ in range(events)], trainer.state()["learners"]


def ways_back(trainer, path, source):
    "Functions that give the run as it was: by a snapshot, and by a file"
    import rlbench
    there = trainer.snapshot()
    trainer.save(path)

    def restored():
        trainer.restore(there)
        return trainer

    return restored, partial(rlbench.load, path, env=source)


def went_back(trainer, path, source, honest):
    "Go back in two ways: exactly, or not at all; and with new episodes in any case"
    import rlbench
    from rlbench.core.state import same, snapshot
    ways = ways_back(trainer, path, source)
    after = snapshot(told_after(trainer))
    refused = ""
    for way in ways:
        try: again = way()
        except ours() as problem:
            refused = str(problem)
            continue
        if not same(told_after(again), after):
            return "WRONG", "it went another way"
    told_after(rlbench.load(path, env=source, fresh_episodes=True))
    if refused and honest:
        return "WRONG", f"refused, and nothing is wrong with it: {refused}"
    return ("refused", refused) if refused else ("went on", "")


def tried(kind, form, algo, steps):
    "A run in an environment of a kind, in one of the forms that it can be given in"
    import rlbench
    source = form(partial(Liar, *kind))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = dict(n_steps=8, batch_size=8) if algo == "ppo" else dict(learning_starts=8, batch_size=4)
        try:
            trainer = rlbench.Trainer(source, algo, num_envs=2, hidden=(4,), **settings).run(steps)
            honest = kind[0] in HONEST and form is not as_vector
            return went_back(trainer, Path(folder) / "run.rlb", source, honest)
        except ours() as problem:
            return "WRONG", f"lost: {problem}"
        except Exception as problem:
            return "FOREIGN", f"{type(problem).__name__}: {problem}"


def liars(rng, folder):
    "(name, outcome) of runs in environments that take what they should not from somewhere"
    while True:
        kind = rng.choice(list(SOURCES)), rng.choice(SHOWN), rng.choice((1, 1, 3, 10))
        form = rng.choice((one_by_one, listed, as_vector))
        algo = rng.choice(("ppo", "dqn"))
        steps = rng.randrange(4, 90)
        source, shown, often = kind
        name = f"{algo}: {shown} from {source}, in one of {often} steps, {form.__name__}, after {steps} steps"
        yield name, partial(tried, kind, form, algo, steps)
