"""Encoders for all observations; networks in torch and in numpy; heads against separate networks; chunks are steps."""
import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from rlbench.core.batch import Batch, each
from rlbench.core.spaces import Numbering, SpaceProblem, Spec, Stack, blank, cells, parts_of
from rlbench.core.state import same
from rlbench.core.words import ConfigError
from rlbench.policies.distributions import Beta, Product, SquashedGaussian
from rlbench.policies.encoders import Normaliser, encoder
from rlbench.policies.heads import Critics, Heads, NoisyLinear, QNet, Stream, expected, midpoints, redraw
from rlbench.policies.networks import MLP, NumpyMLP, Trunk, in_numpy, policy_net
from rlbench.policies.recurrent import CELLS, MemoryNet, OwnRecurrent, Recurrent, core, started, unroll
from rlbench.policies.tables import MOST, Table, check_finite
from rlbench.training.actor import NoiseStream
from rlbench.training.learner import FlatGroup
from rlbench.training.trainer import Trainer, load

spaces = gym.spaces
BOX = spaces.Box(-1, 1, (4,))
PICTURE = spaces.Box(0, 255, (84, 84, 3), np.uint8)
CELLS_PICTURE = spaces.Box(0, 255, (10, 12, 4), np.uint8)
ROBOT = spaces.Dict(
    eye=CELLS_PICTURE,
    room=spaces.Discrete(5, start=1),
    arm=spaces.Tuple([BOX, spaces.MultiBinary(2)]),
    action_mask=spaces.MultiBinary(3),
)
SIZES = [
    (spaces.Discrete(4), 4),
    (spaces.Discrete(4, start=-2), 4),
    (spaces.MultiDiscrete([2, 3]), 5),
    (spaces.MultiDiscrete([2, 3], start=[4, -1]), 5),
    (spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])), 14),
    (spaces.MultiBinary(3), 3),
    (spaces.MultiBinary([2, 3]), 6),
    (spaces.Box(-1, 1, ()), 1),
    (BOX, 4),
    (spaces.Box(-1, 1, (2, 3)), 6),
    (spaces.Box(-1, 1, (2, 3, 4)), 24),
    (spaces.Box(0, 255, (128,), np.uint8), 128),
    (spaces.Box(0, 9, (3, 3), np.int64), 9),
    (spaces.Box(0, 255, (4, 4, 3), np.uint8), 48),
    (PICTURE, 3136),
    (CELLS_PICTURE, 32 * 4 * 5),
    (Stack(spaces.Box(0, 255, (10, 12), np.uint8), 4), 32 * 4 * 5),
    (Stack(spaces.Box(0, 1, (10, 12, 2), bool), 2), 32 * 4 * 5),
    (Stack(spaces.Box(-1, 1, (3,)), 4), 12),
    (ROBOT, 32 * 4 * 5 + 5 + 4 + 2),
]


STACKS = [space for space, _ in SIZES if isinstance(space, Stack)]


@pytest.mark.parametrize("stack", STACKS, ids=str)
def test_stacked_pictures_have_no_moments_and_stacked_numbers_have(stack):
    if stack.shape == (4, 3):
        Normaliser(stack)
        return
    with pytest.raises(SpaceProblem, match="normalize_obs needs observations with numbers in a Box"):
        Normaliser(stack)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def observations(space, n, seed=0):
    "n random observations as tensors"
    parts = parts_of(space)
    if parts is not None:
        return Batch({name: observations(part, n, seed) for name, part in parts.items()})
    one = copy.deepcopy(space)
    one.seed(seed)
    return torch.from_numpy(np.stack([np.asarray(one.sample()) for _ in range(n)]))


# ---- encoders

@pytest.mark.parametrize("space,size", SIZES, ids=[str(i) for i in range(len(SIZES))])
def test_encoders_turn_every_space_into_floats_and_keep_what_tells_observations_apart(space, size):
    encode, said = encoder(space, generator())
    obs = observations(space, 6)
    out = encode(obs)
    assert out.shape == (6, size) and said == size
    assert out.dtype == torch.float32 and torch.isfinite(out).all()
    assert torch.allclose(encode(each(lambda x: x[2:3], obs)), out[2:3], atol=1e-6)
    assert encode(blank(space, 3)).shape == (3, size)
    assert encode(blank(space, 0)).shape == (0, size)
    with torch.no_grad():
        assert MLP(space, (8,), 2, 1., generator())(observations(space, 40)).shape == (40, 2)


def test_one_hot_vectors_count_from_start():
    assert encoder(spaces.Discrete(3, start=5))[0](torch.tensor([5, 7])).tolist() == [[1, 0, 0], [0, 0, 1]]
    encode, _ = encoder(spaces.MultiDiscrete([2, 3], start=[4, -1]))
    assert encode(torch.tensor([[5, -1], [4, 1]])).tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]
    for space in (spaces.Discrete(3, start=5), spaces.MultiDiscrete([2, 3], start=[4, -1])):
        assert space.contains(blank(space, 1)[0].numpy())


