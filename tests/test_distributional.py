"C51, Rainbow, QR-DQN, IQN, dueling and noisy layers: against rlax and slow loops, with masks, in mid-run, and exact."
import copy

import numpy as np
import pytest
import torch

from rlbench.algos import c51, quantiles
from rlbench.algos.algorithm import get
from rlbench.algos.dqn import DQN
from rlbench.algos.questions import return_distribution
from rlbench.buffers.off_policy import quantile_huber
from rlbench.core.batch import Batch
from rlbench.core.spaces import AGENT
from rlbench.core.state import same
from rlbench.core.words import ConfigError
from rlbench.envs.probes import PROBES
from rlbench.training.trainer import Trainer, load

WITH_RETURNS = ["c51", "rainbow", "qr_dqn", "iqn"]
SMALL = dict(learning_starts=40, buffer_size=300, train_freq=1, gradient_steps=1, batch_size=16, hidden=(16,),
             target_update_interval=7, log_every=50)
ALL = dict(dueling=True, noisy=True, prioritized_replay_alpha=.6, n_step=3)
HOW = [("dqn", ALL), ("iqn", ALL), ("qr_dqn", ALL | dict(double=False)), ("c51", dict(double=False, n_step=1))]


def columns(seed, rows=6, actions=3, parts=7):
    "Random numbers of two networks, and rows to compare them on"
    rng = np.random.default_rng(seed)
    one, two, three = rng.normal(size=(3, rows, actions, parts)).astype(np.float32)
    act = rng.integers(actions, size=rows)
    rew = rng.normal(size=rows).astype(np.float32)
    disc = (.9 * (rng.random(rows) < .7)).astype(np.float32)
    return one, two, three, act, rew, disc


class Said(torch.nn.Module):
    "A network that says what it is told to, once for each observation"

    def __init__(self, here, after, atoms):
        super().__init__()
        self.here = torch.as_tensor(here)
        self.after = torch.as_tensor(after)
        self.atoms = atoms

    def parts(self, obs, noise=None, tau=None):
        return self.after if obs.max() > 0 else self.here

    logits = quantiles = parts

    def forward(self, obs, noise=None):
        parts = self.parts(obs)
        return parts.mean(-1) if self.atoms is None else parts.softmax(-1) @ self.atoms


def compared(algo, here, after, target, act, rew, disc, atoms=None):
    "Loss of every row"
    zeros = torch.zeros(len(act), 1)
    batch = Batch(obs=zeros, act=torch.from_numpy(act), ret=torch.from_numpy(rew), disc=torch.from_numpy(disc),
                  next_obs=zeros + 1)
    nets = Batch(q=Said(here, after, atoms), target=Said(target, target, atoms))
    return algo.compare(nets, batch)[0].numpy()


