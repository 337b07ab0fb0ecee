"""Does it read well? One thing a line, whole classes, short cells, more shown than hidden.

python tools/style.py            every notebook, test, tool and benchmark, and the figures of the library
python tools/style.py FILE ...   the named notebooks or Python files
"""
import argparse
import ast
import io
import json
import re
import statistics
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 120           # characters of a line
HEADER = 80             # characters of a header line that carries its body
CLASS = 60              # lines of a class
CELLS = dict(median=8, most=20, longest=60)     # lines of export cells: median, 90 %, longest
SHOWN = .7              # lines of shown cells for every exported one
JUMPS = (ast.Return, ast.Raise, ast.Break, ast.Continue, ast.Pass)
SIMPLE = (*JUMPS, ast.Assign, ast.AugAssign, ast.Expr, ast.Delete)


@dataclass(frozen=True)
class Cell:
    "A piece of code, and where it stands"
    where: str
    text: str
    shown: bool = True      # False where nbdev exports it


def is_export(text):
    "Does nbdev export this cell?"
    return bool(re.search(r"^#\|\s*exporti?\b", text, re.MULTILINE))


def plain(text):
    "A cell as Python: magics and shell lines as comments"
    return "\n".join("#" + line if line.lstrip().startswith(("%", "!")) else line for line in text.splitlines())


def cells_of(path):
    "The code of a notebook cell by cell, or of a file as one cell"
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return [Cell(name, text)]
    code = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    sources = [(cell.get("id", "?"), plain("".join(cell["source"]))) for cell in code]
    return [Cell(f"{name} #{id}", source, not is_export(source)) for id, source in sources]


# ---- rules: each takes a node or a text, and yields (line, complaint)

def long_lines(text):
    "Lines that are too long to be read at once"
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > LONGEST:
            yield number, f"{len(line)} characters, the limit is {LONGEST}"


def semicolons(text):
    "Semicolons between statements; one at the end of a cell hides its output"
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    semis = [token for token in tokens if token.type == tokenize.OP and token.string == ";"]
    last = len(text.rstrip().splitlines())
    for token in semis:
        if token.start[0] != last or token.line.rstrip() != token.line[:token.start[1] + 1]:
            yield token.start[0], "two statements in a line"


def docstring_of(node):
    "The docstring's node of a function or class, or None"
    first = node.body[0]
    value = getattr(first, "value", None)
    is_text = isinstance(first, ast.Expr) and isinstance(value, ast.Constant) and isinstance(value.value, str)
    return first if is_text else None


def bodies(node, lines):
    "Bodies on header lines: a docstring never, anything else only where it is short"
    if not isinstance(getattr(node, "body", None), list) or isinstance(node, ast.Module):
        return
    first = node.body[0]
    header = lines[first.lineno - 1]
    begins = len(header) - len(header.lstrip()) == first.col_offset
    if begins:
        return
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and docstring_of(node):
        yield first.lineno, f"the docstring of {node.name} belongs on a line of its own"
    elif len(header) > HEADER or not isinstance(first, SIMPLE):
        yield first.lineno, f"a body on its header line; expected at most {HEADER} characters in all"


def branches(node, lines):
    "The same for else and finally"
    for name in ("orelse", "finalbody"):
        inner = getattr(node, name, None)
        if not isinstance(inner, list) or not inner or isinstance(node, ast.If) and isinstance(inner[0], ast.If):
            continue
        header = lines[inner[0].lineno - 1]
        if len(header) - len(header.lstrip()) != inner[0].col_offset and len(header) > HEADER:
            yield inner[0].lineno, f"a body on its header line; expected at most {HEADER} characters in all"


def tuples(node):
    "Assignments of three or more values that do not unpack one thing; calls strung together by commas"
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
        target = node.targets[0]
        if isinstance(target, ast.Tuple) and len(target.elts) > 2:
            yield node.lineno, f"{len(target.elts)} assignments in a line"


def strung(body, last_is_shown):
    "Statements such as a(), b()"
    for place, node in enumerate(body):
        is_last = last_is_shown and place == len(body) - 1
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Tuple) and not is_last:
            yield node.lineno, "calls strung together by commas"


def conditions(node):
    "Walruses and conditionals inside conditions"
    inside = lambda tree, kind: any(isinstance(one, kind) for one in ast.walk(tree))
    if isinstance(node, ast.IfExp):
        if inside(node.test, ast.NamedExpr):
            yield node.lineno, "a walrus inside the condition of a conditional"
        if any(inside(part, ast.IfExp) for part in (node.test, node.body, node.orelse)):
            yield node.lineno, "a conditional inside a conditional"
    if isinstance(node, (ast.If, ast.While)) and isinstance(node.test, ast.BoolOp) and inside(node.test, ast.NamedExpr):
        yield node.lineno, "a walrus inside a condition of several parts"


COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def comprehensions(node):
    "Comprehensions inside the element of another, or over more than two loops"
    if not isinstance(node, COMPREHENSIONS):
        return
    parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    if any(isinstance(one, COMPREHENSIONS) for part in parts for one in ast.walk(part)):
        yield node.lineno, "a comprehension inside a comprehension"


def lambdas(tree):
    "More than one lambda in a line"
    found = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
    for line in sorted({line for line in found if found.count(line) > 1}):
        yield line, "two lambdas in a line"


def attached(tree):
    "Members put into a class from outside"
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        flat = [one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target])]
        for one in flat:
            if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id[:1].isupper():
                yield node.lineno, f"{one.value.id}.{one.attr} is attached from outside; a class is whole, in one cell"
        if isinstance(node, ast.For) and any(getattr(call.func, "id", "") == "setattr" for call in ast.walk(node)
                                             if isinstance(call, ast.Call)):
            yield node.lineno, "members are attached from outside; a class is whole, in one cell"


def classes(node):
    "Classes that are too long to be one job"
    lines = node.end_lineno - node.lineno + 1 if isinstance(node, ast.ClassDef) else 0
    if lines > CLASS:
        yield node.lineno, f"class {node.name} has {lines} lines; more than {CLASS} are two jobs"


def complaints(cell):
    "Everything that does not read well in a cell, in words"
    found = [*long_lines(cell.text)]
    try:
        tree = ast.parse(cell.text)
    except SyntaxError as problem:
        return [f"{cell.where}:{problem.lineno} cannot be read: {problem.msg}"]
    lines = cell.text.splitlines()
    found += semicolons(cell.text + "\n")
    found += lambdas(tree)
    found += [] if cell.shown and cell.where.split()[0].endswith(".ipynb") else attached(tree)
    found += strung(tree.body, last_is_shown=cell.where.split()[0].endswith(".ipynb") and cell.shown)
    for node in ast.walk(tree):
        if isinstance(getattr(node, "body", None), list) and not isinstance(node, ast.Module):
            found += strung(node.body, last_is_shown=False)
        for rule in (tuples, conditions, comprehensions, classes):
            found += rule(node)
        for rule in (bodies, branches):
            found += rule(node, lines)
    return [f"{cell.where}:{line} {what}" for line, what in sorted(set(found))]


# ---- figures

def size(text):
    "Lines of a cell that are neither blank nor directives"
    return sum(bool(line.strip()) and not line.startswith("#|") for line in text.splitlines())


def figures(paths):
    "Sizes of export cells, and shown lines for every exported one, of the notebooks that export"
    exported, shown = [], 0
    for path in paths:
        cells = cells_of(path)
        if all(cell.shown for cell in cells):
            continue
        exported += [size(cell.text) for cell in cells if not cell.shown]
        shown += sum(size(cell.text) for cell in cells if cell.shown)
    exported.sort()
    nine = exported[int(.9 * len(exported))]
    return dict(cells=len(exported), median=statistics.median(exported), most=nine, longest=exported[-1],
                exported=sum(exported), shown=shown / sum(exported))


def wrong(found):
    "Which figures miss their targets, in words"
    over = {name: limit for name, limit in CELLS.items() if found[name] > limit}
    missed = [f"{name} {found[name]:g}, expected at most {limit}" for name, limit in over.items()]
    if found["shown"] < SHOWN:
        missed.append(f"shown {found['shown']:.2f} lines for every exported one, expected at least {SHOWN}")
    return missed


def notebooks(root=ROOT):
    return [path for path in sorted((root / "nbs").rglob("*.ipynb")) if ".ipynb_checkpoints" not in path.parts]


def files(root=ROOT):
    "Everything that people write: notebooks, tests, tools, benchmarks, and the package's own two files"
    written = [path for folder in ("tests", "tools", "benchmarks") for path in sorted((root / folder).rglob("*.py"))]
    return [*notebooks(root), *written, root / "rlbench" / "__init__.py", root / "rlbench" / "__main__.py"]


def main(paths):
    chosen = [Path(path).resolve() for path in paths] or files()
    found = [line for path in chosen for cell in cells_of(path) for line in complaints(cell)]
    for line in found:
        print(line)
    books = [path for path in chosen if path.suffix == ".ipynb"]
    told = figures(books) if books else None
    if told:
        print(", ".join(f"{name} {value:.4g}" for name, value in told.items()))
        for line in wrong(told):
            print(line)
    return bool(found or told and wrong(told))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", metavar="FILE")
    sys.exit(main(parser.parse_args().paths))
