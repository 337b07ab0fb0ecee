"""Stretches, whole episodes, reservoirs and mixtures against plain lists of what each environment did."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench.buffers.datasets import filtered, merged, subset, write_lines
from rlbench.buffers.priorities import Prioritised, Tally
from rlbench.buffers.ring import ClosedRing, Ring
from rlbench.buffers.sequences import EpisodeSampler, Reservoir, SequenceSampler, fresh_and_replayed
from rlbench.core.batch import Batch
from rlbench.core.state import same, snapshot


def fill(capacity, num_envs, steps, seed, p_end=.25, p_valid=.8):
    "A ring, and for each environment the list of (name, ended) of every row it ever wrote"
    rng = np.random.default_rng(seed)
    ring = Ring(capacity, num_envs)
    lists = [[] for _ in range(num_envs)]
    for t in range(steps):
        term = rng.random(num_envs) < p_end / 2
        valid = rng.random(num_envs) < p_valid
        trunc = ~term & (rng.random(num_envs) < p_end / 2)
        ring.add(Batch(name=t * num_envs + np.arange(num_envs), term=term, trunc=trunc), valid)
        for n in np.flatnonzero(valid):
            lists[n].append((t * num_envs + n, bool(term[n] | trunc[n])))
    return ring, lists


def names(ring, index):
    return ring.places["name"][index]


def episodes_of(rows):
    "(first, last) place in the list of every episode that ended"
    start = 0
    for i, (_, end) in enumerate(rows):
        if end:
            yield start, i
            start = i + 1


def whole_ones(lists, capacity, counts):
    "Names of every episode held whole that ended among the newest counts[n] rows, environment after environment"
    for rows, count in zip(lists, counts):
        oldest = max(0, len(rows) - capacity)
        for start, last in episodes_of(rows):
            # known to begin there: it is the very first row, or the row that ended the episode before is held too
            known = start == 0 or start > oldest
            if start >= oldest and known and last >= len(rows) - count:
                yield [name for name, _ in rows[start:last + 1]]


rings = given(capacity=st.integers(1, 12), num_envs=st.integers(1, 3), steps=st.integers(1, 40),
              seed=st.integers(0, 10**6), data=st.data())


@settings(max_examples=80, deadline=None)
@rings
def test_stretches_equal_a_walk_along_the_lists(capacity, num_envs, steps, seed, data):
    ring, lists = fill(capacity, num_envs, steps, seed)
    length = data.draw(st.integers(1, 6))
    across = data.draw(st.booleans())
    held = ring.latest()
    if not len(held): return
    rows = ring.stretch(held, length, across)
    k = 0
    for line in lists:
        oldest = max(0, len(line) - capacity)
        for start in range(oldest, len(line)):
            want = line[start:start + length]
            if not across:
                ended = next((i + 1 for i, (_, end) in enumerate(want) if end), length)
                want = want[:ended]
            m = len(want)
            assert rows.valid[:, k].tolist() == [True] * m + [False] * (length - m)
            assert names(ring, rows.index[:m, k]).tolist() == [name for name, _ in want]
            # of the oldest row nobody knows whether an episode began, unless it is the very first
            first = [i == 0 or (i > oldest and line[i - 1][1]) for i in range(start, start + m)]
            assert rows.first[:m, k].tolist() == first
            assert not rows.first[m:, k].any()
            k += 1
    assert k == len(held)


def possible_starts(rows, number, capacity, sampler):
    "Where a stretch that learns from row `number` of a list may start"
    ends = [end for _, end in rows]
    oldest = max(0, len(rows) - capacity)
    begins = [i for i in range(oldest, number + 1) if i == 0 or (not sampler.across and i > oldest and ends[i - 1])]
    aligned = [i for i in range(oldest, number - sampler.burn_in + 1) if i % sampler.every == 0]
    since = max(begins, default=-1)                       # a start before that would be another episode's
    return [i for i in aligned + begins if sampler.across or i >= since]


@settings(max_examples=120, deadline=None)
@rings
def test_a_drawn_stretch_starts_where_it_may_and_learns_from_the_row_asked_for(capacity, num_envs, steps, seed, data):
    ring, lists = fill(capacity, num_envs, steps, seed)
    length = data.draw(st.integers(1, 5))
    burn_in = data.draw(st.integers(0, 4))
    sampler = SequenceSampler(ring, length, burn_in, data.draw(st.integers(1, length)), data.draw(st.booleans()))
    held = ring.latest()
    if not len(held): return
    rows = sampler.around(held)
    assert rows.index.shape == (burn_in + length, len(held))
    learned = rows.valid & ~rows.burn
    able = []
    for k, row in enumerate(held):
        possible = possible_starts(lists[ring.env_of(row)], int(ring.ordinal(row)), capacity, sampler)
        if not possible:
            assert not rows.valid[:, k].any()
            continue
        able.append(row)
        assert ring.ordinal(rows.index[0, k]) == max(possible)
        assert row in rows.index[learned[:, k], k]
        exact = rows.first[0, k]
        assert rows.burn[:, k].tolist() == [not exact and i < burn_in for i in range(burn_in + length)]
    if not able:
        with pytest.raises(ValueError, match="no stretch fits"):
            sampler.draw(np.random.default_rng(0), 1)
        return
    drawn = sampler.draw(np.random.default_rng(0), 300)
    assert (drawn.valid & ~drawn.burn).any(0).all()
    assert {tuple(x) for x in drawn.index.T} <= {tuple(x) for x in sampler.around(np.array(able)).index.T}


def test_every_row_that_has_a_stretch_is_asked_for_equally_often():
    ring, _ = fill(20, 2, 60, seed=3)
    asked = []
    sampler = SequenceSampler(ring, 4, 2, 3, False)
    sampler.around = asked.append
    sampler.draw(np.random.default_rng(0), 60_000)
    counts = np.bincount(asked[0], minlength=40)
    able = SequenceSampler(ring, 4, 2, 3, False).around(ring.latest()).valid.any(0).sum()
    assert (counts > 0).sum() == able
    np.testing.assert_allclose(counts[counts > 0] * able / 60_000, 1, atol=.15)


@settings(max_examples=80, deadline=None)
@rings
def test_whole_episodes_are_those_of_the_lists(capacity, num_envs, steps, seed, data):
    ring, lists = fill(capacity, num_envs, steps, seed)
    want = list(whole_ones(lists, capacity, map(len, lists)))
    start, length = ring.whole_episodes()
    found = ring.stretch(start, int(length.max(initial=1)), False)
    assert [names(ring, found.index[found.valid[:, k], k]).tolist() for k in range(len(start))] == want
    assert length.tolist() == [len(x) for x in want]
    if not want:
        with pytest.raises(ValueError, match="no episode"):
            EpisodeSampler(ring).draw(np.random.default_rng(0), 1)
        return
    drawn = EpisodeSampler(ring).draw(np.random.default_rng(seed), 9)
    assert drawn.first[0].all() and drawn.first.sum() == 9
    assert all(names(ring, drawn.index[drawn.valid[:, k], k]).tolist() in want for k in range(9))


@settings(max_examples=80, deadline=None)
@rings
def test_episodes_that_just_ended_are_those_of_the_lists(capacity, num_envs, steps, seed, data):
    ring, lists = fill(capacity, num_envs, steps, seed)
    counts = np.array([data.draw(st.integers(0, len(rows))) for rows in lists])
    want = list(whole_ones(lists, capacity, counts))
    start, length = ring.whole_episodes(counts)
    places = zip(start, length)
    assert [names(ring, ring.shifted(at, np.arange(n))).tolist() for at, n in places] == want
    newest = [rows[len(rows) - min(count, capacity):] for rows, count in zip(lists, counts)]
    assert ring.ended(counts) == sum(end for rows in newest for _, end in rows)


@settings(max_examples=60, deadline=None)
@given(capacity=st.integers(1, 6), num_envs=st.integers(1, 3), steps=st.integers(1, 30), seed=st.integers(0, 10**6),
       cut=st.integers(0, 29))
def test_reservoir_holds_rows_once_and_continues_from_a_snapshot(capacity, num_envs, steps, seed, cut):
    def offer(pool, t, rng):
        valid = rng.random(num_envs) < .7
        return pool.add(Batch(name=t * num_envs + np.arange(num_envs)), valid)

    pool = Reservoir(capacity, num_envs, seed)
    rng = np.random.default_rng(seed)
    twin = None
    seen = 0
    for t in range(steps):
        if t == cut:
            twin = Reservoir(capacity, num_envs, 0)
            twin.restore(snapshot(pool.state()))
            again = np.random.default_rng(0)
            again.bit_generator.state = rng.bit_generator.state
        seen += offer(pool, t, rng)
        if twin is not None: offer(twin, t, again)
    if twin is not None:
        assert same(twin.state(), pool.state())
    assert len(pool) == min(seen, capacity * num_envs)
    assert pool.added == seen == pool.written.sum()
    if not seen: return
    held = pool.gather(pool.latest()).name.tolist()
    assert len(set(held)) == len(held)
    assert set(pool.gather(pool.uniform(rng, 50)).name.tolist()) <= set(held)


@settings(max_examples=40, deadline=None)
@given(capacity=st.integers(1, 6), num_envs=st.integers(1, 3), before=st.integers(0, 10), steps=st.integers(1, 30),
       seed=st.integers(0, 10**6))
def test_reservoir_keeps_the_same_rows_many_at_a_time(capacity, num_envs, before, steps, seed):
    one_by_one = Reservoir(capacity, num_envs, seed)
    rows = Batch(name=np.arange((before + steps) * num_envs).reshape(-1, num_envs))
    for t in range(before):
        one_by_one.add(rows[t])
    at_once = one_by_one.twin()
    for t in range(before, before + steps):
        one_by_one.add(rows[t])
    assert at_once.extend(rows[before:]) == steps * num_envs
    assert same(at_once.state(), one_by_one.state())


def test_reservoir_is_uniform_over_everything_seen():
    "Each of 30 rows is held by 6 of 30 reservoirs; a ring would hold only the last"
    counts = np.zeros(30)
    for seed in range(1500):
        pool = Reservoir(6, 1, seed)
        for t in range(30):
            pool.add(Batch(name=np.array([t])))
        counts[pool.rows.name] += 1
    assert np.abs(counts - 300).max() < 5 * np.sqrt(1500 * .2 * .8)


def any_row(rows):
    return np.ones(len(rows), bool)


RNG = np.random.default_rng(0)
REFUSED = {
    "age": lambda pool: pool.age(0),
    "ordinal": lambda pool: pool.ordinal(0),
    "aged": lambda pool: pool.aged(0, 0),
    "newest": lambda pool: pool.newest(1),
    "shifted": lambda pool: pool.shifted(0, 1),
    "sizes": lambda pool: pool.sizes,
    "env_of": lambda pool: pool.env_of(0),
    "locate": lambda pool: pool.locate([0], [1]),
    "stretch": lambda pool: pool.stretch([0], 2, True),
    "begins": lambda pool: pool.begins([0]),
    "follows": lambda pool: pool.follows([0]),
    "oldest": lambda pool: pool.oldest([0]),
    "ended": lambda pool: pool.ended([1]),
    "whole_episodes": lambda pool: EpisodeSampler(pool).draw(RNG, 1),
    "ahead by 2 rows": lambda pool: pool.ahead([0], 2),
    "latest\\(counts\\)": lambda pool: fresh_and_replayed(pool, pool.written, RNG, .5, pool.uniform),
    "twin\\(ClosedRing\\)": lambda pool: pool.twin(ClosedRing),
}
USERS = {
    "sequences": lambda pool: SequenceSampler(pool, 2, 0, 1, False).draw(RNG, 1),
    "a tally": lambda pool: Tally(pool).count([0]),
    "priorities": lambda pool: Prioritised(pool, 1., .1).draw(RNG, 1, 0.),
    "a subset": lambda pool: subset(pool, pool.latest()),
    "a filter": lambda pool: filtered(pool, any_row),
    "a merger": lambda pool: merged(pool, pool),
    "lines": lambda pool: write_lines("/dev/null", pool),
}


def pool_of_rows():
    pool = Reservoir(4, 1, 0)
    for t in range(6):
        pool.add(Batch(name=np.array([t]), term=np.array([False]), trunc=np.array([False])))
    return pool


@pytest.mark.parametrize("what", REFUSED)
def test_reservoir_refuses_by_name_what_needs_neighbours(what):
    with pytest.raises(ValueError, match=f"^{what}: a Reservoir holds single rows"):
        REFUSED[what](pool_of_rows())


@pytest.mark.parametrize("who", USERS)
def test_whoever_needs_neighbours_is_told_by_a_reservoir(who):
    with pytest.raises(ValueError, match="need a Ring"):
        USERS[who](pool_of_rows())


def test_reservoir_knows_a_row_itself():
    assert same(pool_of_rows().ahead(np.array([2]), 1), (np.array([[2]]), np.array([[True]])))


def test_a_ring_has_no_method_that_a_reservoir_neither_has_nor_refuses():
    "Whoever teaches the ring something new must say what it means without order"
    public = {name for name in dir(Ring) if not name.startswith("_")}
    orderless = {"add", "added", "allocate", "claim", "ends", "extend", "gather", "latest", "nbytes", "restore", "rows",
                 "state", "twin", "uniform", "ahead", "read"}
    assert public - orderless == {what for what in REFUSED if what.isidentifier()}


@settings(max_examples=60, deadline=None)
@given(capacity=st.integers(1, 9), num_envs=st.integers(1, 3), before=st.integers(0, 20), after=st.integers(0, 20),
       seed=st.integers(0, 10**6), share=st.floats(.1, 1))
def test_every_fresh_row_comes_once_and_replayed_ones_besides(capacity, num_envs, before, after, seed, share):
    ring, lists = fill(capacity, num_envs, before + after, seed)
    late = []
    for rows in lists:
        late.append([name for name, _ in rows if name >= before * num_envs])
    counts = np.array([len(rows) for rows in late])
    want = [name for rows in late for name in rows[-capacity:]]
    rng = np.random.default_rng(seed)
    index = fresh_and_replayed(ring, counts, rng, share, ring.uniform)
    assert len(index) >= len(want)
    if want:
        assert names(ring, index[:len(want)]).tolist() == want
    else:
        assert len(index) == 0
    more = len(want) * (1 - share) / share
    assert len(index) - len(want) in (int(more), int(more) + 1)


def test_a_tally_counts_the_rows_of_stretches():
    ring, _ = fill(12, 1, 30, seed=1)
    tally = Tally(ring)
    drawn = tally.watch(SequenceSampler(ring, 3, 1, 1, False).draw)(np.random.default_rng(0), 20)
    assert tally.sampled == tally.hits.sum() == drawn.valid.sum()
    assert same(tally.hits, np.bincount(drawn.index[drawn.valid], minlength=12))


def test_a_carry_read_at_the_start_of_a_stretch_is_the_one_the_policy_had():
    "A counting network: its carry is the number of rows since the episode began; small whole numbers are exact"
    ring = Ring(40, 2)
    rng = np.random.default_rng(0)
    carry = np.zeros((2, 1), np.float32)
    for t in range(95):
        term = rng.random(2) < .1
        ring.add(Batch(carry=carry, term=term, trunc=np.zeros(2, bool)))
        carry = (carry + 1) * ~term[:, None]
    drawn = SequenceSampler(ring, 6, 3, 4, across=True).draw(rng, 200)
    stored = ring.gather(drawn.index).carry.squeeze(-1)
    counted = stored[0]
    for t in range(len(stored)):
        counted = np.where(drawn.first[t], 0, counted)
        at = drawn.valid[t]
        np.testing.assert_array_equal(counted[at], stored[t][at])
        counted = counted + 1
    assert ring.begins(drawn.index[drawn.first]).all()
