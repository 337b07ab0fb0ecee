"""What exported code may not do: import upwards or sideways, draw from global generators, unpickle.

Each rule is a function from source text to complaints, and is shown to find what it looks for.
"""
import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyflakes.checker import Checker
from pyflakes.messages import ImportStarUsed, UndefinedExport, UndefinedLocal, UndefinedName

ROOT = Path(__file__).resolve().parents[1]
ROOMS = dict(core=0, envs=1, policies=2, buffers=3, algos=4, training=6, lab=8, launch=9)   # and their folders' numbers
APART = [                               # mutual strangers
    {"envs", "policies"},
    {"envs", "buffers"},
    {"policies", "buffers"},
    {"algos", "envs"},
]
RUNTIME = {                             # pyproject's dependencies, and what ipywidgets stands on
    "torch", "numpy", "gymnasium", "ipywidgets", "matplotlib", "anywidget", "PIL", "filelock", "tqdm",
    "platformdirs", "IPython",
    "traitlets",
}


@dataclass(frozen=True, order=True)
class Place:
    "Where a module's notebook stands: number of its room, and of its place in it"
    layer: int
    number: str     # digits, read like decimals: 401 stands between 40 and 41; those of a folder in the room come first
    room: str


def place(text):
    "The place of a module, read from nbdev's first lines; None if no notebook made it"
    found = re.search(r"File to edit: [./]*nbs/(\d+)_\w+/(?:(\d+)_\w+/)?(\d+)_\w+\.ipynb", text[:1000])
    room = re.search(r"^# %% (?:\.\./)+nbs/\d+_(\w+)/", text, re.MULTILINE)
    return found and Place(int(found[1]), (found[2] or "") + found[3], room[1] if room else "")


def dotted(path):
    "rlbench/core/batch.py -> rlbench.core.batch"
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


NOT_MODULES = ("__init__.py", "__main__.py", "_modidx.py")
MODULES = [path for path in sorted((ROOT / "rlbench").rglob("*.py")) if path.name not in NOT_MODULES]
SOURCES = {dotted(path): path.read_text(encoding="utf-8") for path in MODULES}
PLACES = {name: place(text) for name, text in SOURCES.items()}
HANDWRITTEN = sorted([
    *(ROOT / "tools").glob("*.py"),
    *(ROOT / "tests").rglob("*.py"),
    *(ROOT / "benchmarks").rglob("*.py"),
    ROOT / "rlbench" / "__init__.py",
    ROOT / "rlbench" / "__main__.py",
])


# ---- imports

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def imports(text, name, modules):
    "(full name of what is imported, line, inside a function?) for every import of module `name`"
    def walk(node, inside):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for one in child.names:
                    yield one.name, child.lineno, inside
            elif isinstance(child, ast.ImportFrom):
                for full in from_names(child, name, modules):
                    yield full, child.lineno, inside
            else:
                yield from walk(child, inside or isinstance(child, FUNCTIONS))
    yield from walk(ast.parse(text), False)


def from_names(node, name, modules):
    "Full names of what `from … import …` takes into module `name`"
    above = name.split(".")[:-node.level] if node.level else []
    base = ".".join([*above, *filter(None, [node.module])])
    for one in node.names:
        full = f"{base}.{one.name}"
        yield full if full in modules or base == "rlbench" else base


def layer_complaints(name, text, places):
    "Imports of the module `name` that go up, sideways or to the package as a whole"
    for target, line, inside in imports(text, name, places):
        if target.split(".")[0] != "rlbench" or target == "rlbench.__version__":
            continue
        wrong = wrong_way(name, target, inside, places)
        if wrong:
            yield f"{name}:{line} imports {target}: {wrong}"


def wrong_way(name, target, inside, places):
    "What is wrong with an import from our own package, in words; nothing if all is well"
    here = places[name]
    there = places.get(target)
    if target in places and there is None:
        return ""                                           # not from a notebook: another test says so
    if target == name: return "itself"
    if there is None:
        allowed = inside and here.room == "launch"
        return "" if allowed else "name the module it is in, not the package"
    if there.room == "lab" and here.room == "launch":
        return "" if inside else "only inside the function of the lab command"
    if {here.room, there.room} in APART:
        return f"{here.room} and {there.room} do not know one another"
    lower = (there.layer, there.number) < (here.layer, here.number)
    return "" if lower else "only lower folders, or earlier notebooks of its own"


def foreign_complaints(name, text):
    "Imports, outside of functions, of packages that a plain install does not bring"
    for target, line, inside in imports(text, name, {}):
        top = target.split(".")[0]
        if not inside and top not in RUNTIME | {"rlbench", *sys.stdlib_module_names}:
            yield f"{name}:{line} imports {top}: an optional package is imported inside the function that needs it"


