"The project's own facts agree wherever they are written down, and its notebooks are fit to be committed"
import configparser
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]


def is_ours(path):
    "Not a checkpoint, not a draft"
    return not any(part[0] in "._" for part in path.relative_to(ROOT).parts)


NOTEBOOKS = sorted(path for path in (ROOT / "nbs").rglob("*.ipynb") if is_ours(path))
VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def settings():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "settings.ini", encoding="utf-8")
    return dict(parser["DEFAULT"])


@pytest.fixture(scope="module")
def pyproject():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def conda():
    return yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))


def pins():
    "name -> release of every line of constraints.txt"
    lines = [line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()]
    return dict(line.split("==") for line in lines if line)


def canonical(requirement):
    "Name of a requirement, as pip compares names"
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def test_name_version_and_python_agree(settings, pyproject, conda):
    project = pyproject["project"]
    initial = (ROOT / "rlbench" / "__init__.py").read_text(encoding="utf-8")
    assert project["name"] == settings["lib_name"] == settings["lib_path"] == conda["name"] == "rlbench"
    assert pyproject["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "rlbench.__version__"}
    assert re.findall(r'^__version__ = "(.+)"$', initial, re.MULTILINE) == [settings["version"]]
    assert project["requires-python"] == f">={settings['min_python']}"
    assert f"python={settings['min_python']}" in conda["dependencies"]
    assert project["description"] == settings["description"] and project["keywords"] == settings["keywords"].split()
    assert (project["license"], settings["license"]) == ("Apache-2.0", "apache2")
    assert [author["name"] for author in project["authors"]] == [settings["author"]]


def test_requirements_agree(settings, pyproject, conda):
    project = pyproject["project"]
    assert project["dependencies"] == settings["requirements"].split()
    assert project["optional-dependencies"]["dev"] == settings["dev_requirements"].split()
    constrained, itself = next(item["pip"] for item in conda["dependencies"] if isinstance(item, dict))
    assert constrained == "-c constraints.txt"
    makefile = re.search(r"^EXTRAS := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert itself == f"-e .[{makefile}]" and set(makefile.split(",")) == set(project["optional-dependencies"])


def test_every_requirement_is_pinned_within_its_bounds(pyproject):
    from packaging.requirements import Requirement
    project = pyproject["project"]
    pinned = pins()
    for text in sum(project["optional-dependencies"].values(), project["dependencies"]):
        name = canonical(text)
        if name == "rlbench": continue
        assert Requirement(text).specifier.contains(pinned[name]), f"{text}: {pinned[name]} is pinned"


def test_constraints_hold_releases_only():
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert not re.search(r"://|@|/|\+", re.sub("#.*", "", text)), "no addresses, no paths, no local builds"
    assert all(name == canonical(name) for name in pins())


def test_nbdev_3_would_read_the_same_settings(settings, pyproject):
    "settings.ini and its mirror [tool.nbdev]"
    for name, value in pyproject["tool"]["nbdev"].items():
        expected = settings[name]
        if isinstance(value, list):
            value = " ".join(value)
        assert str(value) == expected, f"[tool.nbdev] {name} = {value!r}, settings.ini says {expected!r}"
    assert settings["update_pyproject"] == "False", "nbdev would replace pyproject.toml by one that pip cannot install"


def test_exported_code_does_not_need_the_notebook_tools(pyproject):
    names = {canonical(one) for one in pyproject["project"]["dependencies"]}
    assert names.isdisjoint({"fastcore", "nbdev", "execnb"})


def widgets_in(nb):
    "What a notebook has saved of its widgets, in words"
    if "widgets" in nb["metadata"]:
        yield "metadata.widgets"
    for cell in nb["cells"]:
        views = [output for output in cell.get("outputs", []) if VIEW in output.get("data", {})]
        if views:
            yield f"a widget view in cell {cell['id']}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.relative_to(ROOT / "nbs").as_posix())
def test_notebook_is_small_and_holds_no_widget(path):
    assert path.stat().st_size <= 300_000
    assert list(widgets_in(json.loads(path.read_text(encoding="utf-8")))) == []


def test_widgets_would_be_found():
    view = dict(outputs=[dict(data={VIEW: {}})], id="a1")
    assert list(widgets_in(dict(metadata={}, cells=[dict(outputs=[])]))) == []
    found = list(widgets_in(dict(metadata=dict(widgets={}), cells=[view])))
    assert found == ["metadata.widgets", "a widget view in cell a1"]


def test_notebooks_together_are_small():
    assert sum(path.stat().st_size for path in NOTEBOOKS) <= 8_000_000


def prose(page):
    "The Markdown of a page"
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb": return text
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
    return "\n".join("".join(cell["source"]) for cell in cells)


PAGES = [*NOTEBOOKS, ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_what_a_page_points_to_is_there(page):
    "Links and pictures within the project; those of the README are relative to the top"
    base = ROOT if page.name in ("README.md", "index.ipynb") else page.parent
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)) if not re.match(r"\w+:|#", link)]
    assert [link for link in links if not (base / link.split("#")[0]).exists()] == []


def test_all_that_is_to_be_had_from_the_front_page_is_there():
    import importlib

    import rlbench
    for name, home in rlbench.HOMES.items():
        module = importlib.import_module(f"rlbench.{home}")
        assert getattr(rlbench, name) is getattr(module, name)
    with pytest.raises(AttributeError, match="no attribute 'Trainr'"):
        rlbench.Trainr
