"""Frames stored once against a plain ring that stores every stack: equal rows at every wrap and every end."""
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from rlbench.buffers.buffers import Ring
from rlbench.buffers.frames import Frames
from rlbench.buffers.priorities import Prioritised
from rlbench.buffers.sequences import Sequences
from rlbench.core.batch import Batch
from rlbench.core.state import FileProblem, same, snapshot


class World:
    "Environments that hand out stacks, end at random and are sometimes busy resetting"
    def __init__(self, num_envs, stack, blank, seed, shape=(2,), p_end=.2, p_valid=.8):
        self.rng, self.n, self.k, self.blank, self.shape, self.p_end, self.p_valid = np.random.default_rng(seed), num_envs, stack, blank, shape, p_end, p_valid
        self.obs = np.stack([self.first() for _ in range(num_envs)])

    def frame(self): return self.rng.normal(size=self.shape).astype(np.float32)
    def first(self):
        frame = self.frame()
        old = np.zeros_like(frame) if self.blank else frame
        return np.stack([old] * (self.k - 1) + [frame])

    def step(self):
        valid = self.rng.random(self.n) < self.p_valid
        next_obs = np.stack([np.concatenate([o[1:], self.frame()[None]]) for o in self.obs])
        end = self.rng.random(self.n) < self.p_end
        term = end & (self.rng.random(self.n) < .5)
        row = Batch(obs=self.obs.copy(), next_obs=next_obs, act=self.rng.integers(5, size=self.n), term=term, trunc=end & ~term)
        for n in np.flatnonzero(valid): self.obs[n] = self.first() if end[n] else next_obs[n]
        return row, valid


worlds = given(capacity=st.integers(1, 8), num_envs=st.integers(1, 3), stack=st.integers(1, 5), blank=st.booleans(), steps=st.integers(1, 40), seed=st.integers(0, 10**6))


@settings(max_examples=150, deadline=None)
@worlds
def test_rows_equal_those_of_a_plain_ring(capacity, num_envs, stack, blank, steps, seed):
    world, plain, frames = World(num_envs, stack, blank, seed), Ring(capacity, num_envs), Frames(capacity, num_envs, stack, blank)
    for t in range(steps):
        row, valid = world.step()
        assert plain.add(row, valid) == frames.add(row, valid)
        if t % 5 and t < steps - 1 or not len(plain): continue
        at = plain.latest()
        # the first episode's start may be overwritten while its later rows are held: their older frames must still be there
        assert same(frames.gather(at, ("obs", "act", "next_obs")), plain.gather(at, ("obs", "act", "next_obs")))
        assert same(frames.latest(), at) and same(frames.number(at), plain.number(at))
        tails = frames.places["tail"][at]
        used = tails[tails >= 0].tolist()
        assert sorted([*used, *frames.free]) == list(range(len(frames.aside)))  # no place aside is lost, none is held twice
        assert len(used) <= int((frames.places["term"][at] | frames.places["trunc"][at]).sum()) + num_envs


@settings(max_examples=40, deadline=None)
@worlds
def test_a_restored_ring_of_frames_continues_to_the_bit(capacity, num_envs, stack, blank, steps, seed):
    world, frames, twin = World(num_envs, stack, blank, seed), Frames(capacity, num_envs, stack, blank), Frames(capacity, num_envs, stack, blank)
    for _ in range(steps): frames.add(*world.step())
    twin.restore(snapshot(frames.state()))
    assert same(twin.state(), frames.state())
    for _ in range(2 * capacity):
        row, valid = world.step()
        frames.add(row, valid), twin.add(row, valid)
    assert same(twin.state(), frames.state()) and same(twin.gather(twin.latest()), frames.gather(frames.latest()))


@settings(max_examples=40, deadline=None)
@worlds
def test_ahead_stretches_and_priorities_read_the_same_rows(capacity, num_envs, stack, blank, steps, seed):
    world, plain, frames = World(num_envs, stack, blank, seed), Ring(capacity, num_envs), Frames(capacity, num_envs, stack, blank)
    for _ in range(steps):
        row, valid = world.step()
        plain.add(row, valid), frames.add(row, valid)
    if not len(plain): return
    rng, chosen = np.random.default_rng(seed), Prioritised(frames, 1., .1)
    index, _ = chosen.draw(rng, 6, .4)
    assert same(frames.ahead(index, 3), plain.ahead(index, 3))
    ours, theirs = (Sequences(ring, 2, 1, 1, False).around(index) for ring in (frames, plain))
    assert same(ours, theirs)
    assert same(frames.gather(ours.index).obs[ours.valid], plain.gather(ours.index).obs[ours.valid])


def test_memory_is_that_of_the_bare_frames():
    "84 x 84 pixels, stacks of 4, 40 episodes: at most 5 % above one byte for each pixel that ever was seen and is still needed"
    world, frames = World(2, 4, True, 0, (84, 84), p_end=.05, p_valid=1.), Frames(300, 2, 4, True)
    for _ in range(700): frames.add(*world.step())
    ends = int((frames.rows.term | frames.rows.trunc).sum())
    bare = (600 + ends + 2) * 84 * 84 * 4                                       # float32
    assert ends > 10 and bare <= frames.nbytes <= 1.05 * bare
    assert frames.nbytes == sum(x.nbytes for x in (frames.frames, frames.aside, *frames.rows.values()))


def test_an_environment_that_was_put_elsewhere_keeps_its_true_next_frame():
    frames = Frames(9, 1, 2, True)
    def row(a, b, c, end=False): return Batch(obs=np.array([[[a], [b]]]), next_obs=np.array([[[b], [c]]]), term=np.array([end]), trunc=np.array([False]))
    for x in (row(0, 1, 2), row(1, 2, 3), row(0, 7, 8), row(7, 8, 9, True), row(0, 1, 2)): frames.add(x)
    rows = frames.gather(frames.latest())
    assert rows.next_obs[..., 1, 0].tolist() == [2, 3, 8, 9, 2] and rows.obs[..., 0].tolist() == [[0, 1], [1, 2], [0, 7], [7, 8], [0, 1]]


def test_the_wrong_padding_and_the_wrong_stack_are_refused():
    for blank in (True, False):
        world, frames = World(1, 3, blank, 0, p_end=.5), Frames(50, 1, 3, not blank)
        with pytest.raises(ValueError, match=f"try blank={blank}"):
            for _ in range(50): frames.add(*world.step())
    with pytest.raises(ValueError, match=r"stacks \(N, 3"): Frames(5, 1, 3, True).add(World(1, 4, True, 0).step()[0])
    with pytest.raises(FileProblem, match="stacks of 2"): Frames(5, 1, 3, True).restore(Frames(5, 1, 2, True).state())
