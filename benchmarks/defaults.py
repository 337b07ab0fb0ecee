"""Which defaults? Candidates for an algorithm's settings, on the tasks that fit it, by seeds that no other table uses.

    python benchmarks/defaults.py [--algos ppo dqn sac] [--only NAME ...] [--envs ID ...] [--seeds 2] [--write]

Each return is held against that of chance (0) and a good one (1), and cut there; a candidate is worth the mean over its
tasks. --write keeps each run as it ends in benchmarks/results/defaults.json, and the page in defaults.md. A run is
known by all the settings that it had: what was measured as a candidate counts for the defaults once they are the same.
"""
import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.learning import as_lines, measure, put, train
from benchmarks.learning_page import line
from benchmarks.learning_tasks import Task

RESULTS = Path(__file__).resolve().parent / "results"
KEPT = RESULTS / "defaults.json"
FIRST = 100                                        # of the seeds
LOOKS = 5                                          # at the policy on the way
FINAL = 50                                         # episodes at the end
WORLDS = {                                         # what chance returns, and what is good
    "CartPole-v1": (22, 500),
    "Acrobot-v1": (-500, -80),
    "LunarLander-v3": (-170, 250),
    "Pendulum-v1": (-1240, -150),
    "MountainCarContinuous-v0": (-33, 94),
    "MinAtar/Breakout-v1": (.4, 10),
}
CHOICES = ("CartPole-v1", "Acrobot-v1", "LunarLander-v3", "MinAtar/Breakout-v1")
BOXES = ("Pendulum-v1", "MountainCarContinuous-v0")
ROLLOUTS = dict(zip(CHOICES + BOXES, (40_000, 40_000, 150_000, 60_000, 40_000, 20_000)))
REPLAYS = dict(zip(CHOICES, (20_000, 20_000, 50_000, 30_000)))
STEPS = dict(                                      # of the environment, at most 6 CPU minutes a candidate
    ppo=ROLLOUTS,
    dqn=REPLAYS,
    sac=dict.fromkeys(BOXES, 5_000) | dict.fromkeys(CHOICES, 4_000),
)
CANDIDATES = dict(                                 # beside the defaults as they stand
    ppo={
        "short": dict(n_steps=128, n_epochs=10, batch_size=64, lr=3e-4, gae_lambda=.95, ent_coef=0.),
        "CleanRL": dict(n_steps=128, n_epochs=4, batch_size=256, lr=1e-3, gae_lambda=.95, ent_coef=.01),
        "SB3": dict(n_steps=256, n_epochs=10, batch_size=64, lr=3e-4, gae_lambda=.95, ent_coef=0.),
        "steep": dict(n_steps=256, n_epochs=10, batch_size=128, lr=1e-3, gae_lambda=.95, ent_coef=.01),
        "long": dict(n_steps=512, n_epochs=10, batch_size=64, lr=3e-4, gae_lambda=.98, ent_coef=.01),
    },
    dqn={
        "SB3": dict(n_step=1, lr=1e-4, train_freq=4, gradient_steps=1, target_update_interval=10_000),
    },
    sac={
        "small": dict(lr=3e-4, critic_lr=1e-3, batch_size=128, hidden=[64, 64]),
        "quick": dict(lr=1e-3, critic_lr=1e-3, tau=.01, batch_size=256, hidden=[256, 256]),
    },
)


def whole(algo, settings):
    "Every setting of an algorithm, its defaults with these instead"
    from rlbench.algos.algorithm import get
    cls = get(algo)
    found = dict(num_envs=cls.num_envs) | asdict(cls()) | settings
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


@dataclass(frozen=True)
class Trial(Task):
    "A candidate on one task"
    candidate: str = ""

    @property
    def told(self):
        chosen = ", ".join(f"{name}={value!r}" for name, value in whole(self.algo, self.settings).items())
        return f"{self.env}, {self.algo}, {self.steps:,} steps, {chosen}"

    def trainer(self, seed):
        if self.env.startswith("MinAtar"):
            from minatar.gym import register_envs
            register_envs()
        return super().trainer(seed)


def candidates_of(algo):
    "{name: settings}: the defaults as they stand, and the others"
    return {"as it stands": {}} | CANDIDATES[algo]


def trials(algo):
    "Every candidate on every task"
    return [Trial(env, algo, steps, WORLDS[env][1], "", settings, candidate=name)
            for name, settings in candidates_of(algo).items() for env, steps in STEPS[algo].items()]


