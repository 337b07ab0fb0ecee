"Whatever a file or a class is called, on a page it is text"
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import gymnasium as gym
import ipywidgets as widgets
import numpy as np
import pytest

import rlbench
from rlbench.algos.qlearning import QLearning
from rlbench.core.batch import Batch, TextTable, describe
from rlbench.core.config import Config, Explanation, Explanations
from rlbench.core.settings import fields_of
from rlbench.envs.find import check_env
from rlbench.lab.page.flame import Flame, FlamePair, TimeNode
from rlbench.lab.runs.paper import PaperTable
from rlbench.lab.runs.run_files import FACTS, RunLine
from rlbench.lab.runs.run_table import RunTable
from rlbench.lab.runs.runs import Runs
from rlbench.training.doctor.diagnosis import Diagnosis, Tried
from rlbench.training.doctor.findings import Finding
from rlbench.training.meanings import Meaning
from rlbench.training.suggest import Suggestion, suggest
from rlbench.training.trainer import Trainer

EVIL = "<img src=x onerror=alert(1)>"
TAG = re.compile("<img src=x", re.IGNORECASE)


class Walk(gym.Env):
    "A world whose name is a page of its own"
    observation_space = gym.spaces.Dict({EVIL: gym.spaces.Discrete(3)})
    action_space = gym.spaces.Discrete(2)
    metadata = dict(render_modes=["ansi"])
    render_mode = "ansi"

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return {EVIL: 0}, {}

    def step(self, act):
        return {EVIL: int(self.np_random.integers(3))}, float(act), bool(self.np_random.random() < .1), False, {}

    def render(self):
        return EVIL


EvilWalk = type(EVIL, (Walk,), {})


def explanation(what):
    "An Explanation of a setting that somebody in a file has set"
    setting = fields_of(QLearning)[0]
    return Explanation(setting, what, [("default", .9), (what, .8)])


def run_table(cls=RunTable):
    "A table of a run in a folder that somebody has named"
    facts = dict.fromkeys(FACTS) | dict(run=EVIL, env=EVIL, algo="ppo", seed=0, greedy=1.)
    return cls("runs", [RunLine(Path("runs") / "a", "agent", facts, dict(lr=.1), dict(lr="code"))])


def flame():
    "The time of a part that somebody has named"
    return Flame(TimeNode(EVIL, 2., 1, (TimeNode(EVIL, 1., 1),)), EVIL)


def finding():
    "A finding about something that somebody has named"
    return Finding(EVIL, EVIL, EVIL, EVIL, 1., {}, {EVIL: np.ones(2)}, {EVIL: 1.})


SHOWN = {
    Flame: flame,
    FlamePair: lambda: flame().beside(flame()),
    PaperTable: lambda: PaperTable(run_table()),
    RunTable: run_table,
    Runs: lambda: run_table(Runs),
    TextTable: lambda: TextTable((EVIL, "b"), [(EVIL, 1)]),
    Explanation: lambda: explanation(EVIL),
    Explanations: lambda: Explanations([explanation(EVIL)]),
    Suggestion: lambda: suggest(EvilWalk, seconds=.4),
    Meaning: lambda: Meaning(*[EVIL] * 6, by={EVIL: "q"}),
    Diagnosis: lambda: Diagnosis(None, [finding()]),
    Finding: finding,
    Tried: lambda: Tried(EVIL, {EVIL: EVIL}, 1, 0., 0., 0., {EVIL: np.ones(2)}),
}


def with_html():
    "Every class of ours that has a form of its own in a notebook"
    modules = [importlib.import_module(one.name) for one in pkgutil.walk_packages(rlbench.__path__, "rlbench.")
               if not one.name.endswith(("__main__", "_modidx"))]
    found = [cls for module in modules for cls in vars(module).values() if inspect.isclass(cls)]
    return {cls for cls in found if cls.__module__.startswith("rlbench") and hasattr(cls, "_repr_html_")}


def test_every_class_with_a_form_for_notebooks_is_tried():
    assert with_html() == set(SHOWN)


@pytest.mark.parametrize("cls", SHOWN, ids=lambda cls: cls.__name__)
def test_forms_for_notebooks(cls):
    html = SHOWN[cls]()._repr_html_()
    assert "&lt;img" in html and not TAG.search(html)


def test_tables_about_data_and_environments():
    told = [describe(Batch({EVIL: np.zeros(3)})), check_env(EvilWalk)]
    for table in told:
        assert not TAG.search(table._repr_html_())
    assert "&lt;img" in told[0]._repr_html_()


def test_a_config_read_from_elsewhere():
    config = Config(dict(agent=QLearning))
    config.add(EVIL, dict(gamma=.5))
    assert not TAG.search(config.explain("gamma")._repr_html_())


def texts(widget, seen):
    "The HTML of a widget and of all that lie in it"
    if id(widget) in seen: return
    seen.add(id(widget))
    if isinstance(widget, (widgets.HTML, widgets.HTMLMath)):
        yield widget.value
    if getattr(widget, "description_allow_html", False):
        yield widget.description
    for name in widget.trait_names():
        part = getattr(widget, name)
        parts = part if isinstance(part, (list, tuple)) else [part]
        for one in parts:
            if isinstance(one, widgets.Widget):
                yield from texts(one, seen)


def fail(act):
    raise RuntimeError(EVIL)


@pytest.mark.parametrize("fails", [False, True])
def test_every_text_of_a_workbench(fails):
    bench = rlbench.Workbench(Trainer(EvilWalk, "qlearning", seed=0), driver="sync")
    if fails:
        bench.trainer.env.envs[0].step = fail
        with pytest.raises(RuntimeError):
            bench.step("iteration")
    else: bench.step("iteration")
    found = list(texts(bench.page.widget, set()))
    bench.close()
    assert len(found) > 10 and any("&lt;img" in text for text in found)
    assert not [text for text in found if TAG.search(text)]
