"""DQN's ways to explore and to draw: they change in mid-run, obey masks, restore exactly, and learn."""
import numpy as np
import pytest
import torch

from rlbench.core.state import same
from rlbench.training.trainer import Trainer, load
from tests.test_probes import FAST, GAMMA, PROBES

SMALL = dict(start=40, capacity=300, batch=16, hidden=(16,), target_every=7, log_every=50)
WAYS = [dict(explore="boltzmann", temperature=.5), dict(explore="weights", shake_every=20), dict(eps_spread=3.), dict(alpha=.6), dict(alpha=1., n=3, explore="weights", shake_every=10)]


@pytest.mark.parametrize("how", WAYS, ids=str)
def test_saved_and_loaded_it_goes_on_to_the_bit(how, tmp_path):
    trainer = Trainer("CartPole-v1", "dqn", num_envs=2, **SMALL, **how).run(steps=150)
    trainer.until(lambda event: event.kind == "process")                     # a minibatch is owed
    trainer.save(tmp_path / "a.rlb")
    twin = load(tmp_path / "a.rlb")
    for t in (trainer, twin): t.run(steps=100)
    assert same(trainer.state(), twin.state())


def test_everything_changes_in_mid_run():
    trainer = Trainer("CartPole-v1", "dqn", **SMALL).run(steps=100)
    for how in [*WAYS, dict(explore="epsilon", alpha=0., eps_spread=0., n=1)]:
        trainer.set(**how)
        trainer.run(steps=60)
        row = trainer.learner.last["batch"]
        assert ("weight" in row) == (trainer.learner.algo.alpha > 0)
    assert trainer.learner.nets.shaken.shakes > 0


@pytest.mark.parametrize("before, after", [(0., .6), (.6, 0.)])
def test_minibatches_with_and_without_weights_are_not_put_together(before, after):
    trainer = Trainer("CartPole-v1", "dqn", **SMALL, alpha=before).run(steps=60)
    trainer.until(lambda event: event.kind == "process")
    waiting = trainer.learner.data
    trainer.set(alpha=after)
    with pytest.raises(ValueError, match="settings changed.*learned first"): trainer.learner.owe(3)
    assert trainer.learner.data is waiting and len(trainer.learner.todo) == 1
    trainer.until("update")
    trainer.learner.owe(3)
    assert len(trainer.learner.todo) == 3


@pytest.mark.parametrize("how", [*WAYS, {}], ids=str)
def test_forbidden_actions_are_never_taken(how):
    trainer = Trainer("rlbench/Forbidden-v0", "dqn", **SMALL | dict(eps=.5), **how)
    for _ in range(300):
        row = trainer.until("step").data
        assert row.obs["action_mask"][0, row.act[0]] == 1


@pytest.mark.parametrize("how", [dict(alpha=.6, beta=1.), dict(explore="boltzmann", temperature=.5), dict(explore="weights", shake_every=20)], ids=str)
@pytest.mark.parametrize("probe", ["Delayed", "Match"])
def test_probes(probe, how):
    names = set(Trainer(PROBES[probe]["id"], "dqn").learner.algo.__dataclass_fields__)
    trainer = Trainer(PROBES[probe]["id"], "dqn", seed=1, **{k: v for k, v in FAST.items() if k in names} | how).run(steps=3000)
    raw = trainer.env.single.unwrapped
    with torch.no_grad(): got = trainer.learner.now.values(trainer.learner.nets, torch.from_numpy(raw.seen)).numpy()
    np.testing.assert_allclose(got, raw.known_q(GAMMA), atol=.15 * max(1., np.abs(raw.known_q(GAMMA)).max()))


def test_priorities_follow_the_errors_of_the_last_update():
    trainer = Trainer("CartPole-v1", "dqn", **SMALL, alpha=.5).run(steps=200)
    trainer.until("update")
    learner, ranked = trainer.learner, trainer.learner.buffer.attached["priorities"]
    index, error = learner.last["index"], learner.last["parts"]["delta"].abs().double()
    last = {int(i): float(e) for i, e in zip(index, error)}                 # a row drawn twice keeps its last error
    assert ranked.tree[np.array(list(last))] == pytest.approx([(e + 1e-6) ** .5 for e in last.values()])
    assert learner.last["batch"].weight.max() == 1


def test_environments_explore_unequally():
    trainer, odd, steps = Trainer("CartPole-v1", "dqn", num_envs=3, eps=.8, eps_spread=7., **SMALL), np.zeros(3), 600
    trainer.learning = False
    q = trainer.learner.nets.q
    for _ in range(steps):
        row = trainer.until("step").data
        odd += (q(torch.from_numpy(row.obs)).argmax(-1).numpy() != row.act)
    want = .8 ** np.array([1, 4.5, 8]) / 2                                  # half of the random actions are the best one
    assert np.abs(odd / steps - want).max() < 5 * np.sqrt(.25 / steps)
