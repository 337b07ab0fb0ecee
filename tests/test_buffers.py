"""The ring against plain lists, at every wrap; estimators against their definitions."""
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench.algos.dqn import after_steps
from rlbench.buffers.datasets import load_ring, save_ring
from rlbench.buffers.returns import discounted, gae, n_step, scan
from rlbench.buffers.ring import ClosedRing, Ring
from rlbench.core.batch import Batch, each
from rlbench.core.state import FileProblem, same, snapshot


def row_at(t, num_envs, rng, p_end):
    "A random row whose observations tell the time"
    row = Batch(
        obs=np.full((num_envs, 1), t, np.float32),
        act=np.zeros(num_envs, np.int64),
        rew=rng.normal(size=num_envs).astype(np.float32),
        term=rng.random(num_envs) < p_end / 2,
        trunc=rng.random(num_envs) < p_end / 2,
        next_obs=np.full((num_envs, 1), t + 1, np.float32),
    )
    row.trunc &= ~row.term
    return row


def fill(capacity, num_envs, steps, seed, p_end=.2, p_valid=.8):
    "A ring, and beside it the plain lists of what each environment did"
    rng = np.random.default_rng(seed)
    ring = Ring(capacity, num_envs)
    lists = [[] for _ in range(num_envs)]
    for t in range(steps):
        row = row_at(t, num_envs, rng, p_end)
        valid = rng.random(num_envs) < p_valid if t else np.ones(num_envs, bool)
        ring.add(row, valid)
        for n in np.flatnonzero(valid):
            lists[n].append({name: column[n] for name, column in row.items()})
    return ring, [rows[-capacity:] for rows in lists]


def uneven_ring(sizes, capacity):
    "A ring whose environments hold so many rows, after going round once where that is all it can hold"
    ring = Ring(capacity, len(sizes))
    counts = np.array([2 * capacity + 3 if size == capacity else size for size in sizes])
    for t in range(counts.max()):
        ring.add(Batch(rew=np.full(len(sizes), t)), t < counts)
    return ring


shapes = given(capacity=st.integers(1, 9), num_envs=st.integers(1, 4), steps=st.integers(1, 40),
               seed=st.integers(0, 10**6))


@settings(max_examples=60, deadline=None)
@shapes
def test_ring_holds_the_newest_rows_of_each_environment(capacity, num_envs, steps, seed):
    ring, lists = fill(capacity, num_envs, steps, seed)
    assert ring.sizes.tolist() == [len(rows) for rows in lists]
    shortest = int(ring.sizes.min())
    newest = ring.gather(ring.newest(shortest).reshape(shortest, num_envs))
    for n, rows in enumerate(lists):
        assert newest.rew[:, n].tolist() == [row["rew"] for row in rows[len(rows) - shortest:]]
    drawn = ring.uniform(np.random.default_rng(0), 400)
    held = {float(row["rew"]) for rows in lists for row in rows}
    assert {float(rew) for rew in ring.gather(drawn).rew} <= held


@settings(max_examples=60, deadline=None)
@shapes
def test_addresses_are_inverse_to_one_another(capacity, num_envs, steps, seed):
    ring, lists = fill(capacity, num_envs, steps, seed)
    rows = ring.latest()
    env = ring.env_of(rows)
    assert env.tolist() == [n for n, held in enumerate(lists) for _ in held]
    assert same(ring.aged(ring.age(rows), env), rows)
    assert same(ring.ordinal(rows), ring.written[env] - 1 - ring.age(rows))
    for steps_on in (-1, 1, 3):
        assert same(ring.shifted(ring.shifted(rows, steps_on), -steps_on), rows)
        assert same(ring.env_of(ring.shifted(rows, steps_on)), env)


@settings(max_examples=60, deadline=None)
@given(capacity=st.integers(2, 9), num_envs=st.integers(1, 3), steps=st.integers(1, 40), seed=st.integers(0, 10**6),
       n=st.integers(1, 5))
