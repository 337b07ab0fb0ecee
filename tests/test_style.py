"Everything that people read here reads well; and the lint that says so finds what it looks for"
import ast
import importlib.util
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.test_layers import SOURCES

ROOT = Path(__file__).resolve().parents[1]


def load_style():
    "tools/style.py as a module"
    spec = importlib.util.spec_from_file_location("style", ROOT / "tools" / "style.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["style"] = module           # its dataclass looks itself up there
    spec.loader.exec_module(module)
    return module


style = load_style()


@pytest.fixture(scope="module")
def figures():
    return style.figures(style.notebooks())


# ---- the project

@pytest.mark.parametrize("path", style.files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_it_reads_well(path):
    assert [line for cell in style.cells_of(path) for line in style.complaints(cell)] == []


def test_export_cells_are_short(figures):
    assert figures["median"] <= 8
    assert figures["most"] <= 20            # 90 % of them
    assert figures["longest"] <= 60


def test_more_is_shown_than_hidden(figures):
    assert figures["shown"] >= .7


def attached_names(text):
    "Members of classes that are put there from outside, in a module"
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        for one in (one for target in targets for one in getattr(target, "elts", [target])):
            if isinstance(one, ast.Attribute) and ast.unparse(one)[0].isupper():
                yield ast.unparse(one)
        if isinstance(node, (ast.For, ast.Expr)):
            calls = [call for call in ast.walk(node) if isinstance(call, ast.Call)]
            yield from (ast.unparse(call) for call in calls if getattr(call.func, "id", "") == "setattr")


def long_classes(text):
    "Classes of more than sixty lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and node.end_lineno - node.lineno + 1 > 60:
            yield node.name


@pytest.mark.parametrize("name", SOURCES)
def test_a_class_is_whole_and_has_one_job(name):
    assert list(attached_names(SOURCES[name])) == []
    assert list(long_classes(SOURCES[name])) == []


def top_level(text):
    "Names that a module defines: functions, classes, constants"
    for node in ast.parse(text).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name) and target.id != "__all__")


def test_no_name_is_defined_twice():
    "One word for one thing: who looks for a name finds one place"
    homes = defaultdict(list)
    for module, text in SOURCES.items():
        for name in top_level(text):
            homes[name].append(module)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


@pytest.mark.parametrize("name", SOURCES)
def test_every_function_says_what_it_is_on_a_line_of_its_own(name):
    "Public functions and classes have a docstring; nothing stands behind it"
    for node in ast.parse(SOURCES[name]).body:
        public = isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
        if public and ast.get_docstring(node):
            assert node.body[0].lineno > node.lineno, node.name


# ---- the rules find what they look for

GOOD = """
def mean(values):
    "The mean of some numbers"
    total = 0
    for value in values:
        if value is None: continue
        total += value
    return total / len(values)
"""
BAD = {
    "the limit is 120": "x = 1  # " + "long " * 30,
    "two statements": "x = 1; y = 2",
    "docstring of f": 'def f(): "says it"; return 1',
    "docstring of g": 'def g(): "says it"',
    "a body on its header line": "for x in range(3): print('" + "x" * 70 + "')",
    "3 assignments": "a, b, c = 1, 2, 3",
    "strung together": "def f():\n    g(), h()",
    "conditional inside": "x = 1 if a else 2 if b else 3",
    "a walrus inside the condition": "x = 1 if (y := z) else 2",
    "a walrus inside a condition of several": "if (y := z) and y > 1:\n    pass",
    "comprehension inside": "x = [[a for a in b] for b in c]",
    "two lambdas": "x = sorted(a, key=lambda b: b), map(lambda c: c, d)",
    "attached from outside": "Trainer.set = set_settings",
    "members are attached": "for f in (a, b): setattr(Trainer, f.__name__, f)",
    "more than 60": "class Long:\n" + "    x = 1\n" * 61,
}


def found_in(text):
    return style.complaints(style.Cell("some.py", text))


def test_what_reads_well_is_left_alone():
    assert found_in(GOOD) == []


@pytest.mark.parametrize("words", BAD)
def test_rule(words):
    found = found_in(BAD[words])
    assert any(words in line for line in found), found


def test_a_plot_may_hide_what_it_returns():
    shown = style.Cell("nbs/a.ipynb #1", "import matplotlib.pyplot as plt\nplt.plot([1]);")
    assert style.complaints(shown) == []


def test_figures_count_what_is_shown_and_what_is_exported(tmp_path):
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook
    cells = [new_code_cell("#| export\nx = 1\n\ny = 2"), new_code_cell("x + y"), new_code_cell("#| hide\nassert x")]
    nbformat.write(new_notebook(cells=cells), tmp_path / "a.ipynb")
    found = style.figures([tmp_path / "a.ipynb"])
    assert (found["cells"], found["median"], found["longest"], found["exported"], found["shown"]) == (1, 2, 2, 2, 1)
    assert style.wrong(found) == []
    assert style.wrong(found | dict(shown=.5, median=9)) == [
        "median 9, expected at most 8", "shown 0.50 lines for every exported one, expected at least 0.7"]