def cycle(graph):
    "One cycle of a graph name -> names, as a list; empty if there is none"
    done = set()

    def visit(node, path):
        if node in path: return path[path.index(node):] + [node]
        if node in done: return []
        for one in graph.get(node, ()):
            found = visit(one, path + [node])
            if found: return found
        done.add(node)
        return []

    for node in graph:
        found = visit(node, [])
        if found: return found
    return []


# ---- calls

PICKLES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
DRAWS = {f"torch.{name}" for name in "rand randn randint randperm rand_like randn_like randint_like normal bernoulli "
         "multinomial poisson".split()}
IN_PLACE = set("uniform_ normal_ random_ bernoulli_ exponential_ log_normal_ geometric_ cauchy_ orthogonal_ "
               "trunc_normal_ sparse_ xavier_uniform_ xavier_normal_ kaiming_uniform_ kaiming_normal_".split())
SEEDED = {*(f"numpy.random.{name}" for name in "Generator PCG64 SeedSequence default_rng".split()), "random.Random"}
KEEPS = {"numpy.random.get_state", "numpy.random.set_state", "random.getstate", "random.setstate"}      # as it was
GLOBAL = {"torch.manual_seed", "torch.seed", "torch.cuda.manual_seed", "torch.cuda.manual_seed_all"}


def aliases(tree):
    "local name -> full name, for everything a module imports"
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                top = one.name.split(".")[0]
                known[one.asname or top] = one.name if one.asname else top
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for one in node.names:
                known[one.asname or one.name] = f"{node.module}.{one.name}"
    return known


def full_name(node, known):
    "np.random.rand -> numpy.random.rand; empty if it does not start at an imported name"
    parts = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in known: return ""
    return ".".join([known[node.id], *parts])


def wrong_call(call, known):
    "What is wrong with a call, in words"
    what = full_name(call.func, known)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else what.split(".")[-1]
    words = {word.arg: word.value for word in call.keywords}
    handed = "generator" in words or any(getattr(arg, "id", "") in ("generator", "rng") for arg in call.args)
    pickles = words.get("allow_pickle")
    if what in ("torch.load", "torch.save"):
        yield f"calls {what}, which pickles; use rlbench.core.state"
    if pickles is not None and getattr(pickles, "value", True):
        yield "allows pickles"
    if what in GLOBAL:
        yield f"calls {what}: it changes a generator that belongs to everybody"
    if (what in DRAWS or method in IN_PLACE) and not handed:
        yield f"calls {what or method} without a generator"
    if what.startswith(("numpy.random.", "random.")) and what not in SEEDED | KEEPS:
        yield f"calls {what}: the global generator"
    if what in SEEDED and not call.args and not call.keywords:
        yield f"calls {what} without a seed"


def call_complaints(name, text):
    "Pickles, and random numbers from anywhere but a generator that was handed in"
    tree = ast.parse(text)
    known = aliases(tree)
    for target, line, _ in imports(text, name, {}):
        if target.split(".")[0] in PICKLES:
            yield f"{name}:{line} imports {target}: state is arrays and JSON"
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        for wrong in wrong_call(call, known):
            yield f"{name}:{call.lineno} {wrong}"


# ---- names

GRAVE = (UndefinedName, UndefinedExport, UndefinedLocal, ImportStarUsed)


def name_complaints(name, text):
    "What pyflakes says: undefined names break at run time, the rest confuses"
    lines = text.splitlines()
    front = name.endswith("__init__.py")                    # a front page imports in order to be imported from
    for message in sorted(Checker(ast.parse(text), filename=name).messages, key=lambda one: one.lineno):
        excused = front or "noqa" in lines[message.lineno - 1]
        if isinstance(message, GRAVE) or not excused:
            yield str(message)


# ---- the project

@pytest.mark.parametrize("name", SOURCES)
def test_module_has_a_notebook_in_a_numbered_folder(name):
    assert PLACES[name] is not None, f"{name} was not exported from nbs/N_room/NN_name.ipynb"
    notebook = re.search(r"nbs/([\w/]+)\.ipynb", SOURCES[name])[1]
    assert name == "rlbench." + re.sub(r"\b\d+_", "", notebook).replace("/", "."), "as the notebook, without numbers"


@pytest.mark.parametrize("name", [name for name in SOURCES if PLACES[name]])
def test_module_stands_in_a_room_that_is_known(name):
    here = PLACES[name]
    assert ROOMS.get(here.room) == here.layer


def test_every_room_is_lived_in():
    assert {place.room for place in PLACES.values() if place} == set(ROOMS)


@pytest.mark.parametrize("name", [name for name in SOURCES if PLACES[name]])
def test_module_imports_downwards(name):
    assert list(layer_complaints(name, SOURCES[name], PLACES)) == []


@pytest.mark.parametrize("name", SOURCES)
def test_module_needs_only_what_a_plain_install_brings(name):
    assert list(foreign_complaints(name, SOURCES[name])) == []


def test_imports_have_no_cycle():
    graph = {}
    for name, text in SOURCES.items():
        graph[name] = {target for target, _, _ in imports(text, name, SOURCES)} & set(SOURCES)
    assert cycle(graph) == []