def test_the_mask_is_not_encoded_and_reaches_the_distribution():
    obs = observations(ROBOT, 5)
    obs.action_mask = torch.tensor([[1, 0, 0]]).expand(5, 3).to(torch.int8)
    for made in (encoder(ROBOT, generator())[0], Trunk(ROBOT, (8,), generator())):
        assert torch.equal(made(obs), made(Batch(obs, action_mask=1 - obs.action_mask)))
    policy = policy_net(ROBOT, spaces.Discrete(3), (8,), generator())
    assert policy(obs).probs.tolist() == [[1, 0, 0]] * 5
    loss = policy(obs).entropy().sum() + policy(obs).logp(torch.zeros(5)).sum()
    loss.backward()
    assert all(torch.isfinite(weight.grad).all() for weight in policy.parameters())
    with pytest.raises(ValueError, match="no action is allowed"):
        policy(Batch(obs, action_mask=obs.action_mask * 0))
    with pytest.raises(SpaceProblem, match="but Box.* has 0 actions"):
        policy_net(ROBOT, BOX, (8,), generator())


def test_pictures_go_through_the_nature_network_layer_by_layer():
    encode, _ = encoder(PICTURE, generator())
    obs = observations(PICTURE, 2)
    x = obs.permute(0, 3, 1, 2) / 255
    for layer, (size, stride) in zip(encode.layers, [(8, 4), (4, 2), (3, 1)]):
        assert layer.weight.shape[2:] == (size, size)
        x = nn.functional.conv2d(x, layer.weight, layer.bias, stride).relu()
    assert torch.allclose(encode(obs), x.flatten(1), atol=1e-6)
    assert [layer.out_channels for layer in encode.layers] == [32, 64, 64]


def test_which_picture_network_can_be_chosen():
    assert len(encoder(PICTURE, generator(), "small")[0].layers) == 2
    assert encoder(PICTURE, how="flat")[1] == 84 * 84 * 3
    assert encoder(spaces.Box(0, 1, (8, 8, 2)), generator(), "small")[1] == 288         # numbers, on demand
    with pytest.raises(SpaceProblem, match="nature network does not fit pictures of shape"):
        encoder(CELLS_PICTURE, generator(), "nature")
    with pytest.raises(SpaceProblem, match="channels first"):
        encoder(spaces.Box(0, 255, (4, 84, 84), np.uint8), generator())
    with pytest.raises(ValueError, match="expected auto, flat, nature, small"):
        encoder(BOX, how="resnet")


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, obs):
        return self.norm(obs)[:, :3]


def test_a_module_of_ones_own_is_the_encoder():
    own = Own()
    assert encoder(BOX, how=own) == (own, 3)
    assert own.training and own.norm.num_batches_tracked == 0               # trying it out left no trace
    net = MLP(BOX, (8,), 2, 1., generator(), encode=own)
    assert len(list(net.parameters())) == 6 and net(observations(BOX, 5)).shape == (5, 2)
    with pytest.raises(SpaceProblem, match=r"Identity turns .* expected \(2, features\)"):
        encoder(PICTURE, how=nn.Identity())


NO_ENCODER = [
    spaces.Text(3),
    spaces.Dict(action_mask=spaces.MultiBinary(2)),
    spaces.Dict(ok=BOX, bad=spaces.Text(2)),
    spaces.Sequence(BOX),
]


@pytest.mark.parametrize("space", NO_ENCODER)
def test_other_spaces_are_refused(space):
    with pytest.raises(SpaceProblem, match="no encoder for the observation space"):
        encoder(space, generator())


def networks(space, seed):
    "One of every kind"
    rng = generator(seed)
    return nn.ModuleList([
        MLP(space, (8,), 2, 1., rng),
        QNet(space, (8, 8), 3, rng, dueling=True, sigma=.5),
        Critics(space, BOX, (8,), rng, heads=2),
        MemoryNet(space, (8,), 4, dict(a=(2, 1.)), rng),
    ])


@pytest.mark.parametrize("space", [BOX, ROBOT, PICTURE])
def test_equal_generators_give_equal_networks_and_global_ones_are_left_alone(space):
    before = torch.get_rng_state()
    one = networks(space, 0)
    two = networks(space, 0)
    other = networks(space, 1)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters()))
    assert any(not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters()))


# ---- evaluated by numpy: other sums in another order, so equal to rounding

HALF_SEEN = spaces.Dict(seen=BOX, room=spaces.Discrete(5))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([BOX, HALF_SEEN]), st.sampled_from(["tanh", "relu"]), st.integers(1, 40), st.integers(0, 3),
       st.integers(0, 10**6))
