"""Agents that play for the data sets: a small policy of PPO or TD3 at three stages of its training.

    python benchmarks/dataset_agents.py

trains them and keeps the weights of the policies in results/dataset_agents.json, by three decimals. The data sets are
made of the weights that are kept: a run that is made anew on another processor may end elsewhere.
"""
import functools
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.learning import put
from rlbench import Trainer

KEPT = Path(__file__).resolve().parent / "results" / "dataset_agents.json"
DECIMALS = 3


@dataclass(frozen=True)
class School:
    "Who learns, and how many steps it has made at each stage"
    algo: str
    settings: dict
    stages: dict        # {name: steps}

    def pupil(self, env):
        "A trainer that has not begun"
        return Trainer(env, self.algo, seed=0, **self.settings)


SMALL = dict(hidden=[16, 16])
TWICE_DELAYED = dict(hidden=[32, 32], policy_delay=2)
SCHOOLS = {
    "CartPole-v1": School("ppo", SMALL, dict(first=0, early=6000, expert=60_000)),
    "Acrobot-v1": School("ppo", SMALL, dict(first=0, early=10_000, expert=100_000)),
    "Pendulum-v1": School("td3", TWICE_DELAYED, dict(first=0, early=4500, expert=12_000)),
}


def policy_net(trainer):
    "The network that acts"
    return trainer.learners["agent"].nets["policy"]


def weights_of(trainer):
    "{name: numbers} of the network that acts, rounded"
    return {name: weights.double().numpy().round(DECIMALS).tolist()
            for name, weights in policy_net(trainer).state_dict().items()}


def trained(env):
    "{stage: weights} of a run of its own"
    trainer = SCHOOLS[env].pupil(env)
    found = {}
    for stage, steps in SCHOOLS[env].stages.items():
        if steps: trainer.run(steps=steps - trainer.steps)
        found[stage] = weights_of(trainer)
    return found


@functools.cache
def policy(env, stage):
    "The policy of a stage, by the weights that are kept"
    weights = json.loads(KEPT.read_text())[env][stage]
    trainer = SCHOOLS[env].pupil(env)
    policy_net(trainer).load_state_dict({name: torch.tensor(numbers) for name, numbers in weights.items()})
    return trainer.policy


def agent(env, stage):
    "A rule that plays like a stage: observations (N, ...) -> actions (N, ...)"
    return lambda obs: policy(env, stage).act(obs)


def main():
    torch.set_num_threads(1)
    lines = [f'"{env}": {json.dumps(trained(env))}' for env in SCHOOLS]
    put({KEPT: "{" + ",\n".join(lines) + "}\n"})


if __name__ == "__main__":
    main()
