"The number of torch threads is the trainer's own: whatever it was before, the same seed gives the same run"
import pytest
import torch

from rlbench.core.state import same, snapshot
from rlbench.training.trainer import Trainer

LARGE = dict(hidden=(256, 256))     # where several threads would add in another order
RUNS = [
    ("ppo", "CartPole-v1", dict(n_steps=32, num_envs=8, batch_size=128) | LARGE),
    ("recurrent_ppo", "rlbench/StatelessCartPole-v0", dict(n_steps=16, num_envs=4, memory_size=128) | LARGE),
    ("dqn", "CartPole-v1", dict(learning_starts=40, batch_size=256) | LARGE),
    ("qlearning", "rlbench/CliffWalk-v0", {}),
]


def begun_under(threads, algo, env, settings):
    "(initial weights, state after a run and a few single events) of a trainer that is made under so many threads"
    torch.set_num_threads(threads)
    trainer = Trainer(env, algo, seed=3, **settings)
    weights = snapshot(trainer.learner.nets.state_dict())
    trainer.run(steps=150)
    for _ in range(5): trainer.advance()
    return weights, trainer.state()


@pytest.mark.parametrize("algo, env, settings", RUNS, ids=[algo for algo, *_ in RUNS])
def test_the_number_of_threads_before_changes_nothing(algo, env, settings):
    before = torch.get_num_threads()
    try:
        one, two = (begun_under(threads, algo, env, settings) for threads in (1, 2))
    finally:
        torch.set_num_threads(before)
    assert same(one[0], two[0])
    assert same(one[1], two[1])
