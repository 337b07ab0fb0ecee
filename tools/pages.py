"""docs/algorithms.md, as the registered algorithms say it should be.

python tools/pages.py            write it
python tools/pages.py --check    change nothing, say whether it differs
"""
import argparse, sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "algorithms.md"
INTRO = """<!-- Written by tools/pages.py from the code: make sync -->

# Algorithms

What each can see and do was found by asking it for its networks, not written down. *Any finite*: every space whose members can be counted, nested ones
included. *Masked*: it obeys an `action_mask` in a Dict observation. *Exact*: it plans with the model of the world and needs no experience.
The defaults and meanings of all settings: `rlbench explain NAME`.
"""
HEADS = ["algorithm", "what it is", "observations", "actions", "policy", "learns", "recurrent", "masked", "exact", "notebook"]


def page():
    "The whole page as text"
    from rlbench.launch.commands import overview
    tick = lambda yes: "yes" if yes else ""
    lines = ["| " + " | ".join(HEADS) + " |", "|" + "---|" * len(HEADS)]
    for r in overview():
        link = f"[{Path(r['notebook']).stem}](../{r['notebook']})"
        cells = [f"`{r['algorithm']}`", r["what"], r["observations"], r["actions"], "on" if r["on_policy"] else "off", "control" if r["control"] else "prediction", tick(r["recurrent"]), tick(r["masked"]), tick(r["exact"]), link]
        lines.append("| " + " | ".join(cells) + " |")
    return INTRO + "\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, say whether it differs")
    if parser.parse_args().check:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
        sys.exit(None if same else "docs/algorithms.md is not what the algorithms say; run: make sync")
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