def test_numpy_says_what_torch_says(space, activation, rows, layers, seed):
    obs = observations(space, rows, seed)
    hidden = (16,) * layers
    with torch.no_grad():
        whole = MLP(space, hidden, 3, 1., generator(seed), activation)
        trunk = Trunk(space, hidden, generator(seed), activation)
        for net in (whole, trunk):
            quick = in_numpy(net)
            assert isinstance(quick, NumpyMLP) and quick(obs).dtype == torch.float32
            assert torch.allclose(quick(obs), net(obs), rtol=1e-5, atol=1e-6)


def test_numpy_follows_the_weights_wherever_they_go():
    net = MLP(BOX, (8,), 2, 1., generator())
    quick = in_numpy(net)
    obs = observations(BOX, 5)
    with torch.no_grad():
        before = quick(obs)
        net.layers[0].weight.mul_(2)                                        # written in place
        assert not torch.allclose(quick(obs), before)
        assert torch.allclose(quick(obs), net(obs), atol=1e-6)

        group = FlatGroup(net.parameters(), torch.optim.SGD)                # moved to another place
        group.vector.mul_(2)
        assert torch.allclose(quick(obs), net(obs), atol=1e-6)

        net.load_state_dict(MLP(BOX, (8,), 2, 1., generator(1)).state_dict())
        assert torch.allclose(quick(obs), net(obs), atol=1e-6)


def test_only_perceptrons_are_evaluated_by_numpy_and_all_weights_are_shared():
    class Bent(MLP):
        "A subclass may do anything, so it is left alone"
        def forward(self, obs):
            return super().forward(obs) + 1

    nets = nn.ModuleDict(dict(
        policy=policy_net(ROBOT, spaces.Discrete(3), (8,), generator()),
        bent=Bent(BOX, (8,), 2, 1., generator()),
        memory=MemoryNet(BOX, (8,), 4, dict(a=(2, 1.)), generator()),
    ))
    quick = in_numpy(nets)
    assert isinstance(quick.policy.net, NumpyMLP) and isinstance(quick.memory.trunk, NumpyMLP)
    assert quick.bent(observations(BOX, 3)).shape == (3, 2) and not isinstance(quick.bent, NumpyMLP)
    assert isinstance(nets.policy.net, MLP)                                 # the original is as it was
    mine = {id(weight) for weight in nets.parameters()}
    assert {id(weight) for weight in quick.parameters()} == mine

    obs = observations(ROBOT, 6)
    obs.action_mask[:] = 1
    seen = observations(BOX, 6)
    with torch.no_grad():
        assert torch.allclose(quick.policy(obs).logits, nets.policy(obs).logits, atol=1e-6)
        slow, carry = nets.memory.step(seen, nets.memory.initial(6))
        fast, after = quick.memory.step(seen, quick.memory.initial(6))
    assert torch.allclose(fast.a, slow.a, atol=1e-6) and torch.allclose(after, carry, atol=1e-6)


# ---- policies

GO_AND_STEER = spaces.Dict(go=spaces.Discrete(3), steer=spaces.Box(-2, 2, (2,)))


@pytest.mark.parametrize("box,kind", [("squashed", SquashedGaussian), ("beta", Beta)])
def test_policies_of_every_kind(box, kind):
    policy = policy_net(BOX, GO_AND_STEER, (8,), generator(), box=box)
    pi = policy(observations(BOX, 6))
    act = pi.sample(NoiseStream(np.random.default_rng(0), "cpu")(policy.head.noise, 6))
    assert isinstance(pi, Product) and isinstance(pi.parts["steer"], kind)
    assert act.steer.abs().max() <= 2 and pi.logp(act).shape == (6,)


def test_the_spread_of_a_gaussian_is_a_free_parameter():
    policy = policy_net(BOX, GO_AND_STEER, (8,), generator())
    [log_std] = [weight for name, weight in policy.named_parameters() if name.endswith("log_std")]
    pi = policy(observations(BOX, 6))
    assert log_std.shape == (2,) and pi.parts["steer"].log_std.shape == (6, 2)
    pi.entropy().sum().backward()
    assert (log_std.grad == 6).all()


# ---- tables

FINITE = [
    spaces.Discrete(5),
    spaces.Discrete(5, start=-2),
    spaces.MultiDiscrete([2, 3, 2]),
    spaces.MultiDiscrete([[2, 3], [1, 4]], start=[[4, -1], [0, 7]]),
    spaces.MultiBinary(3),
    spaces.MultiBinary([2, 2]),
    spaces.Tuple([spaces.Discrete(3), spaces.Discrete(4), spaces.Discrete(2)]),
    spaces.Dict(
        b=spaces.Discrete(3, start=1),
        a=spaces.Tuple([spaces.MultiBinary(2), spaces.Dict(deep=spaces.MultiDiscrete([3, 2]))]),
        action_mask=spaces.MultiBinary(2),
    ),
]


def every_array(sizes, start, shape):
    "All arrays of digits of these sizes"
    return np.stack([start + np.reshape(digits, shape) for digits in np.ndindex(*sizes)])


