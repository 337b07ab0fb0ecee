"The tools find what they are there to find, and mend it"
import base64
import importlib.util
import io
import json
import shutil
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
VIEW = "application/vnd.jupyter.widget-view+json"


def load(name):
    "A tool as a module"
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module              # a dataclass looks itself up there
    spec.loader.exec_module(module)
    return module


clean_notebooks = load("clean_notebooks")
sync = load("sync")
readme = load("readme")
pages = load("pages")
reading_cost = load("reading_cost")


def png():
    file = io.BytesIO()
    Image.new("RGB", (4, 3), "teal").save(file, "png")
    return base64.b64encode(file.getvalue()).decode()


@pytest.fixture
def project(tmp_path):
    "A project with two clean notebooks"
    nbs = tmp_path / "nbs"
    (nbs / "0_core").mkdir(parents=True)
    (tmp_path / "rlbench").mkdir()
    (tmp_path / "rlbench" / "__init__.py").write_text('__version__ = "0.1.0"\n')
    shutil.copy(ROOT / "settings.ini", tmp_path)
    picture = new_output("display_data", {"image/png": png(), "text/plain": "<Figure>"})
    shown = new_code_cell("#| eval: false\n1 + 1", outputs=[picture])
    index = new_notebook(cells=[new_markdown_cell("# Title"), new_code_cell("#| hide\nsecret = 1"), shown])
    one = new_code_cell("#| export\ndef one(): return 1")
    module = new_notebook(cells=[new_code_cell("#| default_exp core.one"), one])
    nbformat.write(index, nbs / "index.ipynb")
    nbformat.write(module, nbs / "0_core" / "00_one.ipynb")
    assert clean_notebooks.run(tmp_path, check=False) == []
    return tmp_path


def test_a_mended_project_has_no_complaints(project):
    for check in (False, True):
        for tool in (clean_notebooks, sync, readme):
            assert tool.run(project, check=check) == []


def test_what_is_told_as_html_is_told_once(project):
    path = project / "nbs" / "index.ipynb"
    nb = nbformat.read(path, 4)
    nb.cells[-1].outputs = [new_output("display_data", {"text/html": "<b>two</b>", "text/plain": "two"})]
    nbformat.write(nb, path)
    clean_notebooks.run(project, check=False)
    [output] = nbformat.read(path, 4).cells[-1].outputs
    assert set(output.data) == {"text/html"}


def edit(path, change):
    nb = json.loads(path.read_text())
    change(nb)
    path.write_text(json.dumps(nb))


def test_clean_drops_counts_and_widgets_and_keeps_the_picture(project):
    path = project / "nbs" / "index.ipynb"

    def use(nb):
        nb["metadata"]["widgets"] = {"state": {}}
        nb["cells"][2]["execution_count"] = 7
        nb["cells"][2]["outputs"][0]["data"][VIEW] = {"model_id": "x"}
        nb["cells"][1]["outputs"] = [{"output_type": "display_data", "metadata": {}, "data": {VIEW: {"model_id": "y"}}}]

    edit(path, use)
    before = path.read_text()
    assert clean_notebooks.run(project, check=True) == ["nbs/index.ipynb is not clean; run: make sync"]
    assert path.read_text() == before, "a check changes nothing"
    assert clean_notebooks.run(project, check=False) == []
    nb = json.loads(path.read_text())
    assert "widgets" not in nb["metadata"] and nb["cells"][1]["outputs"] == []
    assert nb["cells"][2]["execution_count"] is None
    assert set(nb["cells"][2]["outputs"][0]["data"]) == {"image/png"}


def test_clean_drops_the_folders_of_one_machine(project):
    path = project / "nbs" / "index.ipynb"
    said = ["/home/me/lib/python3.11/site-packages/gymnasium/core.py:3: UserWarning\n", "/tmp/tmpab1/own.toml\n"]
    edit(path, lambda nb: nb["cells"][1].update(outputs=[dict(output_type="stream", name="stderr", text=said)]))
    assert clean_notebooks.run(project, check=False) == []
    kept = json.loads(path.read_text())["cells"][1]["outputs"][0]["text"]
    assert kept == ["gymnasium/core.py:3: UserWarning\n", "own.toml\n"]


def test_a_notebook_without_ids_is_named_and_gets_them(project):
    path = project / "nbs" / "index.ipynb"
    edit(path, lambda nb: nb["cells"][0].pop("id"))
    assert any("without an id" in complaint for complaint in clean_notebooks.run(project, check=True))
    assert clean_notebooks.run(project, check=False) == []
    assert all(cell["id"] for cell in json.loads(path.read_text())["cells"])


