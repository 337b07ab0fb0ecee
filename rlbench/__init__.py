"""A workbench for reinforcement learning: step it by hand in a notebook, or run the same code at full speed."""
import importlib.util
import sys

__version__ = "0.1.0"

HOMES = dict( # what can be had from here, and the module it lives in
    Actor="training.actor",
    Algorithm="algos.algorithm",
    Batch="core.batch",
    FileProblem="core.state",
    Runs="lab.runs.runs",
    Trainer="training.trainer",
    Workbench="lab.page.workbench",
    algorithms="algos.algorithm",
    check_env="envs.find",
    describe="core.batch",
    estimate="training.estimate",
    evaluate="training.evaluate",
    explain="training.explain",
    film="training.films",
    load="training.trainer",
    make="envs.find",
    play="launch.commands",
    record="training.record",
    register="algos.algorithm",
    suggest="training.suggest",
    train="training.train",
)


def __getattr__(name):
    "Everything is imported when it is asked for: the command line answers before torch is there"
    if name not in HOMES:
        raise AttributeError(f"module 'rlbench' has no attribute {name!r}; it has {', '.join(HOMES)}")
    return getattr(importlib.import_module(f"rlbench.{HOMES[name]}"), name)


def __dir__():
    return [*globals(), *HOMES]


class TellGymnasium:
    "An import hook: once gymnasium is imported, it knows our environments by their ids"

    def find_spec(self, name, path=None, target=None):
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_and_tell(module):
            load(module)
            register_environments()

        spec.loader.exec_module = load_and_tell
        return spec


def register_environments():
    "Tell gymnasium about our environments"
    importlib.import_module("rlbench.envs.registration").register_all()


if "gymnasium" in sys.modules:
    register_environments()
else:
    sys.meta_path.insert(0, TellGymnasium())