def test_n_step_rows_equal_a_walk_along_the_lists(capacity, num_envs, steps, seed, n):
    ring, lists = fill(capacity, num_envs, steps, seed)
    for env, rows in enumerate(lists):
        for age, row in enumerate(reversed(rows)):
            ret = 0.
            taken = 0
            for later in rows[len(rows) - 1 - age:][:n]:
                ret += .9**taken * later["rew"]
                taken += 1
                if later["term"] or later["trunc"]: break
            index, alive = ring.ahead(np.array([ring.aged(age, env)]), n)
            data = after_steps(Batch(ring.gather(index), alive=alive).torch(), .9)
            np.testing.assert_allclose(data.ret.item(), ret, rtol=1e-5, atol=1e-6)       # float32 sums
            np.testing.assert_allclose(data.disc.item(), .9**taken * (not later["term"]), rtol=1e-5)
            assert data.next_obs.item() == later["next_obs"][0]


@settings(max_examples=40, deadline=None)
@given(capacity=st.integers(1, 9), num_envs=st.integers(1, 3), before=st.integers(0, 12), steps=st.integers(1, 30),
       seed=st.integers(0, 10**6))
def test_many_steps_at_once_leave_what_single_steps_leave(capacity, num_envs, before, steps, seed):
    rng = np.random.default_rng(seed)
    one_by_one = Ring(capacity, num_envs)
    for t in range(before):
        one_by_one.add(row_at(t, num_envs, rng, .2), rng.random(num_envs) < .7)
    at_once = one_by_one.twin()
    rows = [row_at(t, num_envs, rng, .2) for t in range(steps)]
    for row in rows:
        one_by_one.add(row)
    stacked = each(lambda *columns: np.stack(columns), *rows)
    assert at_once.extend(stacked) == steps * num_envs
    assert same(at_once.state(), one_by_one.state())


@settings(max_examples=30, deadline=None)
@shapes
def test_ring_survives_a_file(capacity, num_envs, steps, seed, tmp_path_factory):
    ring, _ = fill(capacity, num_envs, steps, seed)
    path = tmp_path_factory.mktemp("ring") / "ring.rlb"
    save_ring(path, ring)
    twin = load_ring(path)
    assert same(ring.state(), twin.state())
    row = ring.rows[0].copy()
    for one in (ring, twin):
        one.add(row)
    assert same(ring.state(), twin.state())
    assert same(ring.uniform(np.random.default_rng(1), 9), twin.uniform(np.random.default_rng(1), 9))


@settings(max_examples=30, deadline=None)
@shapes
def test_a_snapshot_is_gone_back_to_in_place(capacity, num_envs, steps, seed):
    ring, _ = fill(capacity, num_envs, steps, seed)
    kept = snapshot(ring.state())
    row = ring.rows[0].copy()
    for _ in range(capacity + 1):
        ring.add(row)
    ring.restore(kept)
    assert same(ring.state(), kept)


def test_a_closed_ring_counts_and_keeps_nothing():
    ring, _ = fill(5, 2, 9, seed=0)
    closed = ring.twin(ClosedRing)
    row = ring.rows[0].copy()
    assert closed.add(row) == 2
    assert closed.add(row, np.array([True, False])) == 1
    assert closed.extend(ring.rows) == 10
    assert same(closed.state(), ring.state())


def test_every_row_is_drawn_equally_often_while_environments_differ():
    ring = uneven_ring([2, 7, 4], capacity=7)
    assert ring.sizes.tolist() == [2, 7, 4]
    counts = np.bincount(ring.uniform(np.random.default_rng(0), 130_000), minlength=21)
    assert (counts > 0).sum() == 13
    assert same(np.flatnonzero(counts), np.sort(ring.latest()))
    np.testing.assert_allclose(counts[counts > 0] / 10_000, 1, atol=.06)


