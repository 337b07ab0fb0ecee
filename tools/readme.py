"""README.md, as nbs/index.ipynb says it should be.

python tools/readme.py            write README.md and its figures in docs/readme/
python tools/readme.py --check    change nothing, say what differs
"""
import argparse
import re
import sys
from pathlib import Path

import nbformat
from nbconvert import MarkdownExporter

ROOT = Path(__file__).resolve().parents[1]
FIGURES = "docs/readme"
HEAD = "<!-- Written by tools/readme.py from nbs/index.ipynb: edit the notebook, then make sync -->\n\n"
HIDDEN = re.compile(r"\s*#\|\s*hide\b")
DIRECTIVE = re.compile(r"^\s*#\|.*\n?", re.MULTILINE)


def shown(nb):
    "The notebook as a reader of the README sees it: no hidden cells, no directives, no front matter"
    nb.cells = [cell for cell in nb.cells if cell.cell_type != "raw" and not HIDDEN.match(cell.source)]
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.source = DIRECTIVE.sub("", cell.source).strip("\n")
    nb.cells = [cell for cell in nb.cells if cell.source.strip()]
    nb.metadata["language_info"] = {"name": "python"}     # the clean form drops it, and fences need it
    return nb


def render(root):
    "relative path -> bytes of README.md and its figures"
    nb = shown(nbformat.read(root / "nbs" / "index.ipynb", as_version=4))
    names = dict(output_files_dir=FIGURES, unique_key="figure")
    text, extra = MarkdownExporter().from_notebook_node(nb, resources=names)
    text = re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)).strip()
    return {"README.md": f"{HEAD}{text}\n".encode(), **extra["outputs"]}


def run(root, check):
    "Write or check; the list of complaints"
    if not (root / "nbs" / "index.ipynb").exists():
        return ["nbs/index.ipynb is missing, and README.md is made from it"]
    new = render(root)
    present = [p for p in [root / "README.md", *(root / FIGURES).glob("*")] if p.exists()]
    old = {p.relative_to(root).as_posix(): p.read_bytes() for p in present}
    changed = sorted(name for name in old | new if old.get(name) != new.get(name))
    if check:
        return [f"{name} is not what nbs/index.ipynb makes it; run: make sync" for name in changed]
    for name in changed:
        path = root / name
        if name not in new:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(new[name])
    return []


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, say what differs")
    found = run(ROOT, parser.parse_args().check)
    for complaint in found:
        print(complaint, file=sys.stderr)
    sys.exit(bool(found))