def everything(space):
    "All observations of a finite space as one batch, in the order of their digits; masks are blank"
    if isinstance(space, spaces.Discrete):
        return torch.arange(space.n) + int(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return torch.from_numpy(every_array(space.nvec.reshape(-1), space.start, space.nvec.shape))
    if isinstance(space, spaces.MultiBinary):
        return torch.from_numpy(every_array([2] * np.prod(space.shape), 0, space.shape).astype(np.int8))
    made = {}
    sizes = []
    for name, part in parts_of(space).items():
        masks = name == "action_mask"
        made[name] = blank(part, 1) if masks else everything(part)
        sizes.append(torch.arange(1 if masks else cells(part)))
    places = torch.cartesian_prod(*sizes).reshape(-1, len(sizes))
    return Batch({name: each(lambda x: x[at], part) for (name, part), at in zip(made.items(), places.unbind(1))})


@pytest.mark.parametrize("space", FINITE, ids=[str(i) for i in range(len(FINITE))])
def test_every_observation_of_a_finite_space_has_a_row_of_its_own(space):
    obs = everything(space)
    row = Numbering(space)
    assert row(obs).tolist() == list(range(cells(space)))
    some = observations(space, 7)
    assert row(some).dtype == torch.int64
    assert ((0 <= row(some)) & (row(some) < cells(space))).all()
    assert row(obs[:0]).shape == (0,)

    table = Table(space, 3, 2.)
    assert table.values.shape == (cells(space), 3) and table(obs).shape == (cells(space), 3)
    assert not list(table.parameters()) and "values" in table.state_dict()
    assert check_finite("x", Spec(space, spaces.Discrete(3), 1)) == (cells(space), 3)


@pytest.mark.parametrize("space", FINITE, ids=[str(i) for i in range(len(FINITE))])
def test_every_pair_has_a_cell_of_its_own_and_reads_its_own_number(space):
    table = Table(space, 3, 0.)
    table.values[:] = torch.arange(cells(space) * 3).view(-1, 3)
    obs = everything(space)
    for a in range(3):
        act = torch.full((cells(space),), a)
        assert table.cell(obs, act).tolist() == list(range(a, 3 * cells(space), 3))
        assert torch.equal(table.of(obs, act), table(obs)[:, a])
        assert torch.equal(table.of(obs, act).long(), table.cell(obs, act))


def test_numbers_are_numpys():
    sizes = (3, 4, 2)
    rng = np.random.default_rng(0)
    digits = np.stack([rng.integers(n, size=9) for n in sizes], 1)
    want = np.ravel_multi_index(digits.T, sizes).tolist()
    obs = torch.from_numpy(digits)
    assert Numbering(spaces.MultiDiscrete(sizes))(obs).tolist() == want
    parts = Batch({str(i): obs[:, i] for i in range(3)})
    assert Numbering(spaces.Tuple([spaces.Discrete(n) for n in sizes]))(parts).tolist() == want


UNCOUNTABLE = [
    (BOX, "the observation is Box"),
    (spaces.Dict(arm=ROBOT["arm"]), "the observation's part 'arm''s part '0' is Box"),
    (spaces.Dict(action_mask=spaces.MultiBinary(2)), "is Dict"),
    (spaces.Text(3), "is Text"),
    (spaces.Tuple([spaces.Discrete(2), spaces.Sequence(spaces.Discrete(2))]), "part '1' is Sequence"),
]


@pytest.mark.parametrize("space,words", UNCOUNTABLE, ids=[words for _, words in UNCOUNTABLE])
def test_what_cannot_be_counted_is_refused_by_name(space, words):
    with pytest.raises(SpaceProblem, match=words):
        cells(space)


def test_what_no_table_holds_is_refused_by_name():
    with pytest.raises(SpaceProblem, match="expected at most 10,000,000"):
        Table(spaces.MultiBinary(10_000), 2, 0.)
    with pytest.raises(SpaceProblem, match="10\\^7 cells"):
        Table(MOST // 2 + 1, 2, 0.)
    with pytest.raises(SpaceProblem, match="alg keeps a table: the observation is Box.*dqn"):
        check_finite("alg", Spec(BOX, spaces.Discrete(2), 1))
    with pytest.raises(SpaceProblem, match="alg keeps a table and needs Discrete actions"):
        check_finite("alg", Spec(spaces.Discrete(2), BOX, 1))


# ---- heads

def noise_for(net, rows, seed=0):
    "Standard normal numbers, a row for each observation"
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.standard_normal((rows, sum(net.noise_sizes)), np.float32))


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("parts", [None, 7])
@pytest.mark.parametrize("sigma", [None, .5])
def test_all_options_of_the_value_network_compose(dueling, parts, sigma):
    net = QNet(BOX, (16, 8), 3, generator(), parts=parts, dueling=dueling, sigma=sigma)
    obs, shape = observations(BOX, 5), (5, 3) if parts is None else (5, 3, parts)
    assert net(obs).shape == shape
    if dueling:
        val = net.streams["val"](net.trunk(obs))
        mean = net(obs).mean(1)
        assert torch.allclose(mean, val if parts else val[:, 0], atol=1e-6)
    if sigma:
        noise = noise_for(net, 5)
        rows = torch.cat([net(obs[i:i + 1], noise[i]) for i in range(5)])
        assert torch.allclose(net(obs, noise), rows, atol=1e-5)             # every row under its own noise
    else:
        assert sum(net.noise_sizes) == 0
        assert torch.equal(net(obs, noise_for(net, 5)), net(obs))
    net(obs).square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters())