@pytest.mark.parametrize("name", SOURCES)
def test_module_draws_from_generators_and_never_pickles(name):
    assert list(call_complaints(name, SOURCES[name])) == []


@pytest.mark.parametrize("name", SOURCES)
def test_module_has_no_undefined_or_unused_names(name):
    assert list(name_complaints(name, SOURCES[name])) == []


@pytest.mark.parametrize("path", HANDWRITTEN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_handwritten_file_has_no_undefined_or_unused_names(path):
    assert list(name_complaints(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))) == []


# ---- the rules find what they look for

TOY = {
    "rlbench.core.batch": Place(0, "01", "core"),
    "rlbench.core.config": Place(0, "05", "core"),
    "rlbench.envs.env": Place(1, "101", "envs"),
    "rlbench.buffers.ring": Place(3, "30", "buffers"),
    "rlbench.algos.dqn": Place(4, "430", "algos"),
    "rlbench.training.trainer": Place(6, "64", "training"),
    "rlbench.lab.page.workbench": Place(8, "86", "lab"),
    "rlbench.launch.cli": Place(9, "90", "launch"),
}


@pytest.mark.parametrize("name,text,found", [
    ("rlbench.core.config", "from .batch import Batch", ""),
    ("rlbench.core.config", "from rlbench import __version__", ""),
    ("rlbench.core.batch", "from .config import Config", "earlier notebooks"),
    ("rlbench.core.batch", "from rlbench.core import config", "earlier notebooks"),
    ("rlbench.core.batch", "def f():\n    from ..training.trainer import Trainer", "earlier notebooks"),
    ("rlbench.envs.env", "import rlbench", "not the package"),
    ("rlbench.envs.env", "from .. import train", "not the package"),
    ("rlbench.buffers.ring", "from ..envs.env import VecEnv", "do not know"),
    ("rlbench.algos.dqn", "from ..buffers.ring import Ring", ""),
    ("rlbench.algos.dqn", "import rlbench.envs.env", "do not know"),
    ("rlbench.algos.dqn", "from ..lab.page.workbench import Workbench", "earlier notebooks"),
    ("rlbench.launch.cli", "from ..lab.page.workbench import Workbench", "only inside"),
    ("rlbench.launch.cli", "def lab():\n    from ..lab.page.workbench import Workbench", ""),
])
def test_layer_rule(name, text, found):
    complaints = list(layer_complaints(name, text, TOY))
    assert found in complaints[0] if found else complaints == []


def test_place_is_read_from_the_first_lines():
    notebook = "../../nbs/0_core/07_state.ipynb"
    text = f"# AUTOGENERATED! DO NOT EDIT! File to edit: {notebook}.\n\n# %% {notebook} #f1\nimport os\n"
    assert place(text) == Place(0, "07", "core") and place("import os") is None
    inner = "../../../nbs/8_lab/3_time/12_timeline.ipynb"
    assert place(text.replace(notebook, inner)) == Place(8, "312", "lab")


def test_cycle_rule():
    assert cycle(dict(a={"b"}, b={"c"}, c=set())) == []
    assert cycle(dict(a={"b"}, b={"c"}, c={"b"})) == ["b", "c", "b"]


@pytest.mark.parametrize("text,bad", [
    ("import numpy", False),
    ("import fastcore.all", True),
    ("def f():\n    import ray", False),
])
def test_plain_install_rule(text, bad):
    assert bool(list(foreign_complaints("m", text))) is bad


@pytest.mark.parametrize("text,bad", [
    ("import torch\nx = torch.rand(3, generator=g)", False),
    ("import torch\nx = torch.rand(3)", True),
    ("from torch import randn as draw\nx = draw(3)", True),
    ("import torch\nx = torch.empty(3).uniform_()", True),
    ("from torch import nn\nnn.init.orthogonal_(w, 1.0, generator=g)", False),
    ("import numpy as np\nx = np.random.rand(3)", True),
    ("import numpy as np\nx = np.random.default_rng(0).random(3)", False),
    ("import numpy as np\nx = np.random.default_rng()", True),
    ("import random\nrandom.shuffle(x)", True),
    ("import random\nrandom.setstate(was)", False),
    ("import torch\ntorch.manual_seed(0)", True),
    ("import torch\ntorch.load(path)", True),
    ("def f():\n    import pickle", True),
    ("import numpy as np\nnp.load(path, allow_pickle=True)", True),
    ("import numpy as np\nnp.load(path, allow_pickle=False)", False),
])
def test_call_rule(text, bad):
    assert bool(list(call_complaints("m", text))) is bad


@pytest.mark.parametrize("text,bad", [
    ("def f(): return here", True),
    ("import os", True),
    ("import os  # noqa", False),
    ("__all__ = ['gone']", True),
])
def test_name_rule(text, bad):
    assert bool(list(name_complaints("m", text))) is bad
