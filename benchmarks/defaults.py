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
    "LunarLanderContinuous-v3": (-170, 250),
    "MinAtar/Breakout-v1": (.4, 10),
}
CHOICES = ("CartPole-v1", "Acrobot-v1", "LunarLander-v3", "MinAtar/Breakout-v1")
BOXES = ("Pendulum-v1", "MountainCarContinuous-v0")
BOTH = CHOICES + BOXES
ROLLOUTS = dict(zip(BOTH, (40_000, 40_000, 150_000, 60_000, 40_000, 20_000)))
SHORT = dict(zip(BOTH, (40_000, 40_000, 80_000, 20_000, 40_000, 20_000)))
REPLAYS = dict(zip(CHOICES, (20_000, 20_000, 50_000, 30_000)))
SLOW = dict(zip(CHOICES, (20_000, 20_000, 30_000, 10_000)))
ACTIONS = {"Pendulum-v1": 5_000, "MountainCarContinuous-v0": 5_000, "LunarLanderContinuous-v3": 10_000}
STEPS = dict(                                      # of the environment, at most 6 CPU minutes a candidate
    ppo=ROLLOUTS,
    a2c=SHORT,
    trpo=SHORT,
    impala=SHORT,
    reinforce=SHORT,
    pqn=dict(zip(CHOICES, (80_000, 80_000, 150_000, 60_000))),
    dqn=REPLAYS,
    c51=SLOW,
    qr_dqn=SLOW,
    iqn=SLOW,
    rainbow=SLOW,
    stream_q=dict(zip(CHOICES, (20_000, 20_000, 20_000, 5_000))),
    stream_ac=dict(zip(BOTH, (20_000, 20_000, 20_000, 5_000, 20_000, 20_000))),
    sac=dict.fromkeys(BOXES, 5_000) | dict.fromkeys(CHOICES, 4_000),
    td3=ACTIONS,
    ddpg=ACTIONS,
    tqc=ACTIONS,
    crossq=ACTIONS,
)
SB3_DQN = dict(n_step=1, lr=1e-4, train_freq=4, gradient_steps=1, target_update_interval=10_000)
SMALL = dict(hidden=[64, 64], batch_size=128)
UNSCALED = dict(normalize_reward=False)
FRESH = dict(exploration="gaussian", exploration_noise=.1)
CANDIDATES = dict(                                 # beside the defaults as they stand
    ppo={
        "short": dict(n_steps=128, n_epochs=10, batch_size=64, lr=3e-4, gae_lambda=.95, ent_coef=0., **UNSCALED),
        "CleanRL": dict(n_steps=128, n_epochs=4, batch_size=256, lr=1e-3, gae_lambda=.95, ent_coef=.01, **UNSCALED),
        "SB3": dict(n_steps=256, n_epochs=10, batch_size=64, lr=3e-4, gae_lambda=.95, ent_coef=0., **UNSCALED),
        "middle": dict(n_steps=256, n_epochs=10, batch_size=128, lr=6e-4, gae_lambda=.95, ent_coef=.01, **UNSCALED),
        "long": dict(n_steps=512, n_epochs=10, batch_size=64, lr=3e-4, gae_lambda=.98, ent_coef=.01, **UNSCALED),
        "unscaled": UNSCALED,
    },
    a2c={
        "no entropy": dict(ent_coef=0.),
        "long": dict(n_steps=16, gae_lambda=.95),
        "scaled": dict(normalize_reward=True),
        "even": dict(normalize_advantage=True),
        "even, scaled": dict(normalize_advantage=True, normalize_reward=True),
        "even, long, scaled": dict(n_steps=16, gae_lambda=.95, normalize_advantage=True, normalize_reward=True),
    },
    trpo={
        "SB3": dict(n_steps=256, **UNSCALED),
        "bold": dict(n_steps=128, target_kl=.02, **UNSCALED),
        "unscaled": UNSCALED,
        "SB3, scaled": dict(n_steps=256),
    },
    impala={
        "no entropy": dict(ent_coef=0.),
        "RLlib": dict(n_steps=50, lr=5e-4),
        "middle": dict(n_steps=20, lr=7e-4),
        "scaled": dict(normalize_reward=True),
        "RLlib, scaled": dict(n_steps=50, lr=5e-4, normalize_reward=True),
        "even, scaled": dict(normalize_advantage=True, normalize_reward=True),
    },
    reinforce={
        "steep": dict(lr=.01),
        "few": dict(n_episodes=2),
    },
    pqn={
        "CleanRL": dict(num_envs=4, n_steps=128, lr=2.5e-4, batch_size=128),
        "steep": dict(lr=1e-3),
    },
    dqn={"SB3": SB3_DQN},
    c51={"CleanRL": dict(n_step=1, lr=2.5e-4, train_freq=10, gradient_steps=1, target_update_interval=500)},
    qr_dqn={"SB3": SB3_DQN | dict(lr=5e-5, quantiles=200)},
    iqn={"many": dict(samples=32)},
    rainbow={"without noise": dict(noisy=False)},
    stream_q={"intentional": dict(step_rule="intentional")},
    stream_ac={"bounded": dict(step_rule="obgd")},
    sac={
        "small": dict(lr=3e-4, critic_lr=1e-3, **SMALL),
        "quick": dict(lr=1e-3, critic_lr=1e-3, tau=.01, batch_size=256, hidden=[256, 256]),
    },
    td3={
        "fresh": FRESH,
        "small": SMALL | FRESH,
        "noisy": FRESH | dict(exploration_noise=.3),
    },
    ddpg={
        "fresh": FRESH,
        "small": SMALL | FRESH,
    },
    tqc={
        "small": SMALL,
        "steep": dict(lr=1e-3),
    },
    crossq={
        "small": SMALL | dict(critic_hidden=[128, 128]),
        "steep": dict(lr=1e-3),
    },
)


