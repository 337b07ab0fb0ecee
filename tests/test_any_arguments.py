"Whatever a verb of a workbench is given, it works or says in one message what was wrong, and the run goes on"
import inspect
import traceback

import numpy as np
import pytest

from rlbench import Workbench
from rlbench.core.state import FileProblem
from rlbench.envs.env import EnvProblem
from tests.cases import demonstrations
from tests.test_any_deeds import run_of

OURS = ValueError, FileProblem, EnvProblem
RUNS = dict(
    tables=run_of("rlbench/FrozenLake-v0", "qlearning"),
    rollouts=run_of("CartPole-v1", "ppo"),
    replay=run_of("CartPole-v1", "dqn", prioritized_replay_alpha=.6),
    boxes=run_of("Pendulum-v1", "sac"),
    stream=run_of("CartPole-v1", "stream_q"),
    recurrent=run_of("rlbench/StatelessCartPole-v0", "recurrent_ppo"),
    team=run_of("rlbench/Chase-v0", dict(chaser="dqn", runner="sac")),
    parts=run_of("rlbench/SideAndForce-v0", "ppo"),
    offline=lambda: run_of("CartPole-v1", "bc", memory=demonstrations("CartPole-v1", 2))(),
)
WRONG = [None, "", "nonsense", "rew", -1, 10**12, 1.5, float("nan"), float("inf"), True, b"x", [], [1, "a"], {},
         {"nobody": 1}, np.zeros(2), np.array([]), np.array(["a"]), object(), lambda: 1, {1, 2}, (0, 0, 0)]
ALWAYS = dict(which=0, row=0, rows={}, act=0, to=3, name="one", path="there", function=len, predicate=len, steps=9,
              names="", who=None)
WITH = dict(diagnose=["who", "steps", "seconds", "seed", "seeds"], film=["seed", "max_steps", "fps", "width", "frames"],
            rollout=["steps", "times", "seed"], value_against_return=["episodes", "longest", "seed"],
            evaluate=["episodes", "seed", "greedy", "longest", "num_envs"], fork=["gamma", "lr", "num_envs"],
            beside=["gamma", "lr", "seed"], set=["gamma", "lr", "threads"], set_env=["gravity", "slip"],
            edit=["rew", "obs", "act", "term"], arrange=["cards", "hidden", "size", "side", "others", "look"])
QUICK = dict(evaluate=dict(episodes=1, longest=3), rollout=dict(steps=2, times=1), film=dict(k=1, max_steps=2),
             value_against_return=dict(episodes=1, longest=3), diagnose=dict(steps=2, seconds=.01))
CHANGING = {"act", "beside", "call", "delete", "duplicate", "edit", "go_on", "inject", "learn", "load", "place",
            "name_observations", "play", "prioritise", "reset", "rewind", "set", "set_env", "step", "switch", "until"}
INNER = {"arranged", "arrived", "close", "operated", "told", "waited"}
LONG = {"demonstrate", "diagnose", "export", "film", "flame", "fork", "image", "notebook", "play", "wait"}
ENDLESS = {"n", "episodes", "times", "steps", "longest", "num_envs", "max_steps", "frames", "seconds", "seeds"}


def verbs():
    "Names of all public methods that somebody calls"
    return [name for name, held in inspect.getmembers(Workbench, inspect.isfunction)
            if not name.startswith("_") and name not in INNER]


def calls(name, kind): # number of the run: each wrong value is given in one of them
    "Keywords of one call after another: nothing, a misspelt one, and what is wrong, an argument at a time"
    known = inspect.signature(getattr(Workbench, name)).parameters.values()
    by_name = [one for one in known if one.kind is one.POSITIONAL_OR_KEYWORD and one.name != "self"]
    needed = {one.name: ALWAYS[one.name] for one in by_name if one.default is one.empty} | QUICK.get(name, {})
    if name not in LONG: yield {}
    yield needed | dict(wrng=1)
    for turn, argument in enumerate([one.name for one in by_name] + WITH.get(name, []), start=kind):
        for wrong in WRONG[turn % len(RUNS)::len(RUNS)]:
            huge = isinstance(wrong, (int, float)) and wrong > 1e6
            long = wrong is None and name in LONG
            if long or huge and argument in ENDLESS: continue
            yield needed | {argument: wrong}


def is_clear(problem):
    "Did we say it, on purpose; or does Python say that there is no such argument of this very method?"
    deepest = traceback.extract_tb(problem.__traceback__)[-1]
    if isinstance(problem, TypeError):
        return "argument" in str(problem) and deepest.filename == __file__
    return isinstance(problem, OURS) and "raise" in deepest.line


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", RUNS)
def test_any_argument_is_taken_or_refused_in_words(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLBENCH_CONFIG_DIR", str(tmp_path))
    wb = Workbench(RUNS[kind](), views=[], driver="thread").step("event", 20)
    found = []
    try:
        for name in verbs():
            before = wb.trainer.digest()
            for given in calls(name, list(RUNS).index(kind)):
                told = f"{name}({given})"
                try: made = getattr(wb, name)(**given)
                except Exception as problem:
                    told = told, problem
                    if not is_clear(problem): found.append(told)
                else:
                    if name == "fork": made.close()
                    if name == "play": wb.pause()
                    if name in CHANGING: before = wb.trainer.digest()
                if wb.trainer.digest() != before: found.append(told)
            wb.unbreak().switch(collecting=True, learning=True).evaluate_every(None)
            for run in list(wb.forks.others): wb.drop(run.name)
            if name in CHANGING: wb.step("event")
            assert wb.player.worker.is_alive(), name
    finally:
        wb.close()
    assert not found, "\n".join(map(str, found))
