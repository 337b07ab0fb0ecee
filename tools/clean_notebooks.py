"""Notebooks as they are committed: nbdev's clean form, no widget state, small.

python tools/clean_notebooks.py            clean every notebook in nbs/
python tools/clean_notebooks.py --check    change nothing, name those that are not clean
"""
import argparse
import base64
import io
import json
import re
import sys
from pathlib import Path

from execnb.nbio import nb2str
from nbdev.clean import clean_nb
from nbdev.config import get_config
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
MAX_NOTEBOOK = 300_000      # bytes; code hosts give up on much larger ones, and so do readers
MAX_ALL = 8_000_000
COLOURS = 64                # of a picture: lines and words look the same with so few, and take half the room
VIEW = "application/vnd.jupyter.widget-view+json"
PLACES = re.compile(r"/(?:[\w.+-]+/)*(?:site-packages|tmp/\w+)/")  # where packages and passing files lie on one machine


def notebooks(root=ROOT):
    "Every notebook under nbs/ that is ours, sorted"
    inside = sorted((root / "nbs").rglob("*.ipynb"))
    return [path for path in inside if not any(part[0] in "._" for part in path.relative_to(root / "nbs").parts)]


def drop_widgets(nb):
    "A saved widget view says 'model not found' when it is opened again: keep its picture and its text only"
    nb["metadata"].pop("widgets", None)
    for cell in nb["cells"]:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(VIEW, None)
        if "outputs" in cell:
            cell["outputs"] = [output for output in cell["outputs"] if output.get("data", True)]


def drop_places(nb):
    "Outputs say the same on every machine: files without the folders that packages and passing files lie in"
    for cell in nb["cells"]:
        for output in cell.get("outputs", []):
            for told, name in ((output, "text"), (output.get("data", {}), "text/plain")):
                if name in told:
                    told[name] = [PLACES.sub("", line) for line in told[name]]


def with_few_colours(data):
    "A PNG picture (base64) with a palette, where that makes it smaller"
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    if image.getcolors(COLOURS): return data
    out = io.BytesIO()
    image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    small = base64.b64encode(out.getvalue()).decode()
    return small if len(small) < len(data) else data


def shrink_pictures(nb):
    "Pictures in outputs take little room, and stand there once"
    for cell in nb["cells"]:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" not in data: continue
            data["image/png"] = with_few_colours("".join(data["image/png"]))
            data.pop("image/jpeg", None)
            if "".join(data.get("text/plain", "")).startswith("<"):
                del data["text/plain"]      # the name of its class


def drop_plain_twins(nb):
    "What is told as HTML is not told as plain text as well"
    for cell in nb["cells"]:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "text/html" in data: data.pop("text/plain", None)


def clean(text):
    "The clean form of a notebook's text"
    nb = json.loads(text)
    config = get_config(path=ROOT)
    keys = config.allowed_metadata_keys.split()
    cell_keys = config.allowed_cell_metadata_keys.split()
    clean_nb(nb, False, keys, cell_keys, config.clean_ids)
    drop_widgets(nb)
    drop_places(nb)
    shrink_pictures(nb)
    drop_plain_twins(nb)
    return nb2str(nb)


def trouble(text, size):
    "What cleaning cannot mend, in words, or None"
    ids = [cell.get("id") for cell in json.loads(text)["cells"]]
    if None in ids:
        return "has cells without an id, so every export would differ"
    if len(set(ids)) < len(ids):
        return "has two cells with the same id; give one of them a new one"
    if size > MAX_NOTEBOOK:
        return f"is {size / 1000:.0f} KB, more than {MAX_NOTEBOOK // 1000}; make its outputs smaller"


def clean_file(path, name, check):
    "Clean or check one notebook -> (complaints, bytes)"
    text = path.read_text(encoding="utf-8")
    try:
        cleaned = clean(text)
    except (ValueError, KeyError) as error:
        return [f"{name} is not a notebook that can be read: {error!r}"], 0
    if not check and cleaned != text:
        path.write_text(cleaned, encoding="utf-8", newline="\n")
    kept = text if check else cleaned
    size = len(kept.encode())
    complaints = [f"{name} is not clean; run: make sync"] if kept != cleaned else []
    problem = trouble(kept, size)
    return complaints + ([f"{name} {problem}"] if problem else []), size


def run(root, check):
    "Clean or check; the list of complaints"
    complaints = []
    total = 0
    for path in notebooks(root):
        found, size = clean_file(path, path.relative_to(root).as_posix(), check)
        complaints += found
        total += size
    if total > MAX_ALL:
        complaints.append(f"nbs/ is {total / 1e6:.1f} MB, more than {MAX_ALL / 1e6:g}; shrink outputs")
    return complaints


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, name the notebooks that are not clean")
    found = run(ROOT, parser.parse_args().check)
    for complaint in found:
        print(complaint, file=sys.stderr)
    sys.exit(bool(found))