def whole(algo, settings):
    "Every setting of an algorithm, its defaults with these instead"
    from rlbench.algos.algorithm import get
    cls = get(algo)
    found = dict(num_envs=cls.num_envs) | asdict(cls()) | settings
    return json.loads(json.dumps(found, default=str))     # as a row has them that was read


@dataclass(frozen=True)
class Trial(Task):
    "A candidate on one task"
    candidate: str = ""

    @property
    def whole(self):
        return whole(self.algo, self.settings)


def candidates_of(algo):
    "{name: settings}: the defaults as they stand, and the others"
    return {"as it stands": {}} | CANDIDATES[algo]


def trials(algo):
    "Every candidate on every task"
    return [Trial(env, algo, steps, WORLDS[env][1], "", settings, candidate=name)
            for name, settings in candidates_of(algo).items() for env, steps in STEPS[algo].items()]


def train_trial(trial, seed):
    "One seed of a candidate on one task"
    known = dict(name=f"{trial.algo} {trial.candidate}, {trial.env}", env=trial.env, algo=trial.algo, asked=trial.steps,
                 settings=trial.whole)
    row = known | train(trial, seed, LOOKS, FINAL)
    del row["task"]
    return row


def read_kept():
    "Rows of what was measured"
    return json.loads(KEPT.read_text()) if KEPT.exists() else []


def is_of(row, trial):
    "True where a row was measured by a trial's settings; one that came later is taken at its default"
    same = (row["env"], row["algo"], row["asked"]) == (trial.env, trial.algo, trial.steps)
    return same and whole(trial.algo, row["settings"]) == trial.whole


def runs_of(trial, kept):
    "The rows of a trial, by seed"
    return sorted((row for row in kept if is_of(row, trial)), key=lambda row: row["seed"])


def share(env, mean):
    "How far a return has come from chance (0) to a good one (1)"
    low, high = WORLDS[env]
    return min(max((mean - low) / (high - low), 0.), 1.)


