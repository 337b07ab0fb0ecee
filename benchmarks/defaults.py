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
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.defaults_rule import (
    LONGER, SEEDS, STANDS, ahead_of_defaults, candidates_of, minutes_of, places_short_of_seeds, runs_by_task, runs_of,
    short_name, trials, whole, worth_of)
from benchmarks.defaults_tasks import CANDIDATES, KINDS, STEPS, WORLDS
from benchmarks.learning import as_lines, measure, put, train
from benchmarks.learning_page import line

RESULTS = Path(__file__).resolve().parent / "results"
KEPT = RESULTS / "defaults.json"
FIRST = 100                                        # of the seeds
LOOKS = 5                                          # at the policy on the way
FINAL = 50                                         # episodes at the end


def train_trial(trial, seed):
    "One seed of a candidate on one task"
    known = dict(name=f"{trial.algo} {trial.candidate}, {trial.env}", env=trial.env, algo=trial.algo, asked=trial.steps)
    row = known | train(trial, seed, LOOKS, FINAL)
    del row["task"]
    return row


def read_kept():
    "Rows of what was measured"
    return json.loads(KEPT.read_text()) if KEPT.exists() else []


def means(rows):
    "Returns of the seeds of a trial, as text"
    return " ".join(f"{row['mean']:.4g}" for row in rows) or "–"


def in_numbers(value):
    "A worth as text"
    return "–" if value is None else f"{value:.3f}"


def candidate_line(algo, name, kept):
    "One line of the table; nothing where nothing was measured"
    found = runs_by_task(algo, name, kept)
    if not any(found.values()): return []
    cells = [means(rows) for rows in found.values()]
    return [line([name, *cells, f"{minutes_of(found):.1f}", in_numbers(worth_of(found))])]


def told(settings):
    "Settings in words"
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def head_of(env, steps):
    "Head of a column: the task and its steps, if there are any"
    return f"{short_name(env)} {steps // 1000}k" if steps else short_name(env)


def table(algo, kept):
    "The lines of an algorithm; none where nothing was measured"
    found = {}
    for name in candidates_of(algo):
        found[name] = candidate_line(algo, name, kept)
    rows = sum(found.values(), [])
    if not rows: return []
    heads = [head_of(env, count) for env, count in STEPS[algo].items()]
    head = line(["candidate", *heads, "CPU min a seed", "worth"])
    others = [f"* {name}: `{told(settings)}`" for name, settings in CANDIDATES[algo].items() if found[name]]
    stands = f"As it stands: `{told(whole(algo, {}))}`; of the others:"
    short = short_of_seeds(algo, kept)
    return [f"## {algo}", "", head, line(["---"] * (len(heads) + 3)), *rows, "", *short, stands, "", *others, ""]


def short_of_seeds(algo, kept):
    "Says so where the defaults have fewer seeds than the rule asks for"
    places = places_short_of_seeds(runs_by_task(algo, STANDS, kept))
    return [f"The defaults have fewer seeds on {places} than the {SEEDS} that the rule asks for.", ""] if places else []


def told_sets():
    "Which kind of data set each algorithm is given"
    found = {}
    for algo, kind in KINDS.items(): found.setdefault(kind, []).append(algo)
    return "; ".join(f"{kind} for {', '.join(algos)}" for kind, algos in found.items())


RULE = f"""A candidate takes the place of the defaults where it is worth more

* by at least {SEEDS} seeds on every task, its own and those of the defaults;
* by more than seeds of the same settings differ, of those that were on all tasks;
* in at most {LONGER} times the minutes;
* and without a schedule that ends where these runs end, for no default can know where that is.

A single seed only sorts out what is clearly worse. These are worth more than the defaults, and stay candidates for what
they miss:
"""


def exceptions(kept):
    "The table of the candidates that are worth more than the defaults"
    columns = ("algorithm", "candidate", "worth", "of the defaults", "CPU min", "of the defaults", "misses")
    lines = [line(columns), line(["---"] * len(columns))]
    for algo in STEPS:
        stands = runs_by_task(algo, STANDS, kept)
        for name, missed in ahead_of_defaults(algo, kept).items():
            found = runs_by_task(algo, name, kept)
            worths = [in_numbers(worth_of(runs)) for runs in (found, stands)]
            minutes = [f"{minutes_of(runs):.1f}" for runs in (found, stands)]
            lines.append(line([algo, name, *worths, *minutes, "; ".join(missed) or "nothing: it takes the place"]))
    return lines


def seeds_told(kept):
    "Which algorithms have fewer seeds of their defaults than the rule asks for"
    places = {algo: places_short_of_seeds(runs_by_task(algo, STANDS, kept)) for algo in STEPS}
    wholly = [algo for algo, where in places.items() if where == "every task"]
    partly = [f"{algo} ({where})" for algo, where in places.items() if where and algo not in wholly]
    enough = sum(not where for where in places.values())
    if enough == len(places):
        return [f"The defaults of all {enough} algorithms have {SEEDS} seeds or more on every task."]
    return [
        f"The defaults of {enough} of the {len(places)} algorithms have {SEEDS} seeds or more on every task. Those of",
        "the others have fewer, too few to choose between close candidates:",
        "",
        f"* on every task: {', '.join(wholly) or 'none'};",
        f"* on some: {', '.join(partly) or 'none'}.",
    ]


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
        f"Given data: {told_sets()} (datasets.py).",
        "",
        RULE,
        *exceptions(kept),
        "",
        *seeds_told(kept),
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
