"Families of benchmarks/faults.py: environments that answer wrongly, verbs asked wrongly, things done again and again"
import gc
import os
import traceback
from functools import partial

import gymnasium as gym
import numpy as np

from benchmarks.fault_cases import RUNS, begun, go_on, ours

# ---- environments that answer what they should not

HARMLESS = {    # name -> what becomes of an answer; nothing but its form changes
    "as it was": lambda obs, rew, term, trunc, info: (obs, rew, term, trunc, info),
    "numpy numbers": lambda obs, rew, term, trunc, info: (obs, np.float64(rew), np.bool_(term), np.bool_(trunc), info),
    "flags as 0 and 1": lambda obs, rew, term, trunc, info: (obs, rew, int(term), int(trunc), info),
    "reward without axes": lambda obs, rew, *rest: (obs, np.array(rew), *rest),
    "more information": lambda obs, rew, term, trunc, info: (obs, rew, term, trunc, info | dict(told=[object()])),
    "another array": lambda obs, *rest: (obs.copy() if isinstance(obs, np.ndarray) else obs, *rest),
}
HARMFUL = {
    "four values": lambda obs, rew, term, trunc, info: (obs, rew, term, info),
    "six values": lambda obs, rew, term, trunc, info: (obs, rew, term, trunc, info, 0),
    "a list": lambda *answer: list(answer),
    "nothing": lambda *answer: None,
    "only an observation": lambda obs, *rest: obs,
    "no observation": lambda obs, *rest: (None, *rest),
    "text for an observation": lambda obs, *rest: ("here", *rest),
    "an observation with one more axis": lambda obs, *rest: (np.asarray(obs)[None], *rest),
    "an observation twice": lambda obs, *rest: (np.concatenate([np.atleast_1d(obs)] * 2), *rest),
    "an observation of objects": lambda obs, *rest: (np.array([object()] * np.size(obs)), *rest),
    "nan in the observation": lambda obs, *rest: (np.asarray(obs) * np.nan, *rest),
    "an infinite observation": lambda obs, *rest: (np.asarray(obs) + np.inf, *rest),
    "observation below all": lambda obs, *rest: (-1 if np.ndim(obs) == 0 else obs - np.inf, *rest),
    "a complex observation": lambda obs, *rest: (np.asarray(obs) + 1j, *rest),
    "nan reward": lambda obs, rew, *rest: (obs, float("nan"), *rest),
    "infinite reward": lambda obs, rew, *rest: (obs, float("inf"), *rest),
    "no reward": lambda obs, rew, *rest: (obs, None, *rest),
    "text for a reward": lambda obs, rew, *rest: (obs, "1", *rest),
    "complex reward": lambda obs, rew, *rest: (obs, 1j, *rest),
    "two rewards": lambda obs, rew, *rest: (obs, np.ones(2), *rest),
    "reward in a list": lambda obs, rew, *rest: (obs, [rew], *rest),
    "text for terminated": lambda obs, rew, term, *rest: (obs, rew, "False", *rest),
    "none for terminated": lambda obs, rew, term, *rest: (obs, rew, None, *rest),
    "a number for terminated": lambda obs, rew, term, *rest: (obs, rew, .5, *rest),
    "a list for truncated": lambda obs, rew, term, trunc, info: (obs, rew, term, [trunc], info),
    "nan for truncated": lambda obs, rew, term, trunc, info: (obs, rew, term, float("nan"), info),
}


class Odd(gym.Wrapper):
    "An environment that answers in another way, in every step from one on"

    def __init__(self, env, change, late):
        super().__init__(env)
        self.change = change
        self.late = late

    def step(self, action):
        self.late -= 1
        answer = self.env.step(action)
        return answer if self.late > 0 else self.change(*answer)


def learned(name, change, late):
    "A run in an environment that answers in another way"
    import rlbench
    env, algo, settings, events = RUNS[name]
    trainer = rlbench.Trainer(lambda: Odd(gym.make(env), change, late), algo, seed=1, **settings)
    for _ in range(events + late):
        trainer.advance()
    return trainer.learner.nets.state_dict()


def after_odd(name, change, harmful, late):
    "Learn where an environment answers oddly; what is harmless changes nothing, the other is refused"
    from rlbench.core.state import same
    try: weights = learned(name, change, late)
    except ours() as problem:
        if harmful: return "refused", str(problem)
        return "WRONG", f"refused what is harmless: {problem}"
    except Exception as problem:
        return "FOREIGN", f"{type(problem).__name__}: {problem}"
    if harmful: return "WRONG", "learned from it"
    alike = same(weights, learned(name, HARMLESS["as it was"], late))
    return ("went on", "") if alike else ("WRONG", "not the weights of the plain environment")


def wrong_environments(rng, folder):
    "(name, outcome) of runs in environments that answer oddly"
    while True:
        name = rng.choice(["ppo", "dqn", "sac", "sarsa", "recurrent"])
        harmful = rng.random() < .75
        kinds = HARMFUL if harmful else HARMLESS
        kind = rng.choice(list(kinds))
        late = rng.randrange(1, 12)
        yield f"{name}: {kind} from step {late} on", partial(after_odd, name, kinds[kind], harmful, late)


# ---- verbs that are asked for what they cannot do

ANYTHING = [None, "", "text", "5", 0, -1, 2, 2.5, -.5, 10**30, float("nan"), float("inf"), True, (), [3], {}, b"x",
            np.zeros(3), object(), "/nowhere/at/all.rlb", "step", "update", "CartPole-v1", "dqn"]
