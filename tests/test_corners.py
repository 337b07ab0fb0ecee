"Settings and spaces at their edges"
import gymnasium as gym
import numpy as np
import pytest

from rlbench.core.spaces import SpaceProblem
from rlbench.training.trainer import Trainer


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
WITHOUT = [PICTURE, gym.spaces.Discrete(3), gym.spaces.Dict(a=gym.spaces.Discrete(2))]


@pytest.mark.parametrize("space", WITHOUT, ids=lambda space: type(space).__name__)
def test_what_has_no_mean_is_not_normalised_and_says_so(space):
    with pytest.raises(SpaceProblem, match="normalize_obs"):
        Trainer(lambda: Seen(space), "ppo", n_steps=4, normalize_obs=True)


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
