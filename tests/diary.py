"A world that notes all its steps, and plain steps of torch's optimisers: what whole updates are held against"
import copy

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

from rlbench.training.trainer import Trainer

LOW = torch.tensor([-1., -3.])
HIGH = torch.tensor([2., 1.])
ACTIONS = dict(
    choice=spaces.Discrete(4),
    box=spaces.Box(LOW.numpy(), HIGH.numpy()),
    mixed=spaces.Dict(how=spaces.Discrete(3), far=spaces.Box(LOW.numpy(), HIGH.numpy())),
)
NUMBERS = spaces.Box(-np.inf, np.inf, (3,), np.float32)


class Diary(gym.Env):
    "No observation comes twice; episodes end at random, by the task or by a cut, and sometimes by both"
    def __init__(self, pages, actions="choice", parts=False, ends=(.12, .12)):
        self.pages = pages
        self.ends = ends
        self.parts = parts
        self.action_space = ACTIONS[actions]
        masked = dict(seen=NUMBERS, kind=spaces.Discrete(3), action_mask=spaces.MultiBinary(4))
        self.observation_space = spaces.Dict(masked) if parts else NUMBERS

    def look(self):
        self.numbers = self.np_random.normal(size=3).astype(np.float32)
        if not self.parts: return self.numbers
        mask = (self.np_random.random(4) < .6).astype(np.int8)
        mask[self.np_random.integers(4)] = 1
        return dict(seen=self.numbers, kind=int(self.np_random.integers(3)), action_mask=mask)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.look(), {}

    def step(self, act):
        page = self.pages[self.numbers.tobytes()] = dict(step=self.steps)
        page["term"], page["trunc"] = (self.np_random.random(2) < self.ends).tolist()
        page["rew"] = float(np.float32(self.np_random.normal()))
        obs = self.look()
        page["next"] = self.numbers.tobytes()
        self.steps += 1
        return obs, page["rew"], page["term"], page["trunc"], {}


def keys(obs):
    "By which observations (B, ...) stand in the diary"
    numbers = obs["seen"] if isinstance(obs, dict) else obs
    return [row.tobytes() for row in np.asarray(numbers)]


def pages_from(pages, key, held):
    "[(key, page)] of an episode from a step on, as far as it is held"
    found = []
    while key in held:
        page = pages[key]
        found.append((key, page))
        if page["term"] or page["trunc"]: break
        key = page["next"]
    return found


def lambda_return(steps, after, gamma, lam):
    "As it is defined: the mean of all n-step returns, of which the n-th counts λ^(n - 1)"
    ret = 0.
    disc = 1.
    returns = []
    for key, page in steps:
        ret += disc * page["rew"]
        disc *= gamma
        returns.append(ret + (0. if page["term"] else disc * after[key]))
    last = len(returns) - 1
    return sum((1 - lam) * lam**n * one for n, one in enumerate(returns[:-1])) + lam**last * returns[-1]


def n_step(steps, gamma, n):
    "(rewards of up to n steps, discount of what follows, what follows)"
    steps = steps[:n]
    ret = sum(gamma**k * page["rew"] for k, (_, page) in enumerate(steps))
    _, last = steps[-1]
    return ret, 0. if last["term"] else gamma**len(steps), last["next"]


class Plain:
    "A copy of a learner's networks, stepped by optimisers of its own"
    def __init__(self, learner, make):
        self.nets = copy.deepcopy(learner.nets)
        algo = learner.algo
        self.parameters = {group: list(those) for group, those in algo.groups(self.nets).items()}
        self.clip = {group: algo.pace(group)[1] for group in self.parameters}
        self.optimisers = {group: make(those, algo.pace(group)[0]) for group, those in self.parameters.items()}

    def step(self, group, loss):
        parameters = self.parameters[group]
        for one, slope in zip(parameters, torch.autograd.grad(loss, parameters)):
            one.grad = slope
        if self.clip[group] is not None:
            torch.nn.utils.clip_grad_norm_(parameters, self.clip[group])
        self.optimisers[group].step()

    def same(self, nets, atol=2e-6):
        for (name, mine), theirs in zip(self.nets.named_parameters(), nets.parameters()):
            torch.testing.assert_close(mine, theirs, atol=atol, rtol=1e-4, msg=lambda text: f"{name}: {text}")


def adam(eps=1e-8):
    return lambda parameters, lr: torch.optim.Adam(parameters, lr=lr, eps=eps)


def begun(algo, actions="choice", parts=False, ends=(.12, .12), **settings):
    "(trainer in a diary's world, its pages)"
    pages = {}
    settings = dict(seed=3, hidden=(8, 8)) | settings
    return Trainer(lambda: Diary(pages, actions, parts, ends), algo, **settings), pages


def updates(trainer, n):
    "n times (the learner, the minibatch that it learned from, its algorithm as it was then)"
    learner = trainer.learner
    for _ in range(n):
        trainer.until(lambda event: event.kind == "learn")
        yield learner, learner.last.batch, learner.algo


def best_of(q, obs):
    "Numbers of the best actions that are allowed, one row after another"
    masks = obs["action_mask"] if isinstance(obs, dict) else torch.ones_like(q)
    return torch.stack([row.where(mask > 0, -torch.inf).argmax() for row, mask in zip(q, masks)])


def huber(error):
    return torch.where(error.abs() < 1, .5 * error**2, error.abs() - .5)
