"""Pages of docs/ that are made from the code, and from notebooks.

algorithms.md     what every registered algorithm can do
coming_from.md    every setting, and what other libraries call it
questions.md      nbs/questions.ipynb: which call answers a question, and what it answered

python tools/pages.py            write them
python tools/pages.py --check    change nothing, say which differ
"""
import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))           # the package beside this folder, installed or not
HEAD = "<!-- Written by tools/pages.py from the code: make sync -->\n\n"


def table(heads, rows):
    "A table as Markdown"
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def tick(yes):
    return "yes" if yes else ""


def code(words):
    "Words as code, separated by commas"
    return ", ".join(f"`{word}`" for word in words)


# ---- algorithms

ALGORITHMS = """# Algorithms

What each can see and do was found by asking it for its networks, not written down. *Any finite*: every space whose
members can be counted, nested ones included. *Masked*: it obeys an `action_mask` in a Dict observation. *Exact*: it
plans with the model of the world and needs no experience. The defaults and meanings of all settings:
`rlbench explain NAME`; their names in other libraries: [coming_from.md](coming_from.md).

"""
HEADS = [
    "algorithm",
    "what it is",
    "observations",
    "actions",
    "policy",
    "learns",
    "recurrent",
    "masked",
    "exact",
    "notebook",
]


def policy_of(found):
    "Whose experience it learns from"
    if found["offline"]: return "given data"
    return "on" if found["on_policy"] else "off"


def algorithm_cells(found):
    "One line of the table of algorithms"
    return [
        f"`{found['algorithm']}`",
        found["what"],
        found["observations"],
        found["actions"],
        policy_of(found),
        "control" if found["control"] else "prediction",
        tick(found["recurrent"]),
        tick(found["masked"]),
        tick(found["exact"]),
        f"[{Path(found['notebook']).stem}](../{found['notebook']})",
    ]


def algorithms_page():
    "docs/algorithms.md"
    from rlbench.launch.commands import overview
    return HEAD + ALGORITHMS + table(HEADS, map(algorithm_cells, overview()))


# ---- settings in other libraries

COMING = """# Coming from another library

Say a setting as you know it, and the message tells its name here: `Trainer("CartPole-v1", "ppo", clip_coef=.1)` answers
*unknown setting 'clip_coef' (CleanRL); here it is 'clip_range'*. Words that differ mean the same thing, though not
always in the same unit: the meaning is that of the setting here.

"""
OTHERS = ("Stable-Baselines3", "CleanRL", "RLlib", "ML-Agents")


def owners():
    "{setting: {meaning: [algorithms that mean it so]}} of every algorithm, and of the trainer"
    from rlbench.algos.algorithm import algorithms
    from rlbench.core.settings import fields_of
    from rlbench.training.setup import TrainerSettings
    found = {}
    for name, cls in dict(trainer=TrainerSettings, **algorithms()).items():
        for setting in fields_of(cls):
            meanings = found.setdefault(setting.name, {})
            meanings.setdefault(setting.doc, []).append(name)
    return found


def meaning_of(meanings):
    "What a setting is, in a cell; where algorithms differ, of each"
    told = {doc.replace("|", "\\|"): whose for doc, whose in meanings.items()}
    if len(told) == 1: return next(iter(told))
    return "<br>".join(f"{doc} ({', '.join(whose)})" for doc, whose in told.items())


def names_elsewhere(name):
    "What other libraries call a setting, one cell each"
    from rlbench.core.words import ELSEWHERE
    words = ELSEWHERE.get(name, {})
    return [code(words.get(library, ())) for library in OTHERS]


def coming_page():
    "docs/coming_from.md"
    from rlbench.core.words import ELSEWHERE
    known = owners()
    shared = []
    own = []
    for name, meanings in sorted(known.items()):
        whose = code(sorted(algo for algos in meanings.values() for algo in algos))
        line = [f"`{name}`", whose, meaning_of(meanings)]
        if name in ELSEWHERE:
            shared.append(line[:1] + names_elsewhere(name) + line[1:])
        else:
            own.append(line)
    of_a_run = [[f"`{name}`", *names_elsewhere(name)] for name in sorted(set(ELSEWHERE) - set(known))]
    text = HEAD + COMING + "## Settings that others have too\n\n"
    text += table(["here", *OTHERS, "of", "meaning"], shared)
    if of_a_run:
        text += "\n## Of a run and its folder\n\n" + table(["here", *OTHERS], of_a_run)
    return text + "\n## Settings that have no other name there\n\n" + table(["here", "of", "meaning"], own)


# ---- notebooks

def page_of(name):
    "A notebook as a page, with its outputs; its links lead from docs/ to the notebooks"
    import nbformat
    from nbconvert import MarkdownExporter

    from tools.readme import shown
    text, _ = MarkdownExporter().from_notebook_node(shown(nbformat.read(ROOT / "nbs" / name, as_version=4)))
    text = re.sub(r"\]\(([\w/]+\.ipynb)", r"](../nbs/\1", text)
    text = re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)).strip()
    return f"<!-- Written by tools/pages.py from nbs/{name}: edit the notebook, then make sync -->\n\n{text}\n"


def questions_page():
    "docs/questions.md"
    return page_of("questions.ipynb")


# ---- writing

PAGES = {
    "docs/algorithms.md": algorithms_page,
    "docs/coming_from.md": coming_page,
    "docs/questions.md": questions_page,
}


def run(check):
    "Write or check; the list of complaints"
    complaints = []
    for name, page in PAGES.items():
        path = ROOT / name
        text = page()
        if not check:
            path.write_text(text, encoding="utf-8", newline="\n")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            complaints.append(f"{name} is not what it is made from; run: make sync")
    return complaints


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, say which differ")
    found = run(parser.parse_args().check)
    for complaint in found:
        print(complaint, file=sys.stderr)
    sys.exit(bool(found))
