"""DQN's ways to explore and to draw: they change in mid-run, obey masks, restore exactly, and learn."""
import gymnasium as gym
import numpy as np
import pytest

from rlbench.algos.algorithm import get
from rlbench.core.state import same
from rlbench.envs.env import EnvProblem
from rlbench.envs.probes import PROBES
from rlbench.training.trainer import Trainer, load
from tests.conftest import small
from tests.test_probes import run_until_right

GAMMA = .9
SMALL = dict(learning_starts=40, buffer_size=300, train_freq=1, gradient_steps=1, batch_size=16, hidden=(16,),
             target_update_interval=7, log_every=50)
SHAKEN = dict(exploration="weights", shake_interval=20)
WAYS = [
    dict(exploration="boltzmann", temperature=.5),
    SHAKEN,
    dict(epsilon_spread=3.),
    dict(prioritized_replay_alpha=.6),
    dict(prioritized_replay_alpha=1., n_step=3, exploration="weights", shake_interval=10),
]


@pytest.mark.parametrize("how", WAYS, ids=str)
def test_saved_and_loaded_it_goes_on_to_the_bit(how, tmp_path):
    trainer = Trainer("CartPole-v1", "dqn", num_envs=2, **SMALL, **how).run(steps=150)
    trainer.until(lambda event: event.kind == "process")                    # a minibatch is owed
    trainer.save(tmp_path / "a.rlb")
    twin = load(tmp_path / "a.rlb")
    for one in (trainer, twin): one.run(steps=100)
    assert same(trainer.state(), twin.state())


def test_everything_changes_in_mid_run():
    trainer = Trainer("CartPole-v1", "dqn", **SMALL).run(steps=100)
    back = dict(exploration="epsilon", prioritized_replay_alpha=0., epsilon_spread=0., n_step=1)
    for how in [*WAYS, back]:
        trainer.set(**how)
        trainer.run(steps=60)
        weighted = "weight" in trainer.learner.last.batch
        assert weighted == (trainer.learner.algo.prioritized_replay_alpha > 0)
    assert trainer.learner.nets.shaken.shakes > 0


@pytest.mark.parametrize("before, after", [(0., .6), (.6, 0.)])
def test_minibatches_with_and_without_weights_are_not_put_together(before, after):
    trainer = Trainer("CartPole-v1", "dqn", **SMALL, prioritized_replay_alpha=before).run(steps=60)
    trainer.until(lambda event: event.kind == "process")
    waiting = trainer.learner.data
    trainer.set(prioritized_replay_alpha=after)
    with pytest.raises(ValueError, match="settings changed.*learned first"):
        trainer.learner.owe(3)
    assert trainer.learner.data is waiting and len(trainer.learner.todo) == 1
    trainer.until("update")
    trainer.learner.owe(3)
    assert len(trainer.learner.todo) == 3


@pytest.mark.parametrize("how", [*WAYS, {}], ids=str)
def test_forbidden_actions_are_never_taken(how):
    trainer = Trainer("rlbench/Forbidden-v0", "dqn", **SMALL | dict(epsilon=.5), **how)
    for _ in range(300):
        row = trainer.until("step").data
        assert row.obs.action_mask[0, row.act[0]] == 1


class Closing(gym.Env):
    "Three doors that close one after another; the last observation, or a live one, may leave none open"
    observation_space = gym.spaces.Dict(light=gym.spaces.Box(0, 1, (1,)), action_mask=gym.spaces.MultiBinary(3))
    action_space = gym.spaces.Discrete(3)

    def __init__(self, closed_at):
        self.closed_at = closed_at

    def look(self):
        mask = np.array([self.steps < self.closed_at, 0, self.steps < self.closed_at], np.int8)
        return dict(light=np.zeros(1, np.float32), action_mask=mask)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.look(), {}

    def step(self, act):
        self.steps += 1
        return self.look(), 1., self.steps == 3, False, {}


@pytest.mark.parametrize("algo", ["dqn", "ppo"])
def test_after_the_end_every_action_may_be_forbidden(algo):
    trainer = Trainer(lambda: Closing(3), algo, **small(get(algo))).run(steps=300)
    assert trainer.updates > 5
    assert all(weight.isfinite().all() for weight in trainer.learner.nets.parameters())
    assert all(part.isfinite().all() for part in trainer.learner.last.parts.values())


@pytest.mark.parametrize("algo", ["dqn", "ppo"])
@pytest.mark.parametrize("closed_at", [0, 2])
def test_where_no_action_is_allowed_the_environment_is_named(algo, closed_at):
    with pytest.raises(EnvProblem, match="allows no action"):
        Trainer(lambda: Closing(closed_at), algo, **small(get(algo))).run(steps=300)


@pytest.mark.parametrize("algo", ["dqn", "sac"])
def test_a_memory_that_is_full_is_enough_to_learn_from(algo):
    env = dict(dqn="CartPole-v1", sac="Pendulum-v1")[algo]
    trainer = Trainer(env, algo, buffer_size=20, learning_starts=100, batch_size=4, hidden=(8,))
    trainer.until("update")
    assert trainer.steps == 20


FAST = dict(gamma=GAMMA, lr=.01, hidden=(32,), learning_starts=64, target_update_interval=20, batch_size=32,
            train_freq=2, buffer_size=2000, max_grad_norm=10., epsilon=.5)


@pytest.mark.parametrize("how", [
    dict(prioritized_replay_alpha=.6, prioritized_replay_beta=1.),
    dict(exploration="boltzmann", temperature=.5),
    SHAKEN,
], ids=str)
@pytest.mark.parametrize("probe", ["Delayed", "Match"])
def test_probes(probe, how):
    run_until_right(probe, Trainer(PROBES[probe]["id"], "dqn", seed=1, **FAST | how), most=1500)
