"""The sum tree against a plain array; priorities and tallies against a list that forgets as the ring does."""
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from rlbench.buffers import priorities
from rlbench.buffers.buffers import Ring
from rlbench.buffers.priorities import Prioritised, SumTree, Tally
from rlbench.core.batch import Batch
from rlbench.core.state import same, snapshot


def add(ring, rng, p_valid=1.):
    "One row; the reward is a number that no other row has -> which environments wrote"
    valid = rng.random(ring.num_envs) < p_valid
    ring.add(Batch(rew=ring.added * ring.num_envs + np.arange(ring.num_envs), term=np.zeros(ring.num_envs, bool)), valid)
    return valid


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 3000), changes=st.integers(0, 30), seed=st.integers(0, 10**6), top=st.sampled_from([16, 64, 4096]))
def test_tree_equals_a_plain_array(size, changes, seed, top):
    rng, plain = np.random.default_rng(seed), np.zeros(size)
    before, priorities.TOP = priorities.TOP, top                                # few rows, many levels
    try:
        tree = SumTree(size)
        for _ in range(changes):
            index = rng.integers(size, size=rng.integers(1, 40))
            value = rng.random(len(index)) ** 9 * 10. ** rng.integers(-8, 8) * (rng.random(len(index)) > .4)
            tree[index] = value
            plain[index] = value
        rebuilt = SumTree(size)
        rebuilt[np.arange(size)] = plain
    finally:
        priorities.TOP = before
    assert same(tree[np.arange(size)], plain) and same(tree.levels, rebuilt.levels)
    np.testing.assert_allclose(tree.total, plain.sum(), rtol=1e-12)
    if tree.total == 0:
        return
    mass = np.concatenate([rng.random(200) * tree.total, [0., tree.total, np.nextafter(tree.total, 0)], np.cumsum(plain)])
    mass = np.minimum(mass, tree.total)
    found, ends = tree.find(mass / tree.total), np.cumsum(plain)
    assert (plain[found] > 0).all()
    slack = 1e-12 * tree.total
    assert (mass <= ends[found] + slack).all() and (mass >= ends[found] - plain[found] - slack).all()


def test_nothing_drifts_and_empty_items_are_never_found():
    tree, rng = SumTree(5000), np.random.default_rng(0)
    for power in range(-300, 300, 4):                                           # 1e-300 … 1e296
        tree[rng.integers(5000, size=200)] = 10. ** power
        tree[rng.integers(5000, size=200)] = 0.
    held = tree[np.arange(5000)]
    for value in held[held > 1e200]:
        tree[np.flatnonzero(held == value)] = 0.                                # sums kept by differences would be left with rubbish
    held = tree[np.arange(5000)]
    np.testing.assert_allclose(tree.total, held.sum(), rtol=1e-12)
    assert (held[tree.find(rng.random(1000))] > 0).all()


@settings(max_examples=60, deadline=None)
@given(capacity=st.integers(1, 7), num_envs=st.integers(1, 3), seed=st.integers(0, 10**6), rounds=st.integers(1, 30), most=st.integers(1, 20))
def test_priorities_equal_a_dictionary_that_forgets(capacity, num_envs, seed, rounds, most):
    "Rows are named by their reward; rounds of up to `most` rows also lap the ring between two draws"
    rng, ring = np.random.default_rng(seed), Ring(capacity, num_envs)
    chosen, known, top = Prioritised(ring, alpha=.7, epsilon=.01), {}, 1.
    for _ in range(rounds):
        for _ in range(rng.integers(0, most)):
            add(ring, rng, p_valid=.7)
        if not len(ring):
            continue
        names = ring.rows.rew.reshape(-1)
        index, weight = chosen.draw(rng, 5, beta=.5)
        held = ring.latest()
        known = {names[i]: known.get(names[i], top) for i in held}
        want = np.zeros(capacity * num_envs)
        want[held] = [known[names[i]] for i in held]
        np.testing.assert_allclose(chosen.tree[np.arange(len(want))], want, rtol=1e-12)   # powers of an array and of a number differ in the last bit
        p = want[index]
        assert (p > 0).all() and weight.max() == 1 and weight.dtype == np.float32
        np.testing.assert_allclose(weight, (p / p.min()) ** -.5, rtol=1e-6)
        drawn = names[index].copy()
        for _ in range(rng.integers(0, 3)):
            add(ring, rng, p_valid=.7)                                          # some of the drawn rows may go before their errors come
        error = rng.normal(size=5) * 10
        chosen.update(index, error)
        for name, i, e in zip(drawn, index, error):
            if names[i] == name:
                known[name] = (abs(e) + .01) ** .7
                top = max(top, known[name])
        # a late error of a row that is gone must not count as the largest either


