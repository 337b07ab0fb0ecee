"When does a candidate take the place of the defaults? What its runs are worth, how many there are, what they took"
from dataclasses import dataclass

from benchmarks.defaults_tasks import CANDIDATES, KINDS, SETS, STEPS, WORLDS
from benchmarks.learning_tasks import Task, whole

STANDS = "as it stands"
SEEDS = 2                                          # on every task, of the candidate and of the defaults
LONGER = 1.25                                      # times the minutes of the defaults, at most


@dataclass(frozen=True)
class Trial(Task):
    "A candidate on one task"
    candidate: str = ""


def candidates_of(algo):
    "{name: settings}: the defaults as they stand, and the others"
    return {STANDS: {}} | CANDIDATES[algo]


def set_for(algo, env):
    "Name of the data set that is given; None where there is none"
    return f"{SETS[env]}-{KINDS[algo]}" if algo in KINDS else None


def trials(algo):
    "Every candidate on every task"
    return [Trial(env, algo, steps, WORLDS[env][1], "", settings, memory=set_for(algo, env), candidate=name)
            for name, settings in candidates_of(algo).items() for env, steps in STEPS[algo].items()]


def is_of(row, trial):
    "True where a row was measured by a trial's settings; one that came later is taken at its default"
    same = (row["env"], row["algo"], row["asked"]) == (trial.env, trial.algo, trial.steps)
    return same and whole(trial.algo, row["settings"]) == trial.whole


def runs_of(trial, kept):
    "The rows of a trial, by seed"
    return sorted((row for row in kept if is_of(row, trial)), key=lambda row: row["seed"])


def runs_by_task(algo, name, kept):
    "{environment: rows} of a candidate"
    return {trial.env: runs_of(trial, kept) for trial in trials(algo) if trial.candidate == name}


# ---- what runs are worth, and what they took

def share(env, mean):
    "How far a return has come from chance (0) to a good one (1)"
    low, high = WORLDS[env]
    return min(max((mean - low) / (high - low), 0.), 1.)


def mean_of(values):
    "The mean of a list that is not empty"
    return sum(values) / len(values)


def share_of(env, rows):
    "How far the seeds of a candidate came on one task, on average"
    return mean_of([share(env, row["mean"]) for row in rows])


def worth_of(found):
    "The mean over the tasks of what their seeds came to; None where one of them has none"
    if not all(found.values()): return None
    return mean_of([share_of(env, rows) for env, rows in found.items()])


def worth(algo, name, kept):
    "The mean of a candidate over its tasks; None where it was not measured on all of them"
    return worth_of(runs_by_task(algo, name, kept))


def minutes_of(found):
    "Of one seed on all tasks that were measured"
    total = 0.
    for rows in found.values():
        if rows: total += mean_of([row["minutes"] for row in rows])
    return total


def spread_of(found):
    "How far seeds of the same settings differ in worth, of those that were on all tasks; 0 where there are not two"
    shares = {}
    for env, rows in found.items():
        for row in rows:
            shares.setdefault(row["seed"], []).append(share(env, row["mean"]))
    worths = [mean_of(its) for its in shares.values() if len(its) == len(found)]
    return max(worths) - min(worths) if worths else 0.


def short_name(env):
    "An environment's name without its family"
    return env.partition("/")[2] or env


def places_short_of_seeds(found):
    "The tasks that have fewer seeds than the rule asks for, in words; nothing where there are none"
    short = [short_name(env) for env, rows in found.items() if len(rows) < SEEDS]
    return "every task" if len(short) == len(found) else ", ".join(short)


# ---- the rule

def ends_with_runs(algo, name):
    "True where a schedule of a candidate ends where these runs end"
    ends = tuple(f", {steps})" for steps in STEPS[algo].values() if steps)
    return any(str(value).endswith(ends) for value in candidates_of(algo)[name].values())


def misses(algo, name, kept):
    "What a candidate that is worth more than the defaults misses to take their place, in words; none: it takes it"
    found = runs_by_task(algo, name, kept)
    stands = runs_by_task(algo, STANDS, kept)
    few = places_short_of_seeds(found)
    if few: yield f"fewer than {SEEDS} seeds on {few}"
    few = places_short_of_seeds(stands)
    if few: yield f"fewer than {SEEDS} seeds of the defaults on {few}"
    times = minutes_of(found) / minutes_of(stands)
    if times > LONGER: yield f"{times:.2f} times the minutes"
    ahead = worth_of(found) - worth_of(stands)
    differ = max(spread_of(found), spread_of(stands))
    if ahead <= differ:
        yield f"ahead by {ahead:.3f} where seeds of the same settings differ by {differ:.3f}"
    if ends_with_runs(algo, name):
        yield "its schedule ends where these runs end"


def ahead_of_defaults(algo, kept):
    "{candidate: what it misses} of those that are worth more than the defaults"
    stands = worth(algo, STANDS, kept)
    if stands is None: return {}
    worths = {name: worth(algo, name, kept) for name in CANDIDATES[algo]}
    better = [name for name, its in worths.items() if its is not None and its > stands]
    return {name: list(misses(algo, name, kept)) for name in better}
