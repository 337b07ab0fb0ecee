"""The figures of Sutton & Barto (2nd edition), in their own sizes, from our code.

    python benchmarks/textbook.py [--only NAME ...] [--write]

Prints a table of our numbers beside the book's; --write keeps it in benchmarks/results/textbook.md, with the curves in
textbook.png. The tests hold smaller forms of the same experiments against these numbers.
"""
import argparse
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import rlbench
from textbook_tables import FIGURES as TABLES

RESULTS = Path(__file__).resolve().parent / "results"


def copies(world, runs, algo, settings=None, **more):
    "Many runs in one trainer: every environment has rows of its own in the table"
    worlds = dict(world=world, copies=runs, settings=settings)
    return rlbench.Trainer("rlbench/Copies-v0", algo, num_envs=runs, env_settings=worlds, buffer_size=64 * runs, **more)


def walk_errors(algo="td", runs=100, episodes=10, **how):
    "Mean error of the 19 states over the first episodes and over all runs"
    trainer = copies("rlbench/Walk-v0", runs, algo, gamma=1., **how)
    true = np.linspace(-1, 1, 21)[1:-1]
    table = trainer.learner.nets.v.values.numpy().reshape(runs, -1)[:, 1:-1]
    count = np.zeros(runs, int)
    total = np.zeros(runs)
    before = np.zeros(runs, bool)
    while (count < episodes).any():
        ended = trainer.until("step").data.term           # what the step before taught is learned by now
        late = before & (count < episodes)
        total[late] += np.sqrt(((table[late] - true)**2).mean(1))
        count[before] += 1
        before = ended
    return total.mean() / episodes


def lowest(alphas, found):
    "The smallest error, and its alpha"
    return min(found), alphas[int(np.argmin(found))]


def figure_7_2(ax):
    "n-step TD on the random walk"
    rows = []
    books = {1: "about .35", 2: "about .28", 4: "about .27, the lowest of all", 8: "about .28", 16: "about .32"}
    for n, book in books.items():
        alphas = [a for a in (.1, .2, .4, .6, .8, 1.) if a * n <= 4]
        found = [walk_errors(n_step=n, lr=a) for a in alphas]
        ax.plot(alphas, found, ".-", label=f"n = {n}")
        error, alpha = lowest(alphas, found)
        rows.append(("7.2", f"lowest error with n = {n}, at α = {alpha}", f"{error:.3f}", book))
    ax.set(title="n-step TD, 19 states (7.2)", xlabel="α", ylabel="error, first 10 episodes", ylim=(.2, .6))
    return rows


def figure_12_6(ax):
    "TD(λ) by traces"
    rows = []
    for lam in (0., .4, .8, .9, .95):
        alphas = [a for a in (.05, .1, .2, .3, .4, .6, .8) if a <= 2.5 * (1 - lam) + .1]
        found = [walk_errors("td_lambda", trace="accumulating", td_lambda=lam, lr=a) for a in alphas]
        ax.plot(alphas, found, ".-", label=f"λ = {lam}")
        error, alpha = lowest(alphas, found)
        rows.append(("12.6", f"lowest error with λ = {lam}, at α = {alpha}", f"{error:.3f}",
                     "the lowest between λ = .8 and .9"))
    ax.set(title="TD(λ), 19 states (12.6)", xlabel="α", ylim=(.2, .6))
    return rows


def returns_by_episode(trainer, episodes):
    "(runs, episodes) returns of the first episodes of each run"
    runs = trainer.env.num_envs
    total = np.zeros(runs)
    found = np.full((runs, episodes), np.nan)
    done = np.zeros(runs, int)
    while (done < episodes).any():
        row = trainer.until("step").data
        total += row.rew
        ended = np.flatnonzero(row.term & (done < episodes))
        found[ended, done[ended]] = total[ended]
        done[ended] += 1
        total[row.term] = 0
    return found


def figure_6_6(ax):
    "The cliff, online"
    rows = []
    for target, book in (("sarsa", "about -25"), ("q", "about -50"), ("expected", "above both")):
        trainer = copies("rlbench/CliffWalk-v0", 50, "sarsa", dict(max_episode_steps=-1), target=target, lr=.5,
                         epsilon=.1, gamma=1.)
        mean = returns_by_episode(trainer, 500).mean(0)
        ax.plot(np.convolve(mean, np.ones(20) / 20, "valid"), label=target)
        rows.append(("6.6", f"{target}: mean return of episodes 401 to 500, 50 runs", f"{mean[400:].mean():.1f}", book))
    ax.set(title="cliff walk, ε = .1 (6.6)", xlabel="episode", ylim=(-100, 0))
    return rows


def greedy_steps(trainer):
    "Steps of the greedy way through each copy, of those where it leads to the end within a hundred steps"
    world = trainer.env.single.unwrapped.world
    best = trainer.learner.nets.q.values.numpy().reshape(trainer.env.num_envs, len(world.P), -1).argmax(2)
    found = []
    for policy in best:
        s = int(world.initial_state_distrib.argmax())
        for steps in range(1, 101):
            [(_, s, _, ended)] = world.P[s][policy[s]]
            if ended: break
        if ended: found.append(steps)
    return found


