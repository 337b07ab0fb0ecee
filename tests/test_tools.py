"""The tools find what they are there to find, and mend it."""
import base64
import importlib.util
import io
import json
import shutil
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
VIEW = "application/vnd.jupyter.widget-view+json"


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


clean_notebooks, sync, readme = load("clean_notebooks"), load("sync"), load("readme")


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
    module = new_notebook(cells=[new_code_cell("#| default_exp core.one"), new_code_cell("#| export\ndef one(): return 1")])
    nbformat.write(index, nbs / "index.ipynb")
    nbformat.write(module, nbs / "0_core" / "00_one.ipynb")
    assert clean_notebooks.run(tmp_path, check=False) == []
    return tmp_path


def test_a_mended_project_has_no_complaints(project):
    for tool in (clean_notebooks, sync, readme): assert tool.run(project, check=False) == []
    for tool in (clean_notebooks, sync, readme): assert tool.run(project, check=True) == []


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
    assert set(nb["cells"][2]["outputs"][0]["data"]) == {"image/png", "text/plain"}


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