def test_a_stream_is_its_layers_one_after_the_other():
    stream, x = Stream((4, 8, 3), generator(), "tanh", sigma=.5), observations(BOX, 5)
    noise = noise_for(stream, 5)
    first, last = stream.layers
    by_hand = last(first(x, noise[:, :12]).tanh(), noise[:, 12:])
    assert stream.noise_sizes == [12, 11] and torch.equal(stream(x, noise), by_hand)


def test_a_noisy_layer_has_the_deviation_it_says():
    layer, x = NoisyLinear(20, 3, generator(), sigma=.5), torch.ones(1, 20)
    noise = torch.from_numpy(np.random.default_rng(0).standard_normal((20_000, 23), np.float32))
    out = layer(x.expand(20_000, 20), noise)
    # Var y = sigma^2 / p * E|e| * sum_i (E|e_i| + its covariances, which vanish) + the same for the bias
    mean_abs = (2 / np.pi)**.5
    assert torch.allclose(out.mean(0), layer(x)[0], atol=.02)
    assert torch.allclose(out.var(0), torch.tensor(.25 / 20 * mean_abs * (20 * mean_abs + 1)), rtol=.06)


def test_noise_can_be_kept_and_is_saved_with_the_weights():
    net, obs = QNet(BOX, (16, 8), 3, generator(), sigma=.5), observations(BOX, 5)
    quiet = net(obs)
    redraw(net, np.random.default_rng(3))
    kept, twin = net(obs), QNet(BOX, (16, 8), 3, generator(9), sigma=.5)
    twin.load_state_dict(net.state_dict())
    assert torch.equal(twin(obs), kept) and not torch.allclose(kept, quiet)
    redraw(twin, np.random.default_rng(4))
    assert not torch.allclose(twin(obs), kept)
    redraw(twin, np.random.default_rng(3))
    assert torch.equal(twin(obs), kept)
    redraw(twin, None)
    assert torch.equal(twin(obs), quiet)


def test_means_of_distributions():
    logits = torch.randn(4, 3, 5, generator=generator())
    atoms = torch.linspace(-2, 2, 5)
    assert torch.allclose(expected(logits, atoms), (logits.softmax(-1) * atoms).sum(-1), atol=1e-6)
    assert midpoints(2).tolist() == [.25, .75]


@pytest.mark.parametrize("action_space", [BOX, spaces.Discrete(3), spaces.Dict(go=spaces.Discrete(3), steer=BOX)])
@pytest.mark.parametrize("heads", [1, 2, 5])
def test_critics_are_separate_networks_computed_at_once(heads, action_space):
    net = Critics(BOX, action_space, (16, 8), generator(), heads=heads)
    obs, act = observations(BOX, 6), observations(action_space, 6)
    out = net(obs, act)
    assert out.shape == (6, heads)
    x = torch.cat([net.encode(obs), net.encode_act(act)], -1)
    for k in range(heads):
        one = x
        for i, (w, b) in enumerate(zip(net.weights, net.biases)):
            one = nn.functional.linear(one.relu() if i else one, w[k], b[k, 0])
        assert torch.allclose(out[:, k], one[:, 0], atol=1e-5)
    out[:, 0].sum().backward()
    assert all(p.grad[1:].abs().sum() == 0 for p in net.parameters())       # a head's loss moves no other head
    assert net.weights[0].grad[0].abs().sum() > 0


def test_heads_share_a_trunk_or_not():
    obs, outputs = observations(BOX, 5), dict(logits=(3, .01), val=(1, 1.))
    for shared in (True, False):
        net = Heads(BOX, (8,), outputs, generator(), shared)
        out = net(obs)
        assert list(out) == ["logits", "val"] and out.logits.shape == (5, 3) and out.logits.abs().max() < .1
        out.val.sum().backward()
        moved = [p.grad is not None and bool(p.grad.abs().sum() > 0) for p in net.ends["logits"].parameters()]
        assert not any(moved) and (not shared or net.trunk.layers[0].weight.grad.abs().sum() > 0)


HEADS = {
    "plain": lambda: QNet(BOX, (16, 8), 3, generator()),
    "rainbow": lambda: QNet(BOX, (16, 8), 3, generator(), parts=7, dueling=True, sigma=.5),
    "critics": lambda: Critics(BOX, BOX, (16, 8), generator(), heads=3),
    "shared": lambda: Heads(BOX, (8,), dict(val=(1, 1.)), generator(), shared=True),
    "apart": lambda: Heads(BOX, (8,), dict(val=(1, 1.)), generator(), shared=False),
}