def test_a_truncated_file_is_refused(tmp_path):
    ring, _ = fill(5, 2, 9, seed=0)
    save_ring(tmp_path / "a.rlb", ring)
    data = (tmp_path / "a.rlb").read_bytes()
    for cut in range(1, len(data), max(1, len(data) // 40)):
        (tmp_path / "b.rlb").write_bytes(data[:cut])
        with pytest.raises(FileProblem, match="b.rlb"):
            load_ring(tmp_path / "b.rlb")


def test_what_a_ring_cannot_do_is_said():
    with pytest.raises(ValueError, match="an empty memory has nothing to draw from"):
        Ring(4, 1).uniform(np.random.default_rng(0), 1)
    ring, _ = fill(5, 2, 9, seed=0, p_valid=1.)
    with pytest.raises(ValueError, match="6 steps asked for, but an environment holds 5"):
        ring.newest(6)
    with pytest.raises(FileProblem, match="holds 5 x 2 rows, expected 5 x 1"):
        Ring(5, 1).restore(ring.state())


# ---- estimators: tolerances are those of float32 sums in another order

arrays = given(T=st.integers(1, 40), N=st.integers(1, 3), seed=st.integers(0, 10**6), gamma=st.floats(0, 1),
               lam=st.floats(0, 1))


def experience(T, N, seed):
    "Random columns (T, N)"
    rng = torch.Generator().manual_seed(seed)
    term = torch.rand(T, N, generator=rng) < .15
    numbers = {name: torch.randn(T, N, generator=rng) for name in ("rew", "val", "next_val")}
    return dict(numbers, term=term, trunc=(torch.rand(T, N, generator=rng) < .15) & ~term)


@settings(max_examples=60, deadline=None)
@arrays
def test_gae_is_its_recursion_and_its_ends_are_known(T, N, seed, gamma, lam):
    x = experience(T, N, seed)
    acc = torch.zeros(N)
    want = torch.zeros(T, N)
    for t in reversed(range(T)):
        delta = x["rew"][t] + gamma * ~x["term"][t] * x["next_val"][t] - x["val"][t]
        acc = delta + gamma * lam * ~(x["term"][t] | x["trunc"][t]) * acc
        want[t] = acc
    torch.testing.assert_close(gae(**x, gamma=gamma, lam=lam), want, rtol=1e-4, atol=1e-4)
    one_step = x["rew"] + gamma * ~x["term"] * x["next_val"] - x["val"]
    torch.testing.assert_close(gae(**x, gamma=gamma, lam=0.), one_step)                  # λ = 0 is TD(0)


@settings(max_examples=40, deadline=None)
@arrays
def test_lambda_one_is_the_discounted_return_and_episodes_do_not_touch(T, N, seed, gamma, lam):
    x = experience(T, N, seed)
    other = torch.randn(T, N, generator=torch.Generator().manual_seed(seed + 1))
    x["next_val"] = torch.cat([x["val"][1:], x["next_val"][-1:]])                        # values that belong together
    x["next_val"] = torch.where(x["trunc"], other, x["next_val"])
    ret = discounted(x["rew"], x["next_val"], x["term"], x["trunc"], gamma)
    torch.testing.assert_close(gae(**x, gamma=gamma, lam=1.) + x["val"], ret, rtol=1e-3, atol=1e-3)
    x["trunc"][-1] |= ~x["term"][-1]
    twice = {name: torch.cat([column, column]) for name, column in x.items()}
    once = gae(**x, gamma=gamma, lam=lam)
    torch.testing.assert_close(gae(**twice, gamma=gamma, lam=lam), torch.cat([once, once]), rtol=1e-4, atol=1e-4)


def test_scan_over_a_long_stretch_agrees_with_double_precision():
    delta = torch.randn(2048, 8, generator=torch.Generator().manual_seed(0))
    keep = torch.full((2048, 8), .99 * .95)
    want = scan(delta.double(), keep.double()).float()
    torch.testing.assert_close(scan(delta, keep), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_n_step_with_a_peers_cases(n):
    "Reward 1 per step: geometric sums; only termination ends the future; discount to the power of steps taken"
    ring = Ring(10, 1)
    for t in range(10):
        ring.add(Batch(obs=np.array([[t]], np.float32), act=np.array([0]), rew=np.ones(1, np.float32),
                       term=np.array([t == 2]), trunc=np.array([t == 6]), next_obs=np.array([[t + 1]], np.float32)))
    index, alive = ring.ahead(np.arange(10), n)
    data = after_steps(Batch(ring.gather(index), alive=alive).torch(), .99)
    ends = [2] * 3 + [6] * 4 + [9] * 3
    taken = [min(n, end - t + 1) for t, end in enumerate(ends)]
    disc = [0 if t + m - 1 == 2 else .99**m for t, m in enumerate(taken)]
    np.testing.assert_allclose(data.ret, [np.sum(.99**np.arange(m)) for m in taken], rtol=1e-5)
    np.testing.assert_allclose(data.disc, disc, rtol=1e-5)


def test_n_step_shapes_are_checked():
    with pytest.raises(ValueError, match="n_step"):
        n_step(torch.zeros(2, 3), torch.zeros(2, 2, dtype=bool), torch.ones(2, 3, dtype=bool), .9)
