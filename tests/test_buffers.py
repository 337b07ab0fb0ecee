"""The ring against a list, at every wrap; estimators against their definitions; the probe that tells termination from truncation."""
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from rlbench.algos.dqn import n_step_rows
from rlbench.buffers.buffers import Ring
from rlbench.buffers.returns import discounted, gae, n_step, scan
from rlbench.core.batch import Batch
from rlbench.core.state import FileProblem, same


def fill(capacity, num_envs, steps, seed, p_end=.2, p_valid=.8):
    "A ring, and beside it the plain lists of what each environment did"
    rng, ring, lists = np.random.default_rng(seed), Ring(capacity, num_envs), [[] for _ in range(num_envs)]
    for t in range(steps):
        row = Batch(obs=np.full((num_envs, 1), t, np.float32), act=np.zeros(num_envs, np.int64), rew=rng.normal(size=num_envs).astype(np.float32),
                    term=rng.random(num_envs) < p_end / 2, trunc=rng.random(num_envs) < p_end / 2, next_obs=np.full((num_envs, 1), t + 1, np.float32))
        row.trunc &= ~row.term
        valid = rng.random(num_envs) < p_valid if t else np.ones(num_envs, bool)
        ring.add(row, valid)
        for n in np.flatnonzero(valid):
            lists[n].append({k: v[n] for k, v in row.items()})
    return ring, [rows[-capacity:] for rows in lists]


shapes = given(capacity=st.integers(1, 9), num_envs=st.integers(1, 4), steps=st.integers(1, 40), seed=st.integers(0, 10**6))


@settings(max_examples=60, deadline=None)
@shapes
def test_ring_holds_the_newest_rows_of_each_environment(capacity, num_envs, steps, seed):
    ring, lists = fill(capacity, num_envs, steps, seed)
    assert ring.sizes.tolist() == [len(rows) for rows in lists]
    shortest = int(ring.sizes.min())
    newest = ring.gather(ring.newest(shortest))
    for n, rows in enumerate(lists):
        assert newest.rew[:, n].tolist() == [r["rew"] for r in rows[len(rows) - shortest:]]
    drawn = ring.uniform(np.random.default_rng(0), 400)
    held = {float(r["rew"]) for rows in lists for r in rows}
    assert {float(x) for x in ring.gather(drawn).rew} <= held


