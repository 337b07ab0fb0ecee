"""Nothing crosses from one device to another but in the actor and where a learner processes.

By reading the code, and by running every method with networks on a device that holds no numbers.
"""
import ast
import copy
from contextlib import contextmanager

import pytest
import torch

from rlbench.algos.algorithm import algorithms
from rlbench.core.batch import each
from rlbench.core.spaces import AGENT
from rlbench.core.state import FileProblem, Streams, same, snapshot, write_tree
from rlbench.core.words import ConfigError
from rlbench.envs.find import make
from rlbench.training.actor import NoiseStream, to_tensors
from rlbench.training.setup import checked_device, new_learner
from rlbench.training.trainer import Trainer, load
from tests.cases import CASES, differs
from tests.test_layers import SOURCES

MAY_MOVE = {                        # where data crosses
    "rlbench.training.setup",       # networks, once
    "rlbench.training.actor",       # observations in, actions out
    "rlbench.training.learner",     # rows, in `process`; and what a snapshot brings back
}
MAY_READ = MAY_MOVE | {"rlbench.core.batch", "rlbench.core.state"}      # tensors as arrays, wherever they lay
LOOKS = "rlbench.lab."              # whoever looks on reads as well
CONSTANTS = {                       # a few numbers that a formula needs, the same for ever
    "rlbench.policies.distributions": ("NODES.to(self.width)", "WEIGHTS.to(self.width)"),
}
TYPES = {name for name in vars(torch) if isinstance(getattr(torch, name), torch.dtype)}


# ---- by reading

def is_type(node):
    "Is this a type of numbers, as in x.to(torch.int8) or x.to(y.dtype)?"
    return isinstance(node, ast.Attribute) and (node.attr == "dtype" or node.attr in TYPES)


def is_beside(node):
    "A device that is none, that of other data, or the one without numbers"
    if isinstance(node, ast.Constant): return node.value in (None, "meta")
    return isinstance(node, (ast.Attribute, ast.Name)) and (getattr(node, "attr", "") or node.id) == "device"


def crossings(name, text):
    "Calls of module `name` that move numbers between devices"
    for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
        source = ast.unparse(call)
        where = f"{name}:{call.lineno} {source}"
        words = {word.arg: word.value for word in call.keywords}
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        reads = method == "numpy" and "force" in words
        if reads and name not in MAY_READ and not name.startswith(LOOKS):
            yield f"{where}: reads from a device"
        if name in MAY_MOVE or source in CONSTANTS.get(name, ()): continue
        if method in ("cpu", "cuda") or method == "to" and not all(map(is_type, call.args)):
            yield f"{where}: moves to a device"
        elif "device" in words and source.split("(")[0] != "dict" and not is_beside(words["device"]):
            yield f"{where}: chooses a device"


@pytest.mark.parametrize("name", SOURCES)
def test_module_moves_nothing(name):
    assert list(crossings(name, SOURCES[name])) == []


@pytest.mark.parametrize("line,bad", [
    ("x.to(torch.int8)", False), ("x.to(y.dtype)", False), ("torch.arange(3, device=x.device)", False),
    ("x.to(y)", True), ("x.to(device)", True), ("x.to('cuda')", True), ("x.to(dtype=y, device=z.device)", False),
    ("x.cpu()", True), ("x.cuda()", True), ("torch.zeros(3, device='cuda')", True), ("x.numpy(force=True)", True),
    ("nn.Linear(2, 2, device='meta')", False), ("torch.zeros(3, device=where)", True),
])
def test_rule_of_crossings(line, bad):
    assert bool(list(crossings("rlbench.algos.some", line))) is bad


# ---- by running on a device without numbers: whoever mixes it with another is told so

def elsewhere(tree):
    "The same shapes on the device without numbers"
    return each(lambda column: column.to("meta"), tree)


class NoNumbers(NoiseStream):
    "Noise that is drawn, and moved like all noise"

    def __init__(self, rng):
        super().__init__(rng, torch.device("meta"))


def poised(case):
    "A trainer with something new to process"
    trainer = case.begun(num_envs=2)
    trainer.until(lambda event: trainer.learner.ready and not trainer.learner.todo)
    return trainer


NETWORKS = [case for case in CASES if case.cls.update is None]


@contextmanager
def numbers_may_be_asked_for():
    "Where shapes or a seed depend on numbers nothing is to be seen on this device; mixing devices stays an error"
    try:
        yield
    except (NotImplementedError, RuntimeError) as problem:
        asked = isinstance(problem, NotImplementedError) or "item() cannot be called on meta" in str(problem)
        if not asked: raise
        pytest.skip(f"depends on numbers: {str(problem)[:60]}")