def said(net, obs):
    "What a network of HEADS says, as a tensor"
    out = net(obs, obs) if isinstance(net, Critics) else net(obs)
    return out.val if isinstance(net, Heads) else out


@pytest.mark.parametrize("name", HEADS)
def test_heads_go_to_another_process(name):
    net, obs = HEADS[name](), observations(BOX, 40)
    redraw(net, np.random.default_rng(0))
    assert torch.equal(said(pickle.loads(pickle.dumps(net)), obs), said(net, obs))


@pytest.mark.parametrize("name", ["plain", "rainbow", "critics", "shared"])
def test_heads_make_nothing_on_another_device(name):
    "The meta device has shapes and no numbers, and refuses to be mixed with ordinary tensors"
    net = HEADS[name]().to("meta")
    redraw(net, np.random.default_rng(0))
    assert said(net, observations(BOX, 5).to("meta")).device.type == "meta"


def test_distributions_are_made_where_they_are_wanted():
    assert midpoints(5, device="meta").device.type == "meta"
    assert expected(torch.empty(2, 3, 5, device="meta"), torch.empty(5, device="meta")).device.type == "meta"


# ---- memory

@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(CELLS)), st.integers(1, 12), st.integers(1, 4), st.floats(0, 1), st.integers(0, 10**6))
def test_a_chunk_equals_its_steps_however_it_is_cut(kind, steps, rows, p, seed):
    rng = generator(seed)
    net = Recurrent(3, 5, rng, kind)
    x = torch.randn(steps, rows, 3, generator=rng)
    first = torch.rand(steps, rows, generator=rng) < p
    start = torch.randn(rows, net.carry_size, generator=rng)

    whole, last = net(x, start, first)
    stepped, after = unroll(net.step, x, start, first)
    assert torch.allclose(whole, stepped, atol=1e-6)
    assert torch.allclose(last, after, atol=1e-6)

    half = steps // 2
    if half:
        one, carry = net(x[:half], start, first[:half])
        two, carry = net(x[half:], carry, first[half:])
        assert torch.allclose(torch.cat([one, two]), whole, atol=1e-6)
        assert torch.allclose(carry, last, atol=1e-6)
    for b in range(rows):   # rows do not see one another
        alone, _ = net(x[:, b:b + 1], start[b:b + 1], first[:, b:b + 1])
        assert torch.allclose(alone[:, 0], whole[:, b], atol=1e-6)


@pytest.mark.parametrize("kind", CELLS)
def test_nothing_passes_a_reset_neither_numbers_nor_gradients(kind):
    net = Recurrent(3, 5, generator(), kind)
    x = torch.randn(6, 2, 3, generator=generator(1), requires_grad=True)
    first = torch.zeros(6, 2, dtype=torch.bool)
    first[4, 0] = True
    start = torch.full((2, net.carry_size), torch.nan)
    start[1] = 0
    at_once = (torch.arange(6) == 0)[:, None]
    out, _ = net(x, start, first | at_once)     # a carry that is no number is forgotten, too
    assert torch.isfinite(out).all()

    out, _ = net(x, net.initial(2), first)
    grad, = torch.autograd.grad(out[5].sum(), x)
    assert (grad[:4, 0] == 0).all()
    assert (grad[4:, 0] != 0).any()
    assert (grad[:4, 1] != 0).any()


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("space", [BOX, spaces.Dict(a=BOX, b=spaces.Tuple([spaces.Discrete(3)]))])
def test_acting_step_by_step_is_learning_on_the_chunk(kind, space):
    net = MemoryNet(space, (8,), 6, dict(logits=(3, 1.), val=(1, 1.)), generator(), kind)
    obs = each(lambda x: x.unflatten(0, (5, 4)), observations(space, 20))
    first = torch.rand(5, 4, generator=generator(2)) < .3
    chunk, last = net(obs, net.initial(4), first)
    carry = net.initial(4)
    for t in range(5):
        out, carry = net.step(each(lambda x: x[t], obs), started(carry, first[t]))
        for name in out:
            assert torch.allclose(out[name], chunk[name][t], atol=1e-6)
    assert torch.allclose(carry, last, atol=1e-6)