def example_6_5(ax):
    "The windy grid"
    runs = 20
    trainer = copies("rlbench/WindyGrid-v0", runs, "sarsa", dict(max_episode_steps=-1), lr=.5, epsilon=.1, gamma=1.)
    ended = np.array([trainer.until("step").data.term for _ in range(8000)]).cumsum(0)
    ax.plot(ended.mean(1))
    ax.set(title="windy grid (6.5)", xlabel="step", ylabel="episodes finished")
    return [("6.5", f"episodes within 8000 steps, {runs} runs", f"{ended[-1].mean():.0f}", "about 170"),
            ("6.5", f"shortest greedy way of {runs} runs", f"{min(greedy_steps(trainer))}", "15")]


def figure_8_2(ax):
    "The Dyna maze"
    rows = []
    for n, book in ((0, "about 25 episodes to the optimum"), (5, "about 5"), (50, "about 3")):
        lengths = []
        for seed in range(30):
            trainer = rlbench.Trainer("rlbench/DynaMaze-v0", "dyna", seed=seed, planning_steps=n, lr=.1, epsilon=.1,
                                      gamma=.95, buffer_size=64)
            lengths.append([trainer.until("episode").ended[0].length for _ in range(10 if n else 30)])
        mean = np.mean(lengths, 0)
        ax.plot(range(2, len(mean) + 1), mean[1:], label=f"n = {n}")
        told = ", ".join(f"{mean[i]:.0f}" for i in (1, 4, -1))
        rows.append(("8.2", f"n = {n}: steps of episodes 2, 5, {len(mean)}, 30 runs (14 is the shortest)", told, book))
    ax.set(title="Dyna maze (8.2)", xlabel="episode", ylabel="steps", ylim=(0, 800))
    return rows


def changing(ax, world, title, steps, change, figure, book):
    "Dyna-Q with and without a bonus in a maze that changes"
    runs = 20
    rows = []
    for name, bonus in (("Dyna-Q+", 1e-3), ("Dyna-Q", 0.)):
        trainer = rlbench.Trainer(world, "dyna", num_envs=runs, env_settings=dict(copies=runs), planning_steps=10,
                                  lr=.5, epsilon=.1, gamma=.95, kappa=bonus, buffer_size=64 * runs)
        reward = np.cumsum([trainer.until("step").data.rew for _ in range(steps)], 0)
        ax.plot(reward.mean(1), label=name)
        after = reward[-1] - reward[change - 1]
        error = after.std() / np.sqrt(runs)
        told = f"{after.mean():.0f} ± {error:.0f}"
        rows.append((figure, f"{name}: reward after the change, of {runs} runs", told, book))
    ax.axvline(change, color="grey", lw=.6)
    ax.set(title=title, xlabel="step", ylabel="reward so far")
    return rows


def figure_8_4(ax):
    "The wall moves"
    return changing(ax, "rlbench/BlockingMaze-v0", "blocking maze (8.4)", 3000, 1000, "8.4", "Dyna-Q+ is ahead")


def figure_8_5(ax):
    "A shortcut opens"
    return changing(ax, "rlbench/ShortcutMaze-v0", "shortcut maze (8.5)", 6000, 3000, "8.5",
                    "only Dyna-Q+ finds the shortcut")


def figure_10_1(ax):
    "Mountain car with tiles, without a limit on the steps of an episode"
    lengths = []
    for seed in range(4):
        trainer = rlbench.Trainer("MountainCar-v0", "linear_sarsa", seed=seed, env_settings=dict(max_episode_steps=-1),
                                  lr=.5, epsilon=0., gamma=1., buffer_size=64)
        lengths.append([trainer.until("episode").ended[0].length for _ in range(300)])
    mean = np.mean(lengths, 0)
    ax.plot(mean)
    ax.set(title="mountain car, α = .5 (10.2)", xlabel="episode", ylabel="steps", yscale="log")
    told = f"{mean[0]:.0f}, {mean[50:100].mean():.0f}, {mean[250:].mean():.0f}"
    return [("10.2", "mean steps of episodes 1, 50 to 100, 250 to 300; 4 runs", told,
             "many hundred; about 150; about 120")]


FIGURES = TABLES | dict(
    n_step=figure_7_2,
    lambda_=figure_12_6,
    cliff=figure_6_6,
    windy=example_6_5,
    dyna=figure_8_2,
    blocking=figure_8_4,
    shortcut=figure_8_5,
    car=figure_10_1,
)


def page(rows):
    "The whole page"
    lines = [
        "# The textbook",
        "",
        "`python benchmarks/textbook.py --write`",
        "",
        "Read off the book's plots where it prints no number.",
        "",
        "| figure | what | ours | book |",
        "|---|---|---|---|",
        *[f"| {' | '.join(row)} |" for row in rows],
        "",
        "![curves](textbook.png)",
        "",
    ]
    return "\n".join(lines)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--only", nargs="+", choices=FIGURES, default=list(FIGURES))
    args.add_argument("--write", action="store_true")
    args = args.parse_args()

    across = min(4, len(args.only))
    down = -(-len(args.only) // 4)
    fig, axes = plt.subplots(down, across, figsize=(3.6 * across, 2.9 * down), squeeze=False)
    rows = []
    for name, ax in zip(args.only, axes.flat):
        rows += FIGURES[name](ax)
        if len(ax.lines) > 1: ax.legend(frameon=False, fontsize=7)
        print(*rows[-1], sep="  ", flush=True)
    for ax in axes.flat[len(args.only):]:
        ax.axis("off")
    fig.tight_layout()
    print(page(rows))
    if args.write:
        (RESULTS / "textbook.md").write_text(page(rows))
        fig.savefig(RESULTS / "textbook.png", dpi=70)


if __name__ == "__main__":
    main()