@pytest.mark.parametrize("double", [True, False])
def test_rlax_agrees_about_atoms(rlax, double):
    here, after, target, act, rew, disc = columns(0)
    atoms = torch.linspace(-2, 2, 7)
    got = compared(c51.C51(double=double), here, after, target, act, rew, disc, atoms)
    chooser = after if double else target
    for i in range(len(act)):
        q = torch.from_numpy(chooser[i]).softmax(-1) @ atoms
        want = rlax.categorical_double_q_learning(
            atoms.numpy(), here[i], act[i], rew[i], disc[i], atoms.numpy(), target[i], q.numpy())
        best = target[i, int(q.argmax())]
        prob = torch.from_numpy(best).softmax(-1)[None]
        place = torch.from_numpy(rew[i] + disc[i] * atoms.numpy())[None]
        wanted = c51.project(prob, place, atoms)
        least = -torch.xlogy(wanted, wanted).sum()           # rlax has the cross entropy, without what no guess changes
        np.testing.assert_allclose(got[i], float(want) - float(least), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("double", [True, False])
def test_rlax_agrees_about_quantiles(rlax, double):
    here, after, target, act, rew, disc = columns(1)
    got = compared(quantiles.QRDQN(double=double, quantiles=7), here, after, target, act, rew, disc)
    tau = quantiles.midpoints(7).numpy()
    chooser = after if double else target
    for i in range(len(act)):
        want = rlax.quantile_q_learning(here[i].T, tau, act[i], rew[i], disc[i], chooser[i].T, target[i].T, 1.)
        np.testing.assert_allclose(got[i], float(want), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_the_quantile_loss_is_the_sum_as_it_is_written(seed):
    rng = np.random.default_rng(seed)
    guess = 2 * rng.normal(size=(4, 5))
    target = 2 * rng.normal(size=(4, 3))
    tau = rng.random((4, 5))
    want = np.zeros(4)
    for b, i, j in np.ndindex(4, 5, 3):
        delta = target[b, j] - guess[b, i]
        huber = delta**2 / 2 if abs(delta) <= 1 else abs(delta) - .5
        want[b] += abs(tau[b, i] - (delta < 0)) * huber / 3
    got = quantile_huber(*map(torch.from_numpy, (guess, target, tau)))
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("algo, how", HOW, ids=str)
def test_saved_and_loaded_it_goes_on_to_the_bit(algo, how, tmp_path):
    trainer = Trainer("CartPole-v1", algo, num_envs=2, **SMALL, **how).run(steps=90)
    trainer.until(lambda event: event.kind == "process")                    # a minibatch is owed
    trainer.save(tmp_path / "a.rlb")
    twin = load(tmp_path / "a.rlb")
    for one in (trainer, twin): one.run(steps=40)
    assert same(trainer.state(), twin.state())

    batch = trainer.learner.last.batch
    assert ("weight" in batch, "noise" in batch) == ("prioritized_replay_alpha" in how, "noisy" in how)
    if "noise" in batch:
        assert not torch.equal(batch.noise, batch.next_noise)
    assert ("val" in trainer.learner.nets.q.streams) == ("dueling" in how)


@pytest.mark.parametrize("algo", WITH_RETURNS)
def test_forbidden_actions_are_never_taken(algo):
    trainer = Trainer("rlbench/Forbidden-v0", algo, **SMALL)
    for _ in range(150):
        row = trainer.until("step").data
        assert row.obs.action_mask[0, row.act[0]] == 1
    assert trainer.updates > 20


def test_noise_explores_alone_and_is_left_out_in_play():
    trainer = Trainer("CartPole-v1", "dqn", **SMALL, noisy=True, sigma0=3., epsilon=0.).run(steps=40)
    actor = trainer.actors[AGENT]
    obs = np.repeat(trainer.obs[AGENT], 64, 0)
    assert len(set(actor.act(obs)[0])) == 2
    assert len(set(actor.act(obs, greedy=True)[0])) == 1


def test_nothing_set_is_the_plain_perceptron():
    assert type(Trainer("CartPole-v1", "dqn").learner.nets.q).__name__ == "MLP"
    settings = DQN()
    assert not settings.noisy and not settings.dueling


@pytest.mark.parametrize("setting", [dict(noisy=True), dict(dueling=True)], ids=str)
def test_layers_are_chosen_at_the_start(setting):
    trainer = Trainer("CartPole-v1", "dqn", **SMALL).run(steps=50)
    before = copy.deepcopy(trainer.learner.settings)
    with pytest.raises(ConfigError, match="shapes the run from its start"):
        trainer.set(**setting)
    assert trainer.learner.settings == before
    trainer.run(steps=10)


def test_a_range_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="the smallest first"):
        Trainer("CartPole-v1", "c51", v_min=5., v_max=5.)


@pytest.mark.parametrize("algo", WITH_RETURNS)
def test_the_distribution_has_the_values_as_its_means(algo):
    learner = Trainer("CartPole-v1", algo, **SMALL).run(steps=60).learner
    obs = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        prob, place = return_distribution(learner.algo, learner.nets, obs)
        values = learner.algo.values(learner.nets, obs)
    np.testing.assert_allclose((prob * place).sum(-1), values, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(prob.sum(-1), 1, rtol=1e-5)
    assert return_distribution(get("dqn")(), None, obs) is None


def test_dueling_and_noisy_layers_learn():
    fast = dict(gamma=.9, lr=.01, hidden=(32, 32), learning_starts=64, target_update_interval=20, batch_size=32,
                gradient_steps=1, buffer_size=2000, epsilon=.5)
    trainer = Trainer(PROBES["Delayed"]["id"], "dqn", seed=1, dueling=True, noisy=True, **fast).run(steps=1000)
    raw = trainer.env.single.unwrapped
    with torch.no_grad():
        got = trainer.learner.algo.values(trainer.learner.nets, torch.from_numpy(raw.seen)).numpy()
    np.testing.assert_allclose(got, raw.known_q(.9), atol=.15)
