"""Stretches, whole episodes, reservoirs and mixtures against plain lists of what each environment did."""
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from rlbench.buffers.buffers import Ring
from rlbench.buffers.priorities import Prioritised, Tally
from rlbench.buffers.sequences import Episodes, Reservoir, Sequences, began, ended, episodes, mixed, stretch, whole_episodes
from rlbench.core.batch import Batch
from rlbench.core.state import same, snapshot


def fill(capacity, num_envs, steps, seed, p_end=.25, p_valid=.8):
    "A ring, and for each environment the list of (name, ended) of every row it ever wrote"
    rng, ring, lists = np.random.default_rng(seed), Ring(capacity, num_envs), [[] for _ in range(num_envs)]
    for t in range(steps):
        term, valid = rng.random(num_envs) < p_end / 2, rng.random(num_envs) < p_valid
        trunc = ~term & (rng.random(num_envs) < p_end / 2)
        ring.add(Batch(name=t * num_envs + np.arange(num_envs), term=term, trunc=trunc), valid)
        for n in np.flatnonzero(valid): lists[n].append((t * num_envs + n, bool(term[n] | trunc[n])))
    return ring, lists


def names(ring, index): return ring.places["name"][index]


rings = given(capacity=st.integers(1, 12), num_envs=st.integers(1, 3), steps=st.integers(1, 40), seed=st.integers(0, 10**6), data=st.data())


@settings(max_examples=80, deadline=None)
@rings
def test_stretches_equal_a_walk_along_the_lists(capacity, num_envs, steps, seed, data):
    ring, lists = fill(capacity, num_envs, steps, seed)
    length, across = data.draw(st.integers(1, 6)), data.draw(st.booleans())
    held = ring.latest()
    if not len(held): return
    rows, k = stretch(ring, held, length, across), 0
    for n, rows_of in enumerate(lists):
        for start in range(max(0, len(rows_of) - capacity), len(rows_of)):
            want = rows_of[start:start + length]
            if not across:
                ended = next((i + 1 for i, (_, end) in enumerate(want) if end), length)
                want = want[:ended]
            m = len(want)
            assert rows.valid[:, k].tolist() == [True] * m + [False] * (length - m)
            assert names(ring, rows.index[:m, k]).tolist() == [name for name, _ in want]
            oldest = max(0, len(rows_of) - capacity)                            # of that row nobody knows whether an episode began, unless it is the very first
            assert rows.first[:m, k].tolist() == [i == 0 or (i > oldest and rows_of[i - 1][1]) for i in range(start, start + m)]
            assert not rows.first[m:, k].any()
            k += 1
    assert k == len(held)


@settings(max_examples=120, deadline=None)
@rings
def test_a_drawn_stretch_starts_where_it_may_and_learns_from_the_row_asked_for(capacity, num_envs, steps, seed, data):
    ring, lists = fill(capacity, num_envs, steps, seed)
    length, burn_in, across = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 4)), data.draw(st.booleans())
    every = data.draw(st.integers(1, length))
    sequences, held = Sequences(ring, length, burn_in, every, across), ring.latest()
    if not len(held): return
    rows, able = sequences.around(held), []
    assert rows.index.shape == (burn_in + length, len(held))
    learned = rows.valid & ~rows.burn
    for k, row in enumerate(held):
        n, number = row % num_envs, int(ring.number(row))
        ends, oldest = [end for _, end in lists[n]], max(0, len(lists[n]) - capacity)
        begins = [i for i in range(oldest, number + 1) if i == 0 or (not across and i > oldest and ends[i - 1])]
        aligned = [i for i in range(oldest, number - burn_in + 1) if i % every == 0]
        begins_since = max(begins, default=-1)                                  # a start before that would be another episode's
        possible = [i for i in [*aligned, *begins] if across or i >= begins_since]
        if not possible:
            assert not rows.valid[:, k].any()
            continue
        able.append(row)
        assert ring.number(rows.index[0, k]) == max(possible)
        assert row in rows.index[learned[:, k], k]
        exact = rows.first[0, k]
        assert rows.burn[:, k].tolist() == [not exact and i < burn_in for i in range(burn_in + length)]
    if not able:
        with pytest.raises(ValueError, match="no stretch fits"): sequences.draw(np.random.default_rng(0), 1)
        return
    drawn = sequences.draw(np.random.default_rng(0), 300)
    assert (drawn.valid & ~drawn.burn).any(0).all()
    assert {tuple(x) for x in drawn.index.T} <= {tuple(x) for x in sequences.around(np.array(able)).index.T}


