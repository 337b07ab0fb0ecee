"What the families of benchmarks/faults.py share: outcomes, short runs, and what a run must be able to do"
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUTCOMES = ("refused", "went on", "FOREIGN", "CRASHED", "WRONG")
FAULTS = OUTCOMES[2:]
AFTERWARDS = 12         # events that a run must go on for, once it was accepted
RUNS = {                # name -> (environment, algorithm, settings, events before it is saved)
    "ppo": ("CartPole-v1", "ppo", dict(num_envs=2, n_steps=8, batch_size=8, n_epochs=2), 13),
    "dqn": ("CartPole-v1", "dqn", dict(learning_starts=8, batch_size=4, buffer_size=40,
                                       prioritized_replay_alpha=.5), 60),
    "sac": ("Pendulum-v1", "sac", dict(learning_starts=8, batch_size=4, buffer_size=40, hidden=(8,)), 40),
    "sarsa": ("rlbench/CliffWalk-v0", "sarsa", {}, 30),
    "sweeping": ("rlbench/DynaMaze-v0", "prioritised_sweeping", {}, 60),
    "recurrent": ("rlbench/StatelessCartPole-v0", "recurrent_ppo", dict(num_envs=2, n_steps=8, hidden=(8,)), 20),
}


def ours():
    "The errors that are ours"
    from rlbench.core.state import FileProblem
    from rlbench.core.words import ConfigError
    from rlbench.envs.env import EnvProblem
    from rlbench.training.learner import NotFinite
    from rlbench.training.rule import BrokenOff
    from rlbench.training.checkpoints import RunProblem
    return FileProblem, ConfigError, EnvProblem, RunProblem, BrokenOff, NotFinite


def begun(name):
    "A short run in the middle of things"
    import rlbench
    env, algo, settings, events = RUNS[name]
    trainer = rlbench.Trainer(env, algo, seed=1, **settings)
    for _ in range(events):
        trainer.advance()
    return trainer


def outcome_of(make, use):
    "How it ends to make something, and to use it then"
    try: made = make()
    except ours() as problem:
        return "refused", str(problem)
    except Exception as problem:
        return "FOREIGN", f"{type(problem).__name__}: {problem}"
    try: use(made)
    except ours() as problem:
        return "refused", str(problem)
    except Exception as problem:
        return "CRASHED", f"{type(problem).__name__}: {problem}"
    return "went on", ""


def go_on(trainer):
    "What a run must be able to do, once it was accepted"
    for _ in range(AFTERWARDS):
        trainer.advance()
    trainer.snapshot()
    trainer.env.close()