@pytest.mark.parametrize("kind", CELLS)
def test_recurrent_networks_follow_a_flattened_vector_and_a_saved_state(kind):
    "The learner keeps all weights as one vector; torch's GRU must read from there"
    net = Recurrent(3, 5, generator(), kind)
    x = torch.randn(4, 2, 3, generator=generator(1))
    first = torch.zeros(4, 2, dtype=torch.bool)
    before = net(x, net.initial(2), first)[0]
    group = FlatGroup(net.parameters(), torch.optim.SGD)
    assert torch.allclose(net(x, net.initial(2), first)[0], before, atol=1e-6)
    with torch.no_grad():
        group.vector.mul_(.5)
    halved = net(x, net.initial(2), first)[0]
    assert not torch.allclose(halved, before)

    group.pace(lr=.1, max_grad_norm=None)
    assert group.step(halved.sum(), {}) > 0
    after = net(x, net.initial(2), first)[0]
    assert after.sum() < halved.sum()
    for twin in (copy.deepcopy(net), Recurrent(3, 5, generator(7), kind)):
        twin.load_state_dict(net.state_dict())
        assert torch.equal(twin(x, net.initial(2), first)[0], after)


class Elsewhere(TorchDispatchMode):
    "Refuses to make tensors that are not on the meta device"
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **kwargs or {})
        for one in out if isinstance(out, (tuple, list)) else [out]:
            assert not isinstance(one, torch.Tensor) or one.is_meta, f"{func} gives a tensor on {one.device}"
        return out


def test_making_a_tensor_elsewhere_would_be_found():
    with Elsewhere(), pytest.raises(AssertionError, match="on cpu"):
        torch.zeros(3)


@pytest.mark.parametrize("kind", CELLS)
def test_memory_makes_its_tensors_where_its_weights_are(kind):
    net = MemoryNet(BOX, (8,), 6, dict(val=(1, 1.)), generator(), kind).to("meta")
    first = torch.zeros(4, dtype=torch.bool, device="meta")
    with Elsewhere():
        carry = net.initial(4)
        out, after = net.step(torch.zeros(4, 4, device="meta"), started(carry, first))
        run, last = net.memory.run(torch.zeros(5, 4, 8, device="meta"), carry)
    assert carry.device == out.val.device == after.device == run.device == last.device == first.device


@pytest.mark.parametrize("kind", CELLS)
def test_a_chunk_is_learned_where_its_tensors_are(kind):
    "Whatever is made without saying where would land on the default device, and could not be mixed with the rest"
    net = MemoryNet(BOX, (8,), 6, dict(val=(1, 1.)), generator(), kind)
    obs = torch.randn(5, 3, 4, generator=generator(1))
    first = torch.rand(5, 3, generator=generator(2)) < .3
    here, carry = net(obs, net.initial(3), first)
    with torch.device("meta"):
        there, after = net(obs, net.initial(3), first)
    assert torch.equal(here.val, there.val)
    assert torch.equal(carry, after)


@pytest.mark.parametrize("kind", CELLS)
def test_a_network_with_a_memory_pickles(kind):
    net = MemoryNet(BOX, (8,), 6, dict(val=(1, 1.)), generator(), kind)
    obs = torch.randn(5, 3, 4, generator=generator(1))
    first = torch.rand(5, 3, generator=generator(2)) < .3
    twin = pickle.loads(pickle.dumps(net))
    assert torch.equal(twin(obs, twin.initial(3), first)[0].val, net(obs, net.initial(3), first)[0].val)


def test_the_carry_has_the_weights_kind_of_number():
    assert Recurrent(3, 5, generator(), "lstm").double().initial(2).dtype == torch.float64


def test_an_unknown_kind_of_memory_is_refused():
    with pytest.raises(ValueError, match="Recurrent: kind 'rnn'; expected one of gru, lstm"):
        Recurrent(3, 5, generator(), "rnn")


class OwnGRU(nn.Module):
    "torch's own cell, filed as somebody's core"

    def __init__(self, inputs, units, generator):
        super().__init__()
        self.cell = nn.GRUCell(inputs, units)
        self.carry_size = units
        for weight in self.cell.parameters():
            nn.init.uniform_(weight, -.3, .3, generator=generator)

    def forward(self, x, carry):
        carry = self.cell(x, carry)
        return carry, carry


def test_a_core_of_ones_own_remembers_as_torchs_does():
    core("own_gru")(OwnGRU)
    own = OwnRecurrent(3, 5, generator(), "own_gru")
    theirs = Recurrent(3, 5, generator(), "gru")
    for name, weight in own.core.cell.named_parameters():
        getattr(theirs.core, f"{name}_l0").data.copy_(weight)
    x = torch.randn(7, 4, 3, generator=generator(1))
    first = torch.rand(7, 4, generator=generator(2)) < .3
    (said, kept), (same_said, same_kept) = (net(x, net.initial(4), first) for net in (own, theirs))
    torch.testing.assert_close(said, same_said)
    torch.testing.assert_close(kept, same_kept)


@pytest.mark.parametrize("algo", ["r2d2", "recurrent_ppo"])
def test_a_core_of_ones_own_by_one_setting(algo, tmp_path):
    core("own_gru")(OwnGRU)
    small = dict(r2d2=dict(learning_starts=64, batch_size=4), recurrent_ppo=dict(n_steps=16, batch_size=32))[algo]
    trainer = Trainer("rlbench/StatelessCartPole-v0", algo, seed=0, num_envs=2, cell="own_gru", memory_size=8, **small)
    trainer.until("update", 3)
    trainer.save(tmp_path / "run.rlb")
    other = load(tmp_path / "run.rlb")
    for run in (trainer, other): run.until("update", 3)
    assert same(trainer.snapshot(), other.snapshot())
    assert any("core.cell" in name for name in trainer.learner.nets.state_dict())