@pytest.mark.parametrize("case", NETWORKS, ids=str)
def test_acting_stays_on_the_device_of_the_networks(case):
    trainer = poised(case)
    learner = trainer.learner
    algo = learner.algo
    nets = copy.deepcopy(learner.nets).to("meta")
    noise = NoNumbers(learner.rng)
    obs = elsewhere(to_tensors(trainer.obs[AGENT], "cpu"))
    carry = learner.actor.carry
    carry = None if carry is None else carry.to("meta")
    with torch.no_grad():
        for chance in (noise(algo.noise(learner.actor.spec, nets), len(learner.fresh)), None):
            act, extra, _ = algo.act(nets, obs, chance, carry)
            assert act.device.type == "meta"
            assert {column.device.type for column in extra.values()} <= {"meta"}


@pytest.mark.parametrize("case", NETWORKS, ids=str)
def test_losses_stay_on_the_device_of_the_networks(case):
    learner = poised(case).learner
    nets = copy.deepcopy(learner.nets).to("meta")
    data = elsewhere(learner.process())
    index = learner.todo[0]
    batch = data if index is None else data[index.to("meta")]
    with numbers_may_be_asked_for():
        for _, loss, named in learner.algo.losses(nets, batch):
            assert loss.device.type == "meta"
            assert {part.device.type for part in named.values()} == {"meta"}
            loss.backward()


@pytest.mark.parametrize("case", NETWORKS, ids=str)
def test_targets_stay_on_the_device_of_the_networks(case):
    learner = poised(case).learner
    algo = learner.algo
    nets = copy.deepcopy(learner.nets).to("meta")
    with torch.no_grad(), numbers_may_be_asked_for():
        drawn = algo.draw(learner.memory, learner.own, learner.fresh, learner.rng)
        rows = to_tensors(learner.memory.gather(drawn.index) | drawn, "meta")
        data, _ = algo.targets(nets, rows, NoNumbers(learner.rng))
        assert {column.device.type for column in flat(data)} == {"meta"}


def flat(tree):
    "Every column of nested ones"
    for column in tree.values():
        if isinstance(column, dict): yield from flat(column)
        else: yield column


def test_mixing_would_be_noticed():
    with pytest.raises(RuntimeError, match="device"):
        torch.zeros(3) + torch.zeros(3, device="meta")


# ---- a device that is not there

@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", "cuda:0"])
def test_a_device_that_is_not_here_is_one_clear_message(device):
    with pytest.raises(ConfigError, match=f"device = '{device}' is not here; there are: cpu") as problem:
        Trainer("CartPole-v1", "ppo", device=device)
    assert "\n" not in str(problem.value)


def test_devices_by_name():
    assert checked_device("cpu") == torch.device("cpu")
    with pytest.raises(ConfigError, match="device = 'gpu' is not here; there are: cpu"):
        checked_device("gpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a second device")
@pytest.mark.parametrize("case", NETWORKS, ids=str)
def test_on_a_second_device_it_trains_and_comes_back(case, tmp_path):
    trainer = case.begun(device="cuda")
    learner = trainer.learner
    assert {weight.device.type for weight in learner.nets.parameters()} == {"cuda"}
    before = snapshot(trainer.state())
    for _ in range(12):
        trainer.advance()
    trainer.restore(before)
    assert differs(trainer.state(), before) == ""
    assert {weight.device.type for weight in learner.nets.parameters()} == {"cuda"}
    trainer.save(tmp_path / "run.rlb")
    trainer.until("update", 2)


@pytest.mark.parametrize("algo", [name for name, kind in algorithms().items() if kind.in_numbers])
def test_tables_that_learn_in_plain_numbers_stay_in_main_memory(algo):
    learner = new_learner(make("rlbench/CliffWalk-v0"), "agent", algorithms()[algo](), Streams(0), torch.device("meta"))
    devices = {table.device.type for table in learner.nets.state_dict().values()}
    assert devices == {"cpu"} and learner.device.type == learner.actor.device.type == "cpu"


def test_a_run_from_a_graphics_card_is_loaded_elsewhere(tmp_path):
    there = Trainer("CartPole-v1", "ppo", n_steps=16).run(steps=300)
    tree = dict(env="CartPole-v1", env_settings={}, players=dict(agent="ppo"), state=there.state())
    tree["state"]["config"] = tree["state"]["config"] + [["python", {"trainer.device": "cuda:9"}]]
    write_tree(tmp_path / "far.rlb", tree, kind="checkpoint")
    with pytest.raises(FileProblem, match="is not here"):
        load(tmp_path / "far.rlb")
    here = load(tmp_path / "far.rlb", device="cpu")
    for trainer in (there, here):
        trainer.run(steps=300)
    assert same(there.state()["learners"], here.state()["learners"])
    here.fork().run(steps=50)