VERBS = {   # name -> what is asked of a run, with something odd
    "run": lambda run, odd: run.run(odd if not isinstance(odd, bool) else None),
    "run updates": lambda run, odd: run.run(updates=odd),
    "until": lambda run, odd: run.until(odd),
    "until n": lambda run, odd: run.until("step", odd),
    "save": lambda run, odd: run.save(odd),
    "restore": lambda run, odd: run.restore(odd),
    "owe": lambda run, odd: run.learner.owe(odd),
    "set lr": lambda run, odd: run.set(lr=odd),
    "set": lambda run, odd: run.set(**{str(odd): 1}),
    "act": lambda run, odd: run.policy.act(odd),
}
CALLS = {   # name -> what is asked of the package
    "Trainer": lambda rlbench, odd: rlbench.Trainer(odd, "ppo"),
    "Trainer of algorithm": lambda rlbench, odd: rlbench.Trainer("CartPole-v1", odd),
    "Trainer with seed": lambda rlbench, odd: rlbench.Trainer("CartPole-v1", "ppo", seed=odd),
    "Trainer with environments": lambda rlbench, odd: rlbench.Trainer("CartPole-v1", "ppo", num_envs=odd),
    "Trainer with memory": lambda rlbench, odd: rlbench.Trainer("CartPole-v1", "dqn", memory=odd),
    "Trainer with env_settings": lambda rlbench, odd: rlbench.Trainer("CartPole-v1", "ppo", env_settings=odd),
    "load": lambda rlbench, odd: rlbench.load(odd),
    "evaluate": lambda rlbench, odd: rlbench.evaluate(odd),
    "evaluate episodes": lambda rlbench, odd: rlbench.evaluate(begun("ppo"), odd, longest=5),
    "evaluate longest": lambda rlbench, odd: rlbench.evaluate(begun("ppo"), 2, longest=odd),
}
HUGE = 10**9    # what is asked for so often that nobody waits for it is left out


def is_ours(problem):
    "Whether an error was raised on purpose: by a `raise` of this package, or by Python because of a call's form"
    if isinstance(problem, ours()): return True
    if not isinstance(problem, (TypeError, ValueError, KeyError)): return False
    innermost = traceback.extract_tb(problem.__traceback__)[-1]
    raised = f"{os.sep}rlbench{os.sep}" in innermost.filename and innermost.line.startswith("raise")
    return raised or "unexpected keyword argument" in str(problem)


def after_misuse(ask, run):
    "Ask for something odd; what is refused must leave everything as it was"
    from rlbench.core.state import same
    before = None if run is None else run.snapshot()
    try: ask()
    except Exception as problem:
        if not is_ours(problem):
            return "FOREIGN", f"{type(problem).__name__}: {problem}"
        if run is not None and not same(before, run.snapshot()):
            return "WRONG", f"refused, and changed: {problem}"
        outcome = "refused", str(problem)
    else: outcome = "went on", ""
    if run is not None: go_on(run)
    return outcome


def misuse(rng, folder):
    "(name, outcome) of verbs that were asked for something odd"
    import rlbench
    os.chdir(folder)        # what is saved under an odd name lands here
    while True:
        odd = rng.choice(ANYTHING)
        if rng.random() < .5:
            verb = rng.choice(list(VERBS))
            endless = isinstance(odd, int) and odd > HUGE
            if endless and verb.startswith(("run", "until", "owe")): continue
            run = begun(rng.choice(list(RUNS)))
            assert run.policy                             # its stream of random numbers exists from now on
            yield f"{verb}({odd!r})", partial(after_misuse, partial(VERBS[verb], run, odd), run)
        else:
            call = rng.choice(list(CALLS))
            if call != "load" and isinstance(odd, int) and odd > HUGE: continue
            yield f"{call}({odd!r})", partial(after_misuse, partial(CALLS[call], rlbench, odd), None)


# ---- soak: things done again and again

def resident():
    "Memory of this process that is in use, MB"
    gc.collect()
    with open("/proc/self/statm") as told:
        return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def opened():
    "Files, pipes and sockets that are open"
    return len(os.listdir("/proc/self/fd"))


def save_and_load(run, folder):
    import rlbench
    run.save(folder / "here.rlb")
    rlbench.load(folder / "here.rlb").env.close()


def open_and_close(run, folder):
    from rlbench import Workbench
    workbench = Workbench(run.fork())
    workbench.close()


CHORES = {
    "advance": lambda run, folder: run.run(steps=20),
    "snapshot and restore": lambda run, folder: run.restore(run.snapshot()),
    "fork": lambda run, folder: run.fork().env.close(),
    "save and load": save_and_load,
    "evaluate": lambda run, folder: __import__("rlbench").evaluate(run, 1, longest=5),
    "a workbench": open_and_close,
}
ROUNDS = 4          # what leaks grows in each of them; what an allocator keeps for later does not
MAY_GROW = 8.       # MB, in a round


def after_chore(name, chore, times, folder):
    "Do it many times, in rounds; neither memory nor open files grow on and on"
    run = begun(name)
    sizes = []
    files = []
    for _ in range(ROUNDS):
        for _ in range(times): CHORES[chore](run, folder)
        sizes.append(resident())
        files.append(opened())
    grown = min(after - before for before, after in zip(sizes, sizes[1:]))
    if grown > MAY_GROW:
        return "WRONG", f"{grown:.1f} MB more after {times} times"
    if files[-1] > files[0]:
        return "WRONG", f"{files[-1] - files[0]} files more are open after {times} times"
    return "went on", ""


def soak(rng, folder):
    "(name, outcome) of things done again and again"
    while True:
        for chore in CHORES:
            name = rng.choice(list(RUNS))
            yield f"{name}: {chore}", partial(after_chore, name, chore, 60, folder)