@pytest.mark.parametrize("build, told", [
    (lambda inputs, units, generator: 3, "it is a int; expected a torch.nn.Module"),
    (lambda inputs, units, generator: nn.Linear(inputs, units), "its carry_size is None"),
    (lambda inputs, units, generator: OwnGRU(inputs, units + 1, generator), r"\[0\] is Tensor torch.float32 \(8, 9\)"),
    (lambda inputs, units, generator: OwnGRU(inputs + 1, units, generator), "core 'bad' of .*RuntimeError"),
])
def test_what_is_no_core_is_refused(build, told):
    core("bad")(build)
    with pytest.raises(ConfigError, match=told):
        Trainer("rlbench/StatelessCartPole-v0", "recurrent_ppo", cell="bad", memory_size=8)


class PlainGRU(OwnGRU):
    "The same, by the first weights that torch draws"

    def __init__(self, inputs, units, generator):
        nn.Module.__init__(self)
        self.cell = nn.GRUCell(inputs, units)
        self.carry_size = units


def remembering(algo, cell, **settings):
    "A run with a core of one's own"
    small = dict(r2d2=dict(learning_starts=64, batch_size=4), recurrent_ppo=dict(n_steps=16, batch_size=32))[algo]
    return Trainer("rlbench/StatelessCartPole-v0", algo, seed=0, num_envs=2, cell=cell, memory_size=8,
                   **small, **settings)


@pytest.mark.parametrize("algo", ["r2d2", "recurrent_ppo"])
def test_first_weights_of_a_core_come_from_the_seed(algo):
    core("plain_gru")(PlainGRU)
    before = torch.get_rng_state()
    trainer = remembering(algo, "plain_gru")
    twins = [remembering(algo, "plain_gru"), trainer.fresh(), trainer]
    for twin in twins: twin.until("update", 2)
    assert len({twin.digest() for twin in twins}) == 1
    assert torch.equal(before, torch.get_rng_state())


class Odd(OwnGRU):
    "A core with a fault"

    def __init__(self, fault, inputs, units):
        super().__init__(inputs, units, None)
        self.fault = fault
        self.norm = nn.BatchNorm1d(units).requires_grad_(fault == "norm")
        self.spare = nn.Linear(units, units).requires_grad_(fault == "spare")
        if fault == "double": self.double()

    def forward(self, x, carry):
        if self.fault == "others": x = x - x.mean(0)
        if self.fault == "in place": carry += 1
        output, carry = super().forward(x, carry)
        if self.fault == "chance": output = nn.functional.dropout(output)
        if self.fault == "norm": output = self.norm(output)
        return output, carry


@pytest.mark.parametrize("algo", ["r2d2", "recurrent_ppo"])
@pytest.mark.parametrize("fault, told", [
    ("others", "depends on the rows beside it"),
    ("in place", "or changes what it is shown"),
    ("chance", "differs from call to call"),
    ("norm", "differs from call to call"),
    ("spare", "does not depend on spare.weight, spare.bias"),
    ("double", "core 'odd' of .*RuntimeError.*dtype"),
])
def test_a_core_that_could_not_be_taken_again_is_refused(algo, fault, told):
    core("odd")(lambda inputs, units, generator: Odd(fault, inputs, units))
    with pytest.raises(ConfigError, match=told):
        remembering(algo, "odd")
    core("odd")(lambda inputs, units, generator: Odd("", inputs, units))
    remembering(algo, "odd").until("update", 1)


class Averaging(nn.Module):
    "A core in which nothing is learned"
    carry_size = 8

    def __init__(self, inputs, units, generator):
        super().__init__()

    def forward(self, x, carry):
        carry = .9 * carry + .1 * x[:, :8]
        return torch.cat([carry, x[:, 8:]], -1)[:, :8], carry


@pytest.mark.parametrize("algo", ["r2d2", "recurrent_ppo"])
def test_a_core_may_have_no_weights(algo, tmp_path):
    core("averaging")(Averaging)
    trainer = remembering(algo, "averaging", hidden=(8,))
    trainer.until("update", 2)
    trainer.save(tmp_path / "run.rlb")
    other = load(tmp_path / "run.rlb")
    for run in (trainer, other):
        run.until("update", 2)
    assert trainer.digest() == other.digest()


@pytest.mark.parametrize("name", ["lstn", "gru2", ""])
def test_an_unknown_core_names_the_nearest(name):
    with pytest.raises(ConfigError, match="unknown core .*rlbench.policies.recurrent.core"):
        Trainer("rlbench/StatelessCartPole-v0", "r2d2", cell=name)