def test_every_row_that_has_a_stretch_is_asked_for_equally_often():
    ring, _ = fill(20, 2, 60, seed=3)
    sequences, asked = Sequences(ring, 4, 2, 3, False), []
    sequences.around = lambda index: asked.append(index)
    sequences.draw(np.random.default_rng(0), 60_000)
    counts = np.bincount(asked[0], minlength=40)
    able = Sequences(ring, 4, 2, 3, False).around(ring.latest()).valid.any(0).sum()
    assert (counts > 0).sum() == able
    np.testing.assert_allclose(counts[counts > 0] * able / 60_000, 1, atol=.15)


@settings(max_examples=80, deadline=None)
@rings
def test_whole_episodes_are_those_of_the_lists(capacity, num_envs, steps, seed, data):
    ring, lists = fill(capacity, num_envs, steps, seed)
    want = []
    for rows in lists:
        start = 0
        for i, (_, end) in enumerate(rows):
            if not end: continue
            oldest = max(0, len(rows) - capacity)
            known = start == 0 or start > oldest                                # the row that ended the episode before is held too
            if start >= oldest and known: want.append([name for name, _ in rows[start:i + 1]])
            start = i + 1
    start, length = episodes(ring)
    found = stretch(ring, start, int(length.max(initial=1)), False)
    assert [names(ring, found.index[found.valid[:, k], k]).tolist() for k in range(len(start))] == want
    assert length.tolist() == [len(x) for x in want]
    if not want:
        with pytest.raises(ValueError, match="no episode"): Episodes(ring).draw(np.random.default_rng(0), 1)
        return
    drawn = Episodes(ring).draw(np.random.default_rng(seed), 9)
    assert drawn.first[0].all() and drawn.first.sum() == 9
    assert all(names(ring, drawn.index[drawn.valid[:, k], k]).tolist() in want for k in range(9))


@settings(max_examples=80, deadline=None)
@rings
def test_episodes_that_just_ended_are_those_of_the_lists(capacity, num_envs, steps, seed, data):
    ring, lists = fill(capacity, num_envs, steps, seed)
    fresh = np.array([data.draw(st.integers(0, len(rows))) for rows in lists])
    want, ends = [], 0
    for rows, new in zip(lists, fresh):
        episode = []
        for i, (name, end) in enumerate(rows):
            if i >= len(rows) - capacity: episode.append(name)              # what is still held of it
            if end and i >= len(rows) - min(new, capacity): want, ends = want + episode, ends + 1
            if end: episode = []
    assert names(ring, whole_episodes(ring, fresh)).tolist() == want if len(ring) else want == []
    ring.fresh[:] = fresh
    assert ended(ring) == ends


@settings(max_examples=60, deadline=None)
@given(capacity=st.integers(1, 6), num_envs=st.integers(1, 3), steps=st.integers(1, 30), seed=st.integers(0, 10**6), cut=st.integers(0, 29))
def test_reservoir_holds_rows_once_and_continues_from_a_snapshot(capacity, num_envs, steps, seed, cut):
    def offer(pool, t, rng):
        valid = rng.random(num_envs) < .7
        return pool.add(Batch(name=t * num_envs + np.arange(num_envs)), valid)
    pool, twin, rng, seen = Reservoir(capacity, num_envs, seed), None, np.random.default_rng(seed), 0
    for t in range(steps):
        if t == cut:
            twin, again = Reservoir(capacity, num_envs, 0), np.random.default_rng(0)
            twin.restore(snapshot(pool.state()))
            again.bit_generator.state = rng.bit_generator.state
        seen += offer(pool, t, rng)
        if twin is not None: offer(twin, t, again)
    if twin is not None: assert same(twin.state(), pool.state())
    assert len(pool) == min(seen, capacity * num_envs) and pool.added == seen == pool.written.sum() and pool.fresh.sum() == seen
    if not seen: return
    held = pool.gather(pool.latest()).name.tolist()
    assert len(set(held)) == len(held)
    assert set(pool.gather(pool.uniform(rng, 50)).name.tolist()) <= set(held)