def test_a_large_notebook_is_refused(project):
    long = {"text/plain": "x" * 300_000}
    edit(project / "nbs" / "index.ipynb", lambda nb: nb["cells"][2]["outputs"][0]["data"].update(long))
    assert any("KB, more than 300" in complaint for complaint in clean_notebooks.run(project, check=False))


def test_sync_finds_edited_missing_and_stale_modules(project):
    sync.run(project, check=False)
    package = project / "rlbench"
    one = package / "core" / "one.py"
    (package / "old").mkdir()
    (package / "old" / "__init__.py").write_text("")
    (package / "old" / "gone.py").write_text(one.read_text())
    one.write_text(one.read_text() + "\n# by hand")
    (package / "_modidx.py").unlink()
    assert {complaint.split(";")[0] for complaint in sync.run(project, check=True)} == {
        "rlbench/core/one.py differs from its notebook", "rlbench/_modidx.py is missing",
        "rlbench/old/gone.py belongs to no notebook", "rlbench/old/__init__.py belongs to no notebook"}
    assert sync.run(project, check=False) == sync.run(project, check=True) == []
    assert not (package / "old").exists() and (package / "__init__.py").exists()


def test_readme_shows_what_a_reader_needs(project):
    readme.run(project, check=False)
    text = (project / "README.md").read_text()
    assert "# Title" in text and "```python\n1 + 1\n```" in text and "secret" not in text and "#|" not in text
    figures = list((project / "docs" / "readme").iterdir())
    assert [f"(docs/readme/{figure.name})" in text for figure in figures] == [True]
    assert figures[0].read_bytes() == base64.b64decode(png())
    (project / "docs" / "readme" / "old.png").write_bytes(b"")
    (project / "README.md").write_text(text + "more")
    assert len(readme.run(project, check=True)) == 2
    assert readme.run(project, check=False) == readme.run(project, check=True) == []


# ---- pages

def test_every_setting_of_every_algorithm_is_on_the_page_for_those_who_come_from_elsewhere():
    from rlbench.algos.algorithm import algorithms
    from rlbench.core.settings import fields_of
    from rlbench.core.words import ELSEWHERE
    lines = pages.coming_page().splitlines()
    for name, cls in algorithms().items():
        for setting in fields_of(cls):
            [line] = [line for line in lines if line.startswith(f"| `{setting.name}` |")]
            assert f"`{name}`" in line
    for setting, words in ELSEWHERE.items():
        [line] = [line for line in lines if line.startswith(f"| `{setting}` |")]
        for library in pages.OTHERS:
            assert all(f"`{word}`" in line for word in words.get(library, ()))


def test_a_table_has_as_many_cells_in_every_line():
    tables = [line for line in pages.coming_page().splitlines() if line.startswith("|")]
    lengths = {line.replace("\\|", "").count("|") for line in tables}
    assert lengths <= {4, 6, 8}


# ---- reading cost

COUNTED = '''
from tests.made_up.other import double


def twice(x):
    "A docstring is not read, nor is a comment"
    # how

    return double(x)[0]


def never(x):
    return x
'''
OTHER = '''
def double(x):
    """Two lines
    of text"""
    return [2 * x for _ in range(3)]
'''


def test_cost_of_a_small_path(tmp_path):
    "Two functions in two files, four lines, and two jumps for each call: there, and on to the next"
    for name, text in dict(one=COUNTED, other=OTHER).items():
        (tmp_path / f"{name}.py").write_text(text)
    other = load_from(tmp_path / "other.py")
    sys.modules["tests.made_up.other"] = other
    one = load_from(tmp_path / "one.py")
    with reading_cost.Trace(tmp_path) as trace:
        for x in range(reading_cost.STEPS):
            assert one.twice(x) == 2 * x
    cost = reading_cost.cost_of(trace)
    assert (cost.files, cost.functions, cost.lines) == (2, 2, 4)
    assert cost.jumps == pytest.approx(2 - 1 / reading_cost.STEPS)
    assert cost.tokens == len("def twice ( x ) : return double ( x ) [ 0 ]".split()) + len(
        "def double ( x ) : return [ 2 * x for _ in range ( 3 ) ]".split())


def load_from(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_ppo_is_cheap_to_read():
    steps, whole = reading_cost.ours()
    assert reading_cost.missed(steps) == []
    assert whole.tokens >= steps.tokens
    told = reading_cost.page((steps, whole), None)
    assert f"| rlbench, steps | {steps.files} |" in told and "6,514" in told