def test_draws_are_proportional_stratified_and_shuffled():
    ring, rng = Ring(100, 1), np.random.default_rng(0)
    for _ in range(100): add(ring, rng)
    chosen, errors = Prioritised(ring, alpha=1., epsilon=0.), np.arange(100.) % 7
    chosen.draw(rng, 1, 0.)
    chosen.update(np.arange(100), errors)
    index, weight = chosen.draw(rng, 50_000, beta=1.)
    counts = np.bincount(index, minlength=100)
    assert np.abs(counts - 50_000 * errors / errors.sum()).max() <= 2          # a stratum at each end is all that chance can move
    halves = counts - 2 * np.bincount(index[:25_000], minlength=100)
    assert np.abs(halves).max() < 8 * np.sqrt(counts.max())                     # both halves of the draw look alike
    np.testing.assert_allclose(weight, 1 / errors[index], rtol=1e-6)


def test_alpha_0_and_beta_0_are_uniform_replay():
    ring, rng = Ring(10, 2), np.random.default_rng(0)
    for _ in range(13): add(ring, rng)
    chosen = Prioritised(ring, alpha=0., epsilon=1e-6)
    chosen.draw(rng, 1, 0.)
    chosen.update(np.arange(20), rng.normal(size=20) * 100)
    index, weight = chosen.draw(rng, 20_000, 1.)
    assert (weight == 1).all() and np.abs(np.bincount(index) - 1000).max() <= 2


@pytest.mark.parametrize("index,error,found", [([0, 1], [1., np.inf], "1 of them not finite"), ([0], [1., 2.], r"expected \(1,\) finite errors")])
def test_bad_errors_are_refused(index, error, found):
    ring = Ring(4, 1)
    add(ring, np.random.default_rng(0))
    with pytest.raises(ValueError, match=found):
        Prioritised(ring, 1., .1).update(np.array(index), np.array(error))


@settings(max_examples=30, deadline=None)
@given(capacity=st.integers(1, 9), num_envs=st.integers(1, 3), steps=st.integers(0, 25), seed=st.integers(0, 10**6))
def test_what_is_attached_survives_a_snapshot(capacity, num_envs, steps, seed):
    def make():
        ring = Ring(capacity, num_envs)
        ring.attached.update(priorities=Prioritised(ring, .6, .01), tally=Tally(ring))
        return ring, ring.attached["tally"].watch(ring.attached["priorities"].draw)

    def go(ring, draw, rng):
        add(ring, rng, p_valid=.7)
        if len(ring):
            index, _ = draw(rng, 4, .4)
            ring.attached["priorities"].update(index, rng.normal(size=4))
    (ring, draw), rng = make(), np.random.default_rng(seed)
    for _ in range(steps): go(ring, draw, rng)
    twin, twin_draw = make()
    twin.restore(snapshot(ring.state()))
    assert same(twin.state(), ring.state())
    for r, d in ((ring, draw), (twin, twin_draw)):
        rng = np.random.default_rng(1)
        for _ in range(5): go(r, d, rng)
    assert same(twin.state(), ring.state())


@settings(max_examples=40, deadline=None)
@given(capacity=st.integers(1, 7), num_envs=st.integers(1, 3), seed=st.integers(0, 10**6), rounds=st.integers(1, 20), most=st.integers(1, 20))
def test_tally_equals_a_list_of_everything_drawn(capacity, num_envs, seed, rounds, most):
    rng, ring = np.random.default_rng(seed), Ring(capacity, num_envs)
    tally, hits = Tally(ring), {}
    draw = tally.watch(ring.uniform)
    ages = []
    for _ in range(rounds):
        for _ in range(rng.integers(0, most)):
            valid = add(ring, rng, p_valid=.7)
            hits |= {n: 0 for n in ((ring.added - valid.sum()) * num_envs + np.flatnonzero(valid)).tolist()}
        if len(ring):
            index = draw(rng, 6)
            for i in index: hits[int(ring.rows.rew.reshape(-1)[i])] += 1
            ages += [ring.latest().tolist()[::-1].index(i) if num_envs == 1 else int(ring.age(i)) for i in index]
    tally.catch_up()
    if not len(ring):
        return
    held = {int(n): i for i, n in zip(ring.latest(), ring.rows.rew.reshape(-1)[ring.latest()])}
    assert {n: int(tally.hits[i]) for n, i in held.items()} == {n: hits[n] for n in held}
    gone = [count for n, count in hits.items() if n not in held]
    assert same(tally.gone, np.bincount([count.bit_length() for count in gone], minlength=64))
    assert same(tally.ages, np.bincount([age.bit_length() for age in ages], minlength=64)) and tally.sampled == len(ages)
    assert f"{len(ages):,}" in repr(tally.report())