def test_reservoir_is_uniform_over_everything_seen():
    "Each of 30 rows is held by 6 of 30 reservoirs; a ring would hold only the last"
    counts = np.zeros(30)
    for seed in range(1500):
        pool = Reservoir(6, 1, seed)
        for t in range(30): pool.add(Batch(name=np.array([t])))
        counts[pool.rows.name] += 1
    assert np.abs(counts - 300).max() < 5 * np.sqrt(1500 * .2 * .8)


@pytest.mark.parametrize("ask", [lambda p: p.age(0), lambda p: p.newest(1), lambda p: p.number(0), lambda p: p.ahead([0], 2), lambda p: p.latest(p.fresh),
                                 lambda p: Sequences(p, 2, 0, 1, False).draw(np.random.default_rng(0), 1), lambda p: Tally(p).count([0]),
                                 lambda p: Prioritised(p, 1., .1).draw(np.random.default_rng(0), 1, 0.)])
def test_reservoir_refuses_what_needs_neighbours(ask):
    pool = Reservoir(4, 1, 0)
    for t in range(6): pool.add(Batch(name=np.array([t]), term=np.array([False]), trunc=np.array([False])))
    assert same(pool.ahead(np.array([2]), 1), (np.array([[2]]), np.array([[True]])))
    with pytest.raises(ValueError, match="need a Ring"): ask(pool)


@settings(max_examples=60, deadline=None)
@given(capacity=st.integers(1, 9), num_envs=st.integers(1, 3), before=st.integers(0, 20), after=st.integers(0, 20), seed=st.integers(0, 10**6), share=st.floats(.1, 1))
def test_mixed_gives_every_fresh_row_once(capacity, num_envs, before, after, seed, share):
    ring, lists = fill(capacity, num_envs, before + after, seed)
    ring.fresh[:] = 0
    fresh = []
    for n, rows in enumerate(lists):
        late = [name for name, _ in rows if name >= before * num_envs]
        ring.fresh[n] = len(late)
        fresh += late[-capacity:]
    rng = np.random.default_rng(seed)
    index = mixed(ring, rng, share, lambda rng, n: ring.uniform(rng, n))
    assert names(ring, index[:len(fresh)]).tolist() == fresh if fresh else len(index) == 0
    more = len(fresh) * (1 - share) / share
    assert len(index) - len(fresh) in (int(more), int(more) + 1)


def test_a_tally_counts_the_rows_of_stretches():
    ring, _ = fill(12, 1, 30, seed=1)
    tally = Tally(ring)
    drawn = tally.watch(Sequences(ring, 3, 1, 1, False).draw)(np.random.default_rng(0), 20)
    assert tally.sampled == tally.hits.sum() == drawn.valid.sum()
    assert same(tally.hits, np.bincount(drawn.index[drawn.valid], minlength=12))


def test_a_carry_read_at_the_start_of_a_stretch_is_the_one_the_policy_had():
    "A counting network: its carry is the number of rows since the episode began"
    ring, rng, carry = Ring(40, 2), np.random.default_rng(0), np.zeros((2, 1), np.float32)
    for t in range(95):
        term = rng.random(2) < .1
        ring.add(Batch(carry=carry, term=term, trunc=np.zeros(2, bool)))
        carry = (carry + 1) * ~term[:, None]
    drawn = Sequences(ring, 6, 3, 4, across=True).draw(rng, 200)
    stored = ring.gather(drawn.index).carry.squeeze(-1)
    state = stored[0]
    for t in range(len(stored)):
        state = torch.where(torch.from_numpy(drawn.first[t]), 0., state)
        at = torch.from_numpy(drawn.valid[t])
        torch.testing.assert_close(state[at], stored[t][at])
        state = state + 1
    assert began(ring, drawn.index[drawn.first]).all()
