"Gradient steps reach the networks that act, whatever was done to them; and every group goes its own way"
import math
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from rlbench.algos.algorithm import Algorithm
from rlbench.buffers.ring import Ring
from rlbench.core.batch import Batch
from rlbench.core.settings import hp
from rlbench.core.spaces import AGENT, Spec
from rlbench.core.state import same, snapshot
from rlbench.policies.distributions import Noise
from rlbench.training.actor import Actor
from rlbench.training.learner import FlatGroup, Group, Learner
from rlbench.training.trainer import Trainer
from tests.cases import differs

SMALL = dict(hidden=(8,), batch_size=8, log_every=10_000)
RUNS = dict(
    ppo=("CartPole-v1", dict(n_steps=8, n_epochs=4, normalize_reward=False)),   # statistics are float64, until moved
    dqn=("CartPole-v1", dict(learning_starts=10, epsilon=0.)),
    sac=("Pendulum-v1", dict(learning_starts=10)),
)


def running(name):
    "A trainer that has just taken its first step on a minibatch"
    env, settings = RUNS[name]
    trainer = Trainer(env, name, **SMALL, **settings)
    trainer.until("update")
    return trainer


def weights_of(learner):
    "A copy of everything that is trained or remembered in the networks"
    return snapshot(learner.nets.state_dict())


# ---- what may be done to a module

def new_memory(nets):
    for parameter in nets.parameters():
        parameter.data = parameter.data.clone()


def new_memory_in_part(nets):
    parameter = next(nets.parameters())
    parameter.data = parameter.data.clone()


def gradients_of_ones(nets):
    for parameter in nets.parameters():
        parameter.grad = torch.ones_like(parameter)


HARMLESS = dict(
    zero_grad=lambda nets: nets.zero_grad(),
    zero_grad_in_place=lambda nets: nets.zero_grad(set_to_none=False),
    gradients_of_ones=gradients_of_ones,
    new_memory=new_memory,
    new_memory_in_part=new_memory_in_part,
    applied=lambda nets: nets._apply(torch.clone),          # what Module.to does where a device changes
    to_the_same=lambda nets: nets.to("cpu", torch.float32),
    to_float64_and_back=lambda nets: nets.to(torch.float64).to(torch.float32),
    loaded=lambda nets: nets.load_state_dict(snapshot(nets.state_dict())),
)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("what", HARMLESS)
def test_training_goes_on_as_if_nothing_had_been_done(name, what):
    touched = running(name)
    plain = running(name)
    HARMLESS[what](touched.learner.nets)
    before = weights_of(touched.learner)
    for trainer in (touched, plain):
        trainer.until("update", 5)
    assert not same(weights_of(touched.learner), before)
    assert differs(weights_of(touched.learner), weights_of(plain.learner)) == ""
    assert differs(touched.obs, plain.obs) == ""            # and so the actor acted by the same weights


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("what", HARMLESS)
def test_the_actor_acts_by_what_is_trained(name, what):
    trainer = running(name)
    HARMLESS[what](trainer.learner.nets)
    trainer.until("update", 3)
    learner = trainer.learner
    obs = trainer.obs[AGENT]
    with torch.no_grad():
        want, _, _ = learner.algo.act(learner.nets, torch.from_numpy(obs), None, None)
    got, _ = learner.actor.act(obs, greedy=True)
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=1e-5)


def to_float64(nets):
    nets.to(torch.float64)


def part_to_float64(nets):
    next(nets.children()).to(torch.float64)


def other_parameters(nets):
    for module in nets.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(parameter.detach().clone()))


def assigned(nets):
    nets.load_state_dict(snapshot(nets.state_dict()), assign=True)


def frozen(nets):
    nets.requires_grad_(False)


GRAVE = dict(to_float64=to_float64, part_to_float64=part_to_float64, other_parameters=other_parameters,
             assigned=assigned, frozen=frozen)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("what", GRAVE)
