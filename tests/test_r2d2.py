"R2D2: targets against a slow loop, what is learned from, priorities of stretches, masks, and exact resume."
import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlbench.algos.r2d2 import R2D2, sequence_priority
from rlbench.buffers.off_policy import rescale, unscale
from rlbench.core.batch import Batch
from rlbench.core.spaces import Spec
from rlbench.core.state import same
from rlbench.envs.grids import GridWorld
from rlbench.training.trainer import Trainer, load

SMALL = dict(learning_starts=60, buffer_size=400, train_freq=8, batch_size=4, hidden=(8,), memory_size=8,
             sequence_length=6, burn_in=3, target_update_interval=7, num_envs=2, log_every=50)


def slow_target(batch, next_q, next_target, gamma, n, b, t):
    "Up to n rewards, then the value of the best action, as one would add it up"
    total = 0.
    for k in range(n):
        row = t + k
        total += gamma**k * float(batch.rew[row, b])
        if batch.term[row, b]: break
        goes_on = row + 1 < len(batch.rew) and bool(batch.valid[row + 1, b]) and not batch.trunc[row, b]
        if not goes_on or k == n - 1:
            best = int(next_q[row, b].argmax())
            total += gamma**(k + 1) * float(unscale(next_target[row, b, best]))
            break
    return float(rescale(torch.tensor(total)))


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("n", [1, 3])
def test_targets_are_the_sums_of_a_slow_loop(n, double):
    rng = np.random.default_rng(n)
    length = 8
    valid = torch.ones(length, 3, dtype=torch.bool)
    valid[5:, 1] = False                                  # ended by the task
    valid[6:, 2] = False                                  # cut
    term = torch.zeros_like(valid)
    term[4, 1] = True
    trunc = torch.zeros_like(valid)
    trunc[5, 2] = True
    rew = torch.from_numpy(rng.normal(size=(length, 3)))
    next_q, next_target = torch.from_numpy(rng.normal(size=(2, length, 3, 2)))
    batch = Batch(rew=rew, term=term, trunc=trunc, valid=valid)
    got = R2D2(gamma=.9, n_step=n, double=double).target(batch, next_q, next_target)
    chooser = next_q if double else next_target
    for t, b in valid.nonzero().tolist():
        want = slow_target(batch, chooser, next_target, .9, n, b, t)
        np.testing.assert_allclose(float(got[t, b]), want, rtol=1e-4, atol=1e-4)


def test_what_is_burnt_or_padding_changes_no_loss():
    trainer = Trainer("rlbench/StatelessCartPole-v0", "r2d2", **SMALL, prioritized_replay_alpha=0.)
    trainer.until(lambda event: event.kind == "process")
    learner = trainer.learner
    batch = learner.data[learner.todo[0]]
    unused = ~batch.valid | batch.burn
    assert unused.any() and not unused.all()
    [(_, loss, parts)] = learner.algo.losses(learner.nets, batch)
    assert len(parts["delta"]) == int((~unused).sum())
    other = Batch(batch, rew=batch.rew.where(~unused, 99.), act=batch.act.where(~unused, 0))
    [(_, again, _)] = learner.algo.losses(learner.nets, other)
    assert torch.equal(loss, again)


def test_rows_take_the_priority_of_their_stretch():
    trainer = Trainer("rlbench/StatelessCartPole-v0", "r2d2", **SMALL, prioritized_replay_alpha=1., eta=.5)
    trainer.until("update")
    learner = trainer.learner
    batch = learner.last.batch
    learned = batch.valid & ~batch.burn
    error = torch.zeros_like(batch.rew).masked_scatter(learned, learner.last.parts.delta.abs())
    want = sequence_priority(error, learned, .5).expand_as(error)[learned].numpy()
    index = batch.index[learned].numpy()
    got = learner.own["priorities"].tree[index]
    last = {row: at for at, row in enumerate(index)}      # a row in two stretches has the priority of the later one
    for row, at in last.items():
        assert any(np.isclose(got[at], want[same_row], rtol=1e-3, atol=1e-5)
                   for same_row in np.flatnonzero(index == row)), row


@pytest.mark.parametrize("how", [
    dict(),
    dict(cell="lstm", burn_in=0, prioritized_replay_alpha=0., dueling=False),
], ids=str)
def test_saved_and_loaded_it_goes_on_to_the_bit(how, tmp_path):
    trainer = Trainer("rlbench/StatelessCartPole-v0", "r2d2", **SMALL | how).run(steps=150)
    trainer.until(lambda event: event.kind == "process")                    # a minibatch is owed
    trainer.save(tmp_path / "a.rlb")
    twin = load(tmp_path / "a.rlb")
    for one in (trainer, twin): one.run(steps=60)
    assert same(trainer.state(), twin.state())


def test_forbidden_actions_are_never_taken():
    trainer = Trainer("rlbench/Forbidden-v0", "r2d2", **SMALL)
    for _ in range(150):
        row = trainer.until("step").data
        assert row.obs.action_mask[np.arange(2), row.act].all()
    assert trainer.updates > 10


def test_a_memory_as_short_as_a_stretch_goes_round():
    trainer = Trainer("CartPole-v1", "r2d2", **SMALL | dict(buffer_size=30)).run(steps=200)
    assert trainer.updates > 10
    assert all(weight.isfinite().all() for weight in trainer.learner.nets.parameters())


def test_a_minibatch_that_nothing_can_be_learned_from_has_a_loss_of_0():
    "The start of a stretch may be overwritten while its last rows are still held, and drawn"
    short = dict(learning_starts=30, buffer_size=80, batch_size=1, burn_in=8, sequence_length=8, train_freq=2)
    trainer = Trainer(lambda: GridWorld("S" + 60 * "." + "G"), "r2d2", **SMALL | short)
    nothing = 0
    while nothing < 3:
        event = trainer.advance()
        if event.kind != "learn" or len(trainer.learner.last.parts.delta):
            continue
        nothing += 1
        assert trainer.learner.last.groups["all"][0] == 0


def test_stretches_may_become_longer_in_mid_run():
    trainer = Trainer("rlbench/StatelessCartPole-v0", "r2d2", **SMALL).run(steps=120)
    trainer.set(sequence_length=9, burn_in=2)
    trainer.until("update", 2)
    assert len(trainer.learner.last.batch.rew) == 11


def test_a_temperature_is_in_units_of_values():
    "Values of 30 and 31 are 4.5 and 4.6 on the scale that is learned: the temperature is not of these"
    algo = R2D2(exploration="boltzmann", temperature=1., hidden=(4,), memory_size=4)
    spec = Spec(gym.spaces.Box(-1, 1, (1,)), gym.spaces.Discrete(2), 1)
    nets = algo.nets(spec, torch.Generator().manual_seed(0))
    n = 20_000
    q = rescale(torch.tensor([[30., 31.]])).expand(n, 2)
    nets.q.step = lambda obs, carry: (q, carry)
    noise = torch.empty(n, 2).exponential_(generator=torch.Generator().manual_seed(1))
    act, _, _ = algo.act(nets, torch.zeros(n, 1), noise, nets.q.net.initial(n))
    assert act.float().mean().item() == pytest.approx(1 / (1 + math.exp(-1)), abs=.015)