def share_of(trial, kept):
    "How far the seeds of a trial came, on average; None where there are none"
    shares = [share(trial.env, row["mean"]) for row in runs_of(trial, kept)]
    return sum(shares) / len(shares) if shares else None


def worth(algo, name, kept):
    "The mean of a candidate over its tasks; None where it was not measured on all of them"
    shares = [share_of(trial, kept) for trial in trials(algo) if trial.candidate == name]
    return None if None in shares else sum(shares) / len(shares)


def means(rows):
    "Returns of the seeds of a trial, as text"
    return " ".join(f"{row['mean']:.4g}" for row in rows) or "–"


def candidate_line(algo, name, kept):
    "One line of the table; nothing where nothing was measured"
    found = [runs_of(trial, kept) for trial in trials(algo) if trial.candidate == name]
    seeds = max(map(len, found))
    if not seeds: return []
    cells = [means(rows) for rows in found]
    minutes = sum(row["minutes"] for row in sum(found, [])) / seeds
    whole_worth = worth(algo, name, kept)
    return [line([name, *cells, f"{minutes:.1f}", "–" if whole_worth is None else f"{whole_worth:.3f}"])]


def told(settings):
    "Settings in words"
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def table(algo, kept):
    "The lines of an algorithm; none where nothing was measured"
    found = {}
    for name in candidates_of(algo):
        found[name] = candidate_line(algo, name, kept)
    rows = sum(found.values(), [])
    if not rows: return []
    heads = [f"{env.partition('/')[2] or env} {count // 1000}k" for env, count in STEPS[algo].items()]
    head = line(["candidate", *heads, "CPU min a seed", "worth"])
    others = [f"* {name}: `{told(settings)}`" for name, settings in CANDIDATES[algo].items() if found[name]]
    stands = f"As it stands: `{told(whole(algo, {}))}`; of the others:"
    return [f"## {algo}", "", head, line(["---"] * (len(heads) + 3)), *rows, "", stands, "", *others, ""]


def page(kept):
    "The whole page"
    ends = [f"{env} {low:g} and {high:g}" for env, (low, high) in WORLDS.items()]
    lines = [
        "# Defaults",
        "",
        "`python benchmarks/defaults.py --write`",
        "",
        f"Mean greedy return of {FINAL} episodes for each seed from {FIRST} on, a column for each task and its steps.",
        "A return counts from 0, that of chance, to 1, a good one:",
        f"{'; '.join(ends)}.",
        "*Worth* is the mean over the tasks.",
        "",
    ]
    tables = [text for algo in STEPS for text in table(algo, kept)]
    return "\n".join(lines + tables)


def write(kept):
    "All rows, and the page"
    put({KEPT: as_lines(kept), RESULTS / "defaults.md": page(kept)})


def wanted(args, kept):
    "[(trial, seed), …] of what is asked for and missing; the first seed of all, then the next"
    asked = [trial for algo in args.algos for trial in trials(algo)
             if (not args.only or trial.candidate in args.only) and (not args.envs or trial.env in args.envs)]
    found = {}
    for seed in range(FIRST, FIRST + args.seeds):
        for trial in asked:
            there = any(row["seed"] == seed for row in runs_of(trial, kept))
            if not there:
                found[str(trial.whole), trial.env, seed] = trial, seed
    return list(found.values())


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--algos", nargs="+", choices=STEPS, default=list(STEPS))
    args.add_argument("--only", nargs="+", help="candidates")
    args.add_argument("--envs", nargs="+", choices=WORLDS)
    args.add_argument("--seeds", type=int, default=2)
    args.add_argument("--workers", type=int, default=os.cpu_count())
    args.add_argument("--write", action="store_true")
    args = args.parse_args()

    kept = read_kept() if args.write else []
    jobs = wanted(args, kept)
    print(f"{len(jobs)} runs to make", flush=True)
    for row in measure(jobs, args.workers, train_trial):
        kept.append(row)
        if args.write: write(kept)
    if args.write: write(kept)
    print(page(kept))


if __name__ == "__main__":
    main()
