"""Figures of chapters 2, 4 and 5 of Sutton & Barto (2nd edition), in their own sizes: bandits, planning, Monte Carlo.

Each function draws on an axis and gives rows (figure, what, ours, the book's), as those of benchmarks/textbook.py do.
The tests hold smaller forms of the same experiments against exact answers.
"""
import numpy as np

import rlbench

# ---- bandits


def testbed(algo="bandit", runs=2000, steps=1000, mean=0., **settings):
    "Reward, and whether the best arm was pulled, at every step, means over runs"
    hall = dict(machines=runs, mean=mean)
    trainer = rlbench.Trainer("rlbench/Bandit-v0", algo, num_envs=runs, buffer_size=1, env_settings=hall, **settings)
    best = trainer.env.single.unwrapped.means.argmax(1)
    rew = []
    right = []
    for _ in range(steps):
        row = trainer.until("step").data
        rew.append(row.rew.mean())
        right.append((row.act == best).mean())
    return np.array(rew), np.array(right)


def panel(ax, figure, title, lines): # lines: {label: (settings, what the book's curve ends at)}
    "Shares of the best arm, one line for each of several settings"
    rows = []
    for label, (settings, book) in lines.items():
        rew, right = testbed(**settings)
        ax.plot(100 * right, label=label, lw=.8)
        found = f"{100 * right[-100:].mean():.0f} %, mean reward {rew[-100:].mean():.2f}"
        rows.append((figure, f"{label}: best arm in the last 100 of 1000 pulls, 2000 runs", found, book))
    ax.set(title=f"{title} ({figure})", xlabel="pull", ylabel="% best arm", ylim=(0, 100))
    return rows


def figure_2_2(ax):
    "Averages"
    lines = {"ε = 0": (dict(epsilon=0.), "about a third"),
             "ε = .01": (dict(epsilon=.01), "about 60 %"),
             "ε = .1": (dict(epsilon=.1), "about 80 %")}
    return panel(ax, "2.2", "ε-greedy", lines)


def figure_2_3(ax):
    "Optimism"
    lines = {"Q₀ = 5, greedy": (dict(initial=5., epsilon=0., lr=.1), "about 85 %"),
             "Q₀ = 0, ε = .1": (dict(lr=.1), "about 75 %")}
    return panel(ax, "2.3", "optimism", lines)


def figure_2_4(ax):
    "UCB; the book draws its reward"
    lines = {"UCB, c = 2": (dict(ucb=2., epsilon=0.), "reward about 1.5"),
             "ε = .1": (dict(epsilon=.1), "reward about 1.4")}
    return panel(ax, "2.4", "UCB", lines)


def figure_2_5(ax):
    "Preferences, payouts around 4"
    rich = dict(algo="gradient_bandit", mean=4.)
    lines = {"α = .1": (dict(lr=.1, **rich), "about 85 %"),
             "α = .4": (dict(lr=.4, **rich), "about 70 %"),
             "α = .1, no baseline": (dict(lr=.1, baseline=False, **rich), "about 50 %"),
             "α = .4, no baseline": (dict(lr=.4, baseline=False, **rich), "about 35 %")}
    return panel(ax, "2.5", "gradient", lines)


# ---- planning


def planned(env, algo, **settings):
    "A trainer whose plan is finished"
    trainer = rlbench.Trainer(env, algo, **settings)
    while not trainer.settled:
        trainer.advance()
    return trainer


def figure_4_2(ax):
    "Jack's car rental"
    trainer = planned("rlbench/CarRental-v0", "policy_iteration", gamma=.9, solve=True)
    orders = trainer.policy.act(np.arange(441)).reshape(21, 21) - 5
    ax.imshow(orders, origin="lower", cmap="coolwarm", vmin=-5, vmax=5)
    ax.set(title="car rental (4.2)", xlabel="cars at the second lot")
    val = trainer.learner.nets.v.values[:, 0].numpy()
    return [("4.2", "lowest and highest value of two lots", f"{val.min():.0f}, {val.max():.0f}", "420, 612 and above")]


def figure_4_3(ax):
    "The gambler"
    trainer = planned("rlbench/Gambler-v0", "value_iteration", gamma=1., batch_size=1)
    owned = np.arange(1, 100)
    ax.step(owned, 1 + trainer.policy.act(owned), where="mid")
    ax.set(title="the gambler's stakes (4.3)", xlabel="owned")
    val = trainer.learner.nets.v.values[[25, 50, 75], 0].tolist()
    return [("4.3", "chance to win with 25, 50, 75", ", ".join(f"{chance:.2f}" for chance in val), ".16, .4, .64")]


# ---- Monte Carlo


def figure_5_2(ax):
    "Blackjack: what a policy found by exploring starts loses against the best one, exactly"
    from rlbench.policies.exploration import chances
    from tests.test_monte_carlo import hands_trainer, start_value
    trainer = hands_trainer(500, n_episodes=500, epsilon=0., exploring_starts=True)
    best = start_value(None)
    lost = []
    for _ in range(20):
        trainer.run(steps=50_000)
        q = trainer.learner.nets.q.values.view(32, 11, 2, 2)
        lost.append(best - start_value(chances(q).numpy()))
    ax.semilogy(50_000 * np.arange(1, 21), lost)
    ax.set(title="blackjack, exploring starts (5.2)", xlabel="steps", ylabel="lost")
    return [("5.2", "lost against the best policy after a million steps", f"{lost[-1]:.4f}", "the best policy: 0")]


def figure_5_3(ax, episodes=10_000):
    "One hand of blackjack, seen through random play: squared error over a hundred runs"
    from tests import test_monte_carlo as known
    runs = 100
    cell = known.cells_of_the_hand(runs)
    value = known.solved(known.STICKS_ON_20)(*known.HAND)[known.HIT, 0]
    rows = []
    for importance in ("ordinary", "weighted"):
        how = dict(importance=importance, n_episodes=10 * runs) | known.AT_RANDOM
        trainer = known.hands_trainer(runs, known.HAND, **how)
        known.judged(trainer, known.STICKS_ON_20)
        hits = np.zeros(runs)
        error = []
        while hits.mean() < episodes / 2:                 # half of them begin with a hit
            row = trainer.until("step").data
            hits += (row.obs == cell) & (row.act == known.HIT)
            q = trainer.learner.nets.q.values[cell, known.HIT].numpy()
            error.append((hits.mean(), ((q - value)**2).mean()))
        at, mean = np.array(error[20:]).T
        ax.loglog(2 * at, mean, label=importance, lw=.8)
        found = f"{np.interp(50, at, mean):.2f}, {mean[-1]:.4f}"
        what = f"{importance}: squared error after 100 and {episodes:,} episodes"
        rows.append(("5.3", what, found, "weighted below ordinary, then both about 0"))
    ax.set(title="off-policy blackjack (5.3)", xlabel="episodes", ylabel="squared error")
    return rows


FIGURES = dict(averages=figure_2_2, optimism=figure_2_3, ucb=figure_2_4, gradient=figure_2_5, rental=figure_4_2,
               gambler=figure_4_3, blackjack=figure_5_2, one_hand=figure_5_3)