def test_training_moves_the_networks_or_says_why_not(name, what):
    trainer = running(name)
    GRAVE[what](trainer.learner.nets)
    before = weights_of(trainer.learner)
    try:
        trainer.until("update", 3)
    except (RuntimeError, ValueError) as problem:
        assert any(word in str(problem) for word in ("dtype", "type", "graph", "require grad")), problem
        return
    assert not same(weights_of(trainer.learner), before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a second device")
def test_training_goes_on_where_the_networks_were_moved():
    trainer = running("ppo")
    trainer.learner.nets.to("cuda")
    before = weights_of(trainer.learner)
    try:
        trainer.until("update", 3)
    except RuntimeError as problem:
        assert "device" in str(problem)
        return
    assert not same(weights_of(trainer.learner), before)


def test_the_verbs_of_a_run_can_be_called_alone():
    "What a button does is what a hand-written loop does"
    env, settings = RUNS["ppo"]
    trainer = Trainer(env, "ppo", **SMALL, **settings)
    while not trainer.learner.ready:
        assert trainer.collect().kind == "collect"
    assert trainer.process(trainer.learner).kind == "process"
    while trainer.learner.todo:
        assert trainer.learn(trainer.learner).kind == "learn"
    assert "collect" not in repr(trainer.timers)            # `advance` is what is timed


# ---- groups

PACE = dict(one=(.1, None), two=(.01, .5), three=(1., 1e-3))
KINDS = dict(one=torch.optim.SGD, two=torch.optim.Adam, three=torch.optim.RMSprop)


class Pair(nn.Module):
    "Two numbers of different kinds, or of one"

    def __init__(self, rng, mixed):
        super().__init__()
        self.a = nn.Parameter(torch.randn(3, generator=rng))
        self.b = nn.Parameter(torch.randn(2, generator=rng).to(torch.float64 if mixed else torch.float32))

    def forward(self):
        return self.a.square().sum() + self.b.square().sum()


@dataclass(frozen=True)
class Three(Algorithm):
    "Three groups; every loss touches them all"
    order: tuple[str, ...] = hp(("two", "three", "one"), "in which the groups are stepped")
    mixed: bool = hp(False, "numbers of two kinds in every group")
    momentum: float = hp(0., "of the first group", low=0)

    name = "three"

    def nets(self, spec, rng):
        return nn.ModuleDict({name: Pair(rng, self.mixed) for name in PACE})

    def groups(self, nets):
        return {name: nets[name].parameters() for name in PACE}

    def optimiser(self, group, parameters):
        more = dict(momentum=self.momentum) if group == "one" else {}
        return KINDS[group](parameters, **more)

    def pace(self, group):
        return PACE[group]

    def memory(self, spec):
        return Ring(4, spec.num_envs)

    def noise(self, spec, nets):
        return Noise("random", ())

    def act(self, nets, obs, noise, carry):
        return torch.zeros(len(obs), dtype=torch.int64), {}, carry

    def due(self, memory, own, fresh):
        return 1 - int(fresh.sum())

    def draw(self, memory, own, fresh, rng):
        return Batch(index=memory.newest(1))

    def targets(self, nets, rows, noise):
        return rows, [None]

    def losses(self, nets, batch):
        for group in self.order:
            SEEN.append((group, snapshot(nets.state_dict())))
            product = nets.one() * nets.two() * nets.three()
            yield group, product, {}


SEEN = []       # (group, weights) at the time its loss was made


def three(**settings):
    "A learner of three groups with one transition to learn from"
    algo = Three(**settings)
    spec = Spec(gym.spaces.Discrete(1), gym.spaces.Discrete(2), 1)
    actor = Actor(algo, algo.nets(spec, torch.Generator().manual_seed(0)), spec, np.random.default_rng(0))
    learner = Learner(AGENT, algo, actor, np.random.default_rng(0))
    zero = np.zeros(1)
    no = np.zeros(1, bool)
    act = np.zeros(1, np.int64)
    row = Batch(obs=act, act=act, rew=zero.astype(np.float32), term=no, trunc=no, next_obs=act)
    learner.add(row, np.ones(1, bool))
    learner.process()
    SEEN.clear()
    return learner


def again(learner):
    "Learn from the same once more"
    learner.todo = [None]
    learner.learn()


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("order", [("one", "two", "three"), ("three", "one", "two")])
def test_groups_are_stepped_in_the_order_of_their_losses(order, mixed):
    learner = three(order=order, mixed=mixed)
    kinds = {type(group) for group in learner.groups.values()}
    assert kinds == {Group if mixed else FlatGroup}
    learner.learn()
    assert list(learner.last.groups) == list(order) == [group for group, _ in SEEN]
    moments = [weights for _, weights in SEEN] + [weights_of(learner)]
    for group, before, after in zip(order, moments, moments[1:]):
        for name in before:
            stays = not name.startswith(f"{group}.")
            assert torch.equal(before[name], after[name]) == stays, (group, name)


@pytest.mark.parametrize("mixed", [False, True])
def test_a_gradient_never_reaches_another_group(mixed):
    learner = three(order=("two",), mixed=mixed)
    before = weights_of(learner)
    learner.learn()
    for name, parameter in learner.nets.named_parameters():
        if name.startswith("two."): continue
        assert parameter.grad is None
        assert torch.equal(parameter, before[name])


@pytest.mark.parametrize("mixed", [False, True])
def test_every_group_has_its_own_rate_longest_gradient_and_optimiser(mixed):
    learner = three(mixed=mixed)
    for name, group in learner.groups.items():
        assert type(group.optimiser) is KINDS[name]
        assert {settings["lr"] for settings in group.optimiser.param_groups} == {PACE[name][0]}
        assert group.max_grad_norm == (PACE[name][1] or math.inf)


@pytest.mark.parametrize("mixed", [False, True])
def test_a_step_of_plain_descent_is_what_the_formula_says(mixed):
    learner = three(order=("one",), mixed=mixed)
    nets = learner.nets
    others = (nets.two() * nets.three()).detach()
    want = [parameter.detach() * (1 - 2 * others * PACE["one"][0]) for parameter in nets.one.parameters()]
    squares = sum((2 * others * parameter.detach()).double().square().sum() for parameter in nets.one.parameters())
    learner.learn()
    for parameter, number in zip(nets.one.parameters(), want):
        torch.testing.assert_close(parameter.detach(), number.to(parameter.dtype), rtol=1e-5, atol=1e-5)
    loss, norm = learner.last.groups["one"]
    assert float(norm) == pytest.approx(float(squares.sqrt()), rel=1e-5)
    assert float(loss) > 0


def test_a_long_gradient_is_shortened():
    learner = three(order=("three",))
    before = weights_of(learner)
    learner.groups["three"].optimiser = torch.optim.SGD([learner.groups["three"].vector], lr=1.)
    learner.learn()
    gone = torch.cat([before[f"three.{part}"] - weights_of(learner)[f"three.{part}"] for part in "ab"])
    assert float(gone.norm()) == pytest.approx(PACE["three"][1], rel=1e-4)
    assert float(learner.last.groups["three"][1]) > PACE["three"][1]        # told as it was


@pytest.mark.parametrize("mixed", [False, True])
def test_a_gradient_of_no_length_moves_nothing(mixed):
    learner = three(mixed=mixed)
    for group in learner.groups.values():
        group.pace(lr=.1, max_grad_norm=0.)
    before = weights_of(learner)
    learner.learn()
    assert all(torch.equal(one, before[name]) for name, one in weights_of(learner).items())
    assert all(float(norm) > 0 for _, norm in learner.last.groups.values())


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_the_longest_gradient_may_be_none_or_nothing(algo):
    moved = []
    for longest in (0., None):
        env, settings = RUNS[algo]
        trainer = Trainer(env, algo, **SMALL, **settings, max_grad_norm=longest)
        before = weights_of(trainer.learner)
        trainer.until("update", 3)
        weights = dict(trainer.learner.nets.named_parameters())
        moved.append(any(not torch.equal(one, before[name]) for name, one in weights.items()))
    assert moved == [False, True]


@pytest.mark.parametrize("mixed", [False, True])
def test_flat_and_plain_groups_agree(mixed, monkeypatch):
    one = three(momentum=.9)
    monkeypatch.setattr("rlbench.training.learner.FlatGroup", Group)
    two = three(momentum=.9)
    assert type(two.groups["one"]) is Group
    for learner in (one, two):
        for _ in range(5):
            again(learner)
    for name, weight in weights_of(one).items():
        torch.testing.assert_close(weight, weights_of(two)[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("moved", [False, True])
def test_optimisers_are_put_back(mixed, moved):
    learner = three(mixed=mixed, momentum=.9)
    for _ in range(3):
        again(learner)
    if moved:                               # the optimiser's state follows the parameters
        new_memory(learner.nets)
    before = snapshot(learner.state())
    again(learner)
    again(learner)
    after = snapshot(learner.state())
    assert not same(before["optimisers"], after["optimisers"])
    learner.restore(before)
    assert differs(snapshot(learner.state()), before) == ""
    again(learner)
    again(learner)
    assert differs(snapshot(learner.state()), after) == ""
    twin = three(mixed=mixed, momentum=.9)
    twin.restore(before)
    again(twin)
    again(twin)
    assert differs(snapshot(twin.state()), after) == ""


def test_a_snapshot_does_not_share_memory_with_the_optimisers():
    learner = three(momentum=.9)
    again(learner)
    tree = snapshot(learner.state())
    learner.restore(tree)
    kept = snapshot(tree)
    again(learner)
    assert differs(tree, kept) == ""


def test_float64_after_building_still_trains():
    learner = three(momentum=.9)
    again(learner)
    learner.nets.to(torch.float64)
    before = weights_of(learner)
    again(learner)
    for name, weight in weights_of(learner).items():
        assert weight.dtype == torch.float64
        assert not torch.equal(weight, before[name]), name


def test_where_an_optimiser_cannot_follow_a_new_type_it_says_so():
    learner = three(mixed=True, momentum=.9)
    again(learner)
    learner.nets.to(torch.float64)
    with pytest.raises(RuntimeError, match="dtype"):
        again(learner)
