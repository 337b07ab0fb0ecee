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
    "stream_q": ("CartPole-v1", "stream_q", dict(hidden=(8,)), 40),
    "stream_ac": ("Pendulum-v1", "stream_ac", dict(num_envs=2, hidden=(8,)), 40),
    "trpo": ("Pendulum-v1", "trpo", dict(num_envs=2, n_steps=8, hidden=(8,), normalize_obs=True), 20),
    "impala": ("CartPole-v1", "impala", dict(num_envs=2, n_steps=4, staleness=2, hidden=(8,)), 30),
    "pqn": ("CartPole-v1", "pqn", dict(num_envs=2, n_steps=8, batch_size=8, hidden=(8,)), 20),
    "rainbow": ("CartPole-v1", "rainbow", dict(learning_starts=8, batch_size=4, buffer_size=40, hidden=(8,)), 40),
    "iqn": ("CartPole-v1", "iqn", dict(learning_starts=8, batch_size=4, buffer_size=40, hidden=(8,)), 40),
    "r2d2": ("rlbench/StatelessCartPole-v0", "r2d2", dict(num_envs=2, batch_size=2, sequence_length=4, burn_in=2,
                                                          learning_starts=8, train_freq=4, hidden=(8,)), 60),
    "td3": ("Pendulum-v1", "td3", dict(learning_starts=8, batch_size=4, buffer_size=40, hidden=(8,)), 40),
    "crossq": ("Pendulum-v1", "crossq", dict(learning_starts=8, batch_size=4, buffer_size=40, hidden=(8,),
                                             critic_hidden=(8,)), 40),
    "tqc": ("Pendulum-v1", "tqc", dict(learning_starts=8, batch_size=4, buffer_size=40, hidden=(8,)), 40),
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
