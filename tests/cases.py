"Every registered algorithm on the environments that it can take, found by asking it"
from dataclasses import dataclass
from functools import cache

import gymnasium as gym
import numpy as np

from rlbench.algos.algorithm import algorithms
from rlbench.buffers.ring import Ring
from rlbench.core.batch import Batch
from rlbench.core.spaces import AGENT, SpaceProblem
from rlbench.core.state import same
from rlbench.envs.find import make
from rlbench.training.trainer import Trainer
from tests.conftest import small

EPISODE = dict(max_episode_steps=25)        # some methods learn where episodes end, and only there
HOMES = (
    "rlbench/CliffWalk-v0",                 # counted states, counted actions, a model
    "CartPole-v1",                          # numbers, counted actions
    "Pendulum-v1",                          # numbers, actions in a Box
)
TRIALS = (                                  # where none of these will do
    "rlbench/Bandit-v0",
    "rlbench/RepeatAfterMe-v0",
    "rlbench/BairdStar-v0",
)
VARIANTS = dict(                            # settings that lead other ways through an algorithm
    dqn=[
        dict(n_step=3, prioritized_replay_alpha=.6, gradient_steps=2, normalize_obs=True),
        dict(exploration="weights", double=False, tau=.5),
        dict(dueling=True, noisy=True, body="simba"),
    ],
    ppo=[
        dict(normalize_obs=True, normalize_reward=True, target_kl=.01, ent_coef=.01, clip_range_vf=.2,
             normalize_over="rollout",
             distribution="state_gaussian"),
        dict(distribution="gsde", sde_sample_freq=3),
    ],
    r2d2=[dict(prioritized_replay_alpha=0., cell="lstm", burn_in=0, normalize_obs=True)],
    sac=[
        dict(ent_coef=.2, gradient_steps=2, policy_delay=2, normalize_obs=True),
        dict(n_critics=4, critics_in_target=2, dropout=.1, critic_norm="layer"),
    ],
    tqc=[dict(ent_coef=.2, quantiles=5, body="simba", normalize_obs=True)],
    crossq=[dict(renorm_limit=3., policy_delay=2, normalize_obs=True)],
    ddpg=[dict(exploration="ou", gradient_steps=2)],
    td3=[dict(policy_delay=3, train_freq=2, body="simba", normalize_obs=True)],
    stream_q=[dict(step_rule="intentional", epsilon=.3)],
    stream_ac=[dict(step_rule="intentional", normalize_obs=False)],
    recurrent_ppo=[dict(target_kl=.01, ent_coef=.01, normalize_reward=True)],
    a2c=[dict(normalize_obs=True, normalize_reward=True, distribution="beta", ent_coef=.01)],
    impala=[dict(staleness=2, normalize_obs=True, normalize_reward=True)],
    gail=[dict(normalize_obs=True, normalize_reward=True)],
    trpo=[dict(normalize_obs=True, normalize_reward=True, distribution="squashed")],
    awr=[dict(gae_lambda=1., max_weight=None, normalize_obs=True)],
    iql=[dict(normalize_obs=True)],
    td3_bc=[dict(normalize_obs=True)],
    discrete_cql=[dict(n_step=3, double=False)],
)


@dataclass(frozen=True)
class Case:
    "An algorithm, an environment it can take, and what is set besides the small settings"
    algo: str
    env: str
    extra: tuple = ()

    @property
    def cls(self):
        return algorithms()[self.algo]

    def trainer(self, **settings):
        "A trainer at its start"
        chosen = small(self.cls, log_every=50) | dict(self.extra) | settings
        given = self.cls.offline or self.cls.imitates
        shown = demonstrations(self.env, chosen.get("num_envs") or self.cls.num_envs) if given else None
        return Trainer(self.env, self.algo, env_settings=EPISODE, memory=shown, **chosen)

    def begun(self, **settings):
        "A trainer that has just taken its first step on a minibatch"
        trainer = self.trainer(**settings)
        trainer.until("update")
        return trainer

    def __str__(self):
        more = "".join(f"-{name}" for name, _ in self.extra)
        return f"{self.algo}-{self.env.split('/')[-1]}{more}"


@cache
def demonstrations(id, num_envs, steps=60):
    "A memory of random play, for algorithms that learn from what is given"
    env = make(id, num_envs, **EPISODE)
    space = env.behaviours[AGENT].action_space
    space.seed(0)
    memory = Ring(steps, num_envs)
    obs = env.reset(0)[AGENT]
    for _ in range(steps):
        act = np.stack([space.sample() for _ in range(num_envs)])
        step = env.step({AGENT: act})[AGENT]
        row = Batch(obs=obs, act=act, rew=step.rew, term=step.term, trunc=step.trunc, next_obs=step.next_obs)
        memory.add(row, step.valid)
        obs = step.obs
    return memory


def takes(case):
    "Can the algorithm do anything there?"
    try:
        case.trainer()
    except SpaceProblem:
        return False
    return True


def variants_of(algo):
    "((setting, value), …) of each variant, without settings that the algorithm lacks"
    known = algorithms()[algo].__dataclass_fields__
    for extra in VARIANTS.get(algo, []):
        chosen = tuple((name, value) for name, value in extra.items() if name in known)
        if chosen: yield chosen


def homes_of(algo):
    "The homes that an algorithm takes, else the first trial"
    found = [case for case in (Case(algo, env) for env in HOMES) if takes(case)]
    if len(found) > 1 and "hidden" in algorithms()[algo].__dataclass_fields__:
        return found[1:]                    # networks are for what tables cannot hold
    return found or [case for case in (Case(algo, env) for env in TRIALS) if takes(case)][:1]


def cases_of(algo):
    "Where an algorithm is tried: its homes, and its variants in the last of them"
    homes = homes_of(algo)
    return homes + [Case(algo, homes[-1].env, extra) for extra in variants_of(algo)] if homes else []


CASES = [case for algo in algorithms() for case in cases_of(algo)]
ONE_EACH = list({case.algo: case for case in reversed(CASES) if not case.extra}.values())     # at its first home


def trail(trainer, events):
    "Snapshots of the next so many events: one before each, and one after the last"
    there = [trainer.snapshot()]
    for _ in range(events):
        trainer.advance()
        there.append(trainer.snapshot())
    return there


def check_there_and_back(trainer, events, starts, farthest):
    "Back to the first `starts` of the next events in any order, and on to one of the `farthest` after it: as it was"
    there = trail(trainer, events)
    rng = np.random.default_rng(0)
    for start in rng.permutation(starts):
        trainer.restore(there[start])
        assert differs(trainer.state(), there[start]) == ""
        goal = int(rng.integers(start + 1, min(start + 1 + farthest, len(there))))
        for _ in range(start, goal):
            trainer.advance()
        assert differs(trainer.state(), there[goal]) == "", f"from event {start} to {goal}"


def differs(one, other, at=""):
    "Where two state trees differ, in words; nothing where they are the same to the bit"
    if same(one, other): return ""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return "; ".join(filter(None, (differs(one[name], other[name], f"{at}.{name}") for name in one)))
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and len(one) == len(other):
        return "; ".join(filter(None, (differs(a, b, f"{at}[{i}]") for i, (a, b) in enumerate(zip(one, other)))))
    return f"{at or 'all'}: {str(one)[:200]} and {str(other)[:200]}"


def is_box(case):
    "Are its actions numbers?"
    return isinstance(gym.make(case.env).action_space, gym.spaces.Box)
