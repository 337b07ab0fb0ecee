"The learning table as a page: medians, interquartile means with intervals, curves, and how often how much is reached"
import math
import statistics

import numpy as np
from matplotlib.ticker import EngFormatter

from benchmarks.learning_tasks import FAMILIES, FAMILY, TASKS, why_stale
from rlbench.core.intervals import DRAWS, iqm, iqm_interval

COLUMNS = ("task", "environment", "algorithm", "steps", "seeds", "median", "IQM [95 %]", "worst", "CPU min", "level",
           "")
INTRO = """# Learning

`python benchmarks/learning.py --write`

Mean return of 100 greedy episodes a seed, on environments of their own, seeds 0 to 4. The median seed is held against
the level. IQM: the mean without the lowest and the highest quarter of the seeds, rounded down (of five, one each), with
a 95 % interval by drawing the seeds anew (Agarwal et al., 2021, and rliable). CPU minutes: of training one seed,
without looking at it. Rows in MuJoCo count as long, and are run apart.
Who only predicts (td, td_lambda, linear_td) has no return to show; [textbook.md](textbook.md) tells the errors.
"""


def line(cells):
    "A line of a table"
    return f"| {' | '.join(cells)} |"


def level_of(name, rows):
    "What the median seed must reach"
    task = TASKS[name]
    return rows[0]["best"] if task.level is None else task.level


def verdict(name, rows):
    "Whether the median seed reached the level, and which seeds tell of other settings than today's"
    task = TASKS[name]
    is_reached = statistics.median([row["mean"] for row in rows]) >= level_of(name, rows) - 1e-6
    reached = "reached" if is_reached else f"not reached{'; ' * bool(task.note)}{task.note}"
    stale = {}
    for row in rows:
        why = why_stale(row)
        if why: stale.setdefault(why, []).append(str(row["seed"]))
    told = [f"to be run again: seed {' '.join(seeds)}, {why}" for why, seeds in stale.items()]
    return "; ".join([reached, *told])


def table_row(name, rows):
    "One line of the table"
    task = TASKS[name]
    means = [row["mean"] for row in rows]
    level = level_of(name, rows)
    low, high = iqm_interval(means)
    minutes = [row["minutes"] for row in rows if row["minutes"] is not None]
    return line([
        name,
        task.env,
        task.algo,
        f"{task.steps:,}{' (long)' * task.long}",
        str(len(rows)),
        f"{statistics.median(means):.2f}",
        f"{iqm(np.array(means)):.2f} [{low:.2f}, {high:.2f}]",
        f"{min(means):.2f}",
        f"{statistics.median(minutes):.1f}" if minutes else "-",
        f"{level:g} ({task.source})",
        verdict(name, rows),
    ])


def by_task(rows):
    "{task: its rows}"
    found = {}
    for row in rows:
        found.setdefault(row["name"], []).append(row)
    return found


def family_lines(family, found):
    "The table of a family; nothing where nothing of it was run"
    names = [name for name in FAMILIES[family] if name in found]
    if not names: return []
    head = [f"## {family[0].upper()}{family[1:]}", "", line(COLUMNS), line(["---"] * len(COLUMNS))]
    return [*head, *[table_row(name, found[name]) for name in names], ""]


def cost(rows):
    "What all rows took that are run without being asked for, in words; looking at the policies apart"
    core = [row for row in rows if not TASKS[row["name"]].long]
    hours = sum(row["minutes"] or 0 for row in core) / 60
    said = [f"The {len(core)} runs that are not marked as long took {hours:.1f} hours of one processor to train.",
            "Looking at the policies on the way and at the end is not in it."]
    timed = [row for row in core if row.get("looking") is not None]
    trained = sum(row["minutes"] for row in timed)
    looked = sum(row["looking"] for row in timed)
    if trained:
        names = ", ".join(dict.fromkeys(row["name"] for row in timed))
        said.append(f"It added {looked:.2f} minutes to {trained:.2f} in the {len(timed)} runs where it was timed "
                    f"({names}).")
    return " ".join(said)


def page(rows):
    "The whole page"
    found = by_task(rows)
    tables = [one for family in FAMILIES for one in family_lines(family, found)]
    lines = [
        INTRO,
        *tables,
        "## All",
        "",
        cost(rows),
        "",
        "![Curves of all tasks, and how many seeds reach how much of the level](learning.png)",
        "",
        "What was run; everything else is at its default:",
        "",
        *[f"* {name}: `{TASKS[name].told}`" for name in found],
        "",
    ]
    return "\n".join(lines)


def draw_curves(ax, title, found):
    "Greedy return over steps of some tasks in one environment, interquartile mean and interval"
    for name, rows in found.items():
        if len({len(row["curve"]) for row in rows}) > 1: continue
        steps = np.array(rows[0]["curve"])[:, 0]
        returns = np.array([np.array(row["curve"])[:, 1] for row in rows])
        low, high = iqm_interval(returns)
        [mark] = ax.plot(steps, iqm(returns.T), label=name)
        ax.fill_between(steps, low, high, color=mark.get_color(), alpha=.2, lw=0)
    ax.set_title(title, fontsize=9)
    ax.tick_params(labelsize=7)
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.locator_params("x", nbins=5)
    ax.legend(fontsize=6)


def shares(rows):
    "How far each seed has come from its return before training (0) to the level (1); none where nothing was to learn"
    for name, runs in by_task(rows).items():
        level = level_of(name, runs)
        for row in runs:
            start = row["curve"][0][1]
            if level > start:
                yield (row["mean"] - start) / (level - start)


def draw_profile(ax, rows):
    "Share of seeds that reach at least so much of the level"
    plain = {name for name, task in TASKS.items() if not (task.settings or task.preset)}
    kinds = {
        "nothing set": [row for row in rows if row["name"] in plain],
        "settings for the task": [row for row in rows if row["name"] not in plain],
    }
    places = np.linspace(0, 1.2, 121)
    for kind, some in kinds.items():
        reached = np.array(list(shares(some)))
        if not len(reached): continue
        pick = np.random.default_rng(0).integers(len(reached), size=(DRAWS, len(reached)))
        drawn = (reached[pick][:, :, None] >= places).mean(1)
        low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
        [mark] = ax.plot(places, (reached[:, None] >= places).mean(0), label=f"{kind} ({len(reached)} runs)")
        ax.fill_between(places, low, high, color=mark.get_color(), alpha=.2, lw=0)
    ax.set_title("share of seeds that reach so much of the level", fontsize=9)
    ax.set_ylim(0, 1.05)
    ax.tick_params(labelsize=7)
    ax.legend(fontsize=6)


def draw(rows, path):
    "Curves by environment, and the profile of all, in one picture"
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    worlds = {}
    for name, runs in by_task(rows).items():
        where = f"{TASKS[name].env.removeprefix('rlbench/')}, {FAMILY[name]}"
        if TASKS[name].steps: worlds.setdefault(where, {})[name] = runs
    columns = 4
    height = math.ceil((len(worlds) + 1) / columns)
    fig, axes = plt.subplots(height, columns, figsize=(13, 2.6 * height), dpi=80, layout="constrained")
    for ax, (where, found) in zip(axes.flat, worlds.items()):
        draw_curves(ax, where, found)
    draw_profile(axes.flat[len(worlds)], rows)
    for ax in axes.flat[len(worlds) + 1:]:
        ax.axis("off")
    fig.supxlabel("environment steps", fontsize=9)
    fig.savefig(path)
    plt.close(fig)