@settings(max_examples=60, deadline=None)
@given(capacity=st.integers(2, 9), num_envs=st.integers(1, 3), steps=st.integers(1, 40), seed=st.integers(0, 10**6), n=st.integers(1, 5))
def test_n_step_rows_equal_a_walk_along_the_lists(capacity, num_envs, steps, seed, n):
    ring, lists = fill(capacity, num_envs, steps, seed)
    for env, rows in enumerate(lists):
        for age, row in enumerate(reversed(rows)):
            at = (ring.heads[env] - 1 - age) % capacity * num_envs + env
            ret, last = 0., row
            for k, later in enumerate(rows[len(rows) - 1 - age:][:n]):
                ret, last, steps_taken = ret + .9**k * later["rew"], later, k + 1
                if later["term"] or later["trunc"]:
                    break
            data = n_step_rows(ring, torch.tensor([at]), n, .9)
            np.testing.assert_allclose(data.ret.item(), ret, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(data.disc.item(), .9**steps_taken * (not last["term"]), rtol=1e-5)
            assert data.next_obs.item() == last["next_obs"][0]


@settings(max_examples=30, deadline=None)
@shapes
def test_ring_survives_a_file(capacity, num_envs, steps, seed, tmp_path_factory):
    ring, _ = fill(capacity, num_envs, steps, seed)
    path = tmp_path_factory.mktemp("ring") / "ring.rlb"
    ring.save(path)
    twin = Ring.load(path)
    assert same(ring.state(), twin.state())
    row = Batch({k: v[0] for k, v in ring.rows.items()})
    for r in (ring, twin):
        r.add(row)
    assert same(ring.state(), twin.state()) and same(ring.uniform(np.random.default_rng(1), 9), twin.uniform(np.random.default_rng(1), 9))


def test_every_row_is_drawn_equally_often_while_environments_differ():
    ring, lists = fill(7, 3, 30, seed=4, p_valid=.3)
    ring.sizes[:] = [2, 7, 4]
    counts = np.bincount(ring.uniform(np.random.default_rng(0), 130_000), minlength=21)
    assert (counts > 0).sum() == 13
    np.testing.assert_allclose(counts[counts > 0] / 10_000, 1, atol=.06)


def test_a_truncated_buffer_file_is_refused(tmp_path):
    ring, _ = fill(5, 2, 9, seed=0)
    ring.save(tmp_path / "a.rlb")
    data = (tmp_path / "a.rlb").read_bytes()
    for cut in range(1, len(data), max(1, len(data) // 40)):
        (tmp_path / "b.rlb").write_bytes(data[:cut])
        with pytest.raises(FileProblem, match="b.rlb"):
            Ring.load(tmp_path / "b.rlb")


arrays = given(T=st.integers(1, 40), N=st.integers(1, 3), seed=st.integers(0, 10**6), gamma=st.floats(0, 1), lam=st.floats(0, 1))


def draw(T, N, seed):
    rng = torch.Generator().manual_seed(seed)
    term = torch.rand(T, N, generator=rng) < .15
    return dict(rew=torch.randn(T, N, generator=rng), val=torch.randn(T, N, generator=rng), next_val=torch.randn(T, N, generator=rng),
                term=term, trunc=(torch.rand(T, N, generator=rng) < .15) & ~term)


@settings(max_examples=60, deadline=None)
@arrays
def test_gae_is_its_recursion_and_its_ends_are_known(T, N, seed, gamma, lam):
    x = draw(T, N, seed)
    acc, want = torch.zeros(N), torch.zeros(T, N)
    for t in reversed(range(T)):
        delta = x["rew"][t] + gamma * ~x["term"][t] * x["next_val"][t] - x["val"][t]
        want[t] = acc = delta + gamma * lam * ~(x["term"][t] | x["trunc"][t]) * acc
    torch.testing.assert_close(gae(**x, gamma=gamma, lam=lam), want, rtol=1e-4, atol=1e-4)
    one_step = x["rew"] + gamma * ~x["term"] * x["next_val"] - x["val"]
    torch.testing.assert_close(gae(**x, gamma=gamma, lam=0.), one_step)                                    # λ = 0 is TD(0)


@settings(max_examples=40, deadline=None)
@arrays
def test_lambda_one_is_the_discounted_return_and_episodes_do_not_touch(T, N, seed, gamma, lam):
    x = draw(T, N, seed)
    x["next_val"] = torch.cat([x["val"][1:], x["next_val"][-1:]])                                          # values that belong together
    x["next_val"] = torch.where(x["trunc"], torch.randn(T, N), x["next_val"])
    ret = discounted(x["rew"], x["next_val"], x["term"], x["trunc"], gamma)
    torch.testing.assert_close(gae(**x, gamma=gamma, lam=1.) + x["val"], ret, rtol=1e-3, atol=1e-3)
    x["trunc"][-1] |= ~x["term"][-1]
    twice = {k: torch.cat([v, v]) for k, v in x.items()}
    once = gae(**x, gamma=gamma, lam=lam)
    torch.testing.assert_close(gae(**twice, gamma=gamma, lam=lam), torch.cat([once, once]), rtol=1e-4, atol=1e-4)


def test_scan_over_a_long_stretch_agrees_with_double_precision():
    delta, keep = torch.randn(2048, 8), torch.full((2048, 8), .99 * .95)
    want = scan(delta.double(), keep.double()).float()
    torch.testing.assert_close(scan(delta, keep), want, rtol=1e-4, atol=1e-4)


def test_n_step_with_a_peers_cases():
    "Reward 1 per step: geometric sums; only termination ends the future; discount to the power of steps taken"
    for n in (2, 3, 5):
        ring = Ring(10, 1)
        for t in range(10):
            ring.add(Batch(obs=np.array([[t]], np.float32), act=np.array([0]), rew=np.ones(1, np.float32), term=np.array([t == 2]), trunc=np.array([t == 6]), next_obs=np.array([[t + 1]], np.float32)))
        data = n_step_rows(ring, torch.arange(10), n, .99)
        taken = [min(n, end - t + 1) for t in range(10) for end in [2 if t <= 2 else 6 if t <= 6 else 9]]
        np.testing.assert_allclose(data.ret, [sum(.99**k for k in range(m)) for m in taken], rtol=1e-5)
        np.testing.assert_allclose(data.disc, [0 if t <= 2 and t + m - 1 == 2 else .99**m for t, m in enumerate(taken)], rtol=1e-5)


def test_n_step_shapes_are_checked():
    with pytest.raises(ValueError, match="n_step"):
        n_step(torch.zeros(2, 3), torch.zeros(2, 2, dtype=bool), torch.ones(2, 3, dtype=bool), .9)