def train_trial(trial, seed):
    "One seed of a candidate on one task"
    return dict(name=f"{trial.algo} {trial.candidate}, {trial.env}") | train(trial, seed, LOOKS, FINAL)


def read_kept():
    "{(all settings, seed): row} of what was measured"
    rows = json.loads(KEPT.read_text()) if KEPT.exists() else []
    return {(row["task"], row["seed"]): row for row in rows}


def share(env, mean):
    "How far a return has come from chance (0) to a good one (1)"
    low, high = WORLDS[env]
    return min(max((mean - low) / (high - low), 0.), 1.)


def runs_of(trial, kept):
    "The rows of a trial, of any seed"
    return [row for (told, _), row in kept.items() if told == trial.told]


def worth(algo, kept):
    "{candidate: its mean over tasks} of those that were measured on all of them"
    shares = {}
    for trial in trials(algo):
        rows = runs_of(trial, kept)
        reached = sum(share(trial.env, row["mean"]) for row in rows) / len(rows) if rows else None
        shares.setdefault(trial.candidate, []).append(reached)
    return {name: sum(some) / len(some) for name, some in shares.items() if None not in some}


def candidate_line(algo, name, kept):
    "One line of the table"
    mine = [trial for trial in trials(algo) if trial.candidate == name]
    found = [runs_of(trial, kept) for trial in mine]
    cells = [" ".join(f"{row['mean']:.4g}" for row in rows) or "–" for rows in found]
    minutes = sum(row["minutes"] for rows in found for row in rows) / max(map(len, found), default=1)
    whole_worth = worth(algo, kept).get(name)
    return line([name, *cells, f"{minutes:.1f}", "–" if whole_worth is None else f"{whole_worth:.3f}"])


def table(algo, kept):
    "The lines of an algorithm"
    steps = STEPS[algo]
    heads = [f"{env.partition('/')[2] or env} {count // 1000}k" for env, count in steps.items()]
    found = [name for name in candidates_of(algo)
             if any(runs_of(trial, kept) for trial in trials(algo) if trial.candidate == name)]
    settings = [f"* {name}: `{', '.join(f'{k}={v!r}' for k, v in whole(algo, candidates_of(algo)[name]).items())}`"
                for name in found]
    return [
        f"## {algo}",
        "",
        line(["candidate", *heads, "CPU min a seed", "worth"]),
        line(["---"] * (len(heads) + 3)),
        *[candidate_line(algo, name, kept) for name in found],
        "",
        *settings,
        "",
    ]


def page(kept):
    "The whole page"
    ends = [f"{env} {low:g} and {high:g}" for env, (low, high) in WORLDS.items()]
    lines = [
        "# Defaults",
        "",
        "`python benchmarks/defaults.py --write`",
        "",
        f"Mean greedy return of {FINAL} episodes for each seed from {FIRST} on, a column for each task and its steps. A "
        f"return counts from 0, that of chance, to 1, a good one: {'; '.join(ends)}. *Worth* is the mean over the tasks.",
        "",
    ]
    return "\n".join(lines + [text for algo in STEPS for text in table(algo, kept)])


def wanted(args):
    "[(trial, seed), …] of what is asked for; the first seed of all, then the next"
    some = [trial for algo in args.algos for trial in trials(algo)
            if (not args.only or trial.candidate in args.only) and (not args.envs or trial.env in args.envs)]
    by_settings = {trial.told: trial for trial in some}
    return [(trial, FIRST + n) for n in range(args.seeds) for trial in by_settings.values()]


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--algos", nargs="+", choices=STEPS, default=list(STEPS))
    args.add_argument("--only", nargs="+", help="candidates")
    args.add_argument("--envs", nargs="+", choices=WORLDS)
    args.add_argument("--seeds", type=int, default=2)
    args.add_argument("--workers", type=int, default=os.cpu_count())
    args.add_argument("--write", action="store_true")
    args = args.parse_args()

    kept = read_kept() if args.write else {}
    jobs = wanted(args)
    missing = [(trial, seed) for trial, seed in jobs if (trial.told, seed) not in kept]
    print(f"{len(missing)} of {len(jobs)} runs to make", flush=True)
    for row in measure(missing, args.workers, train_trial):
        kept[row["task"], row["seed"]] = row
        if args.write: put({KEPT: as_lines(kept.values()), RESULTS / "defaults.md": page(kept)})
    print(page(kept))


if __name__ == "__main__":
    main()
