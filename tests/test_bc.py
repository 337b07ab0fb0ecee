"Behavioural cloning: from given rows alone, and as good as whoever was watched"
import numpy as np
import pytest
import torch

from benchmarks.datasets import RECIPES, played
from rlbench import Trainer, evaluate, load
from rlbench.buffers.ring import ClosedRing, Ring
from rlbench.core.batch import Batch
from rlbench.core.state import same
from rlbench.core.words import ConfigError


@pytest.fixture(scope="module")
def episodes():
    return played(RECIPES["cartpole-expert"])


def clone_of(memory, **settings):
    return Trainer("CartPole-v1", "bc", memory=memory, **settings)


@pytest.mark.parametrize("seed", [1, 2])
def test_an_experts_episodes_are_enough_and_no_step_is_taken(episodes, seed):
    clone = clone_of(episodes, seed=seed)
    clone.until("iteration", 20)
    assert (clone.steps, clone.settled) == (0, True)
    assert evaluate(clone, episodes=50).mean >= 475


def test_done_is_done(episodes):
    clone = clone_of(episodes, n_epochs=1, batch_size=1000)
    clone.run(updates=5)
    weights = [weight.clone() for weight in clone.learner.nets.parameters()]
    clone.run(steps=300)                                      # it may act as long as it likes
    assert (clone.updates, clone.steps) == (5, 300)
    assert all(map(torch.equal, weights, clone.learner.nets.parameters()))
    with pytest.raises(ValueError, match="settled"):
        clone.until("update")


def test_what_is_given_stays_as_it_was(episodes):
    before = episodes.state()["rows"].copy()
    clone = clone_of(episodes, n_epochs=1)
    clone.run(steps=100)
    assert isinstance(clone.learner.memory, ClosedRing)
    assert same(episodes.state()["rows"], before)
    assert same(clone.learner.memory.rows, episodes.rows)


def test_every_row_is_learned_from_once_in_a_pass(episodes):
    clone = clone_of(episodes, batch_size=64)
    clone.learner.process()
    drawn = torch.cat(list(clone.learner.todo))
    assert sorted(drawn.tolist()) == list(range(len(episodes)))
    first = clone.learner.data.index[drawn]
    clone.learner.todo.clear()
    clone.learner.process()
    again = clone.learner.data.index[torch.cat(list(clone.learner.todo))]
    assert not torch.equal(first, again)


def test_resumes_exactly_in_the_middle_of_a_pass(episodes, tmp_path):
    one = clone_of(episodes)
    one.until("update", 100)
    one.save(tmp_path / "clone.rlb")
    two = load(tmp_path / "clone.rlb")
    for trainer in (one, two):
        trainer.until("update", 150)
    assert same(one.state(), two.state())


def test_actions_that_are_numbers():
    "A linear expert is learned, and a policy that is sure of it does not run away"
    rng = np.random.default_rng(0)
    obs = rng.uniform(-1, 1, (1000, 1, 3)).astype(np.float32)
    never = np.zeros((1000, 1), bool)
    ring = Ring(1000, 1)
    rows = Batch(obs=obs, act=obs[..., :1] - .5 * obs[..., 2:], rew=never * 0., term=never, trunc=never, next_obs=obs)
    ring.extend(rows)
    clone = Trainer("Pendulum-v1", "bc", memory=ring, n_epochs=60)
    clone.until("iteration", 60)
    new = rng.uniform(-.9, .9, (200, 3)).astype(np.float32)
    act = clone.policy.act(new)
    assert np.abs(act[:, 0] - (new[:, 0] - .5 * new[:, 2])).mean() < .05
    assert all(weight.isfinite().all() for weight in clone.learner.nets.parameters())


def test_it_learns_no_more_after_more_passes_than_it_was_told(episodes):
    clone = clone_of(episodes, n_epochs=1, batch_size=5000)
    clone.until("iteration")
    clone.set(n_epochs=3)                                     # unless it is told of more
    clone.until("iteration", 2)
    assert (clone.updates, clone.settled) == (3, True)


def test_needs_a_memory_that_fits(episodes):
    with pytest.raises(ConfigError, match="memory that is given"):
        Trainer("CartPole-v1", "bc")
    with pytest.raises(ConfigError, match="does not fit the environment"):
        Trainer("Pendulum-v1", "bc", memory=episodes)
