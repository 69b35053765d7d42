"""Mutants of the engine, and which of them the tests kill.

    python tests/campaigns engine_mutants --count 40 --seed 0

A mutant is the engine with one small change of a file of ``derive/calculus`` or
``derive/lowering``: a comparison turned, an operand or a statement dropped, a condition negated,
a call replaced by its argument. The tests run on a copy of the checkout until one fails: first
those that reach the changed line, the quick ones before the slow ones, then one folder after
the other; which folders or files, and in what order, may be said.
"""

import argparse
import ast
import builtins
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory

from kit.reached import Reached, read

ROOT = Path(__file__).parents[2]
ORDER = (
    *("tests/whole/test_golden.py", "tests/calculus", "tests/lowering", "tests/program"),
    *("tests/cost", "tests/algebra", "tests/module", "tests/check", "tests/whole"),
)
"""What kills most for its time comes first."""
LIKELY = 60.0
"""Seconds of tests, while they were watched, that reach the changed line and are tried first."""
KNOWN = set(dir(builtins))
FOLDERS = ("derive/calculus", "derive/lowering")
OTHER: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
"""What an operator becomes."""


@dataclass(frozen=True)
class Mutant:
    """One change: ``new`` stands for the node at ``place`` of a file."""

    path: str
    line: int
    old: str
    new: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.old}  →  {self.new}"

    def applied(self, text: str) -> str:
        data = text.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()


def negated(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), test)


def changes(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """What may stand in its place."""
    match node:
        case ast.Compare(left, [op], [right]) if type(op) in OTHER:
            yield ast.Compare(left, [OTHER[type(op)]()], [right])  # type: ignore[list-item]
        case ast.BoolOp(op, values):
            yield ast.BoolOp(OTHER[type(op)](), values)  # type: ignore[arg-type]
            yield values[0]
            yield values[-1]
        case ast.BinOp(left, op, right):
            if type(op) in OTHER:
                yield ast.BinOp(left, OTHER[type(op)](), right)  # type: ignore[arg-type]
            yield left
            yield right
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() as value):
            yield ast.Constant(value + 1)
        case ast.Call(ast.Name(id), [ast.expr() as first, *_]) if id.islower() and id not in KNOWN:
            if not isinstance(first, ast.Starred):
                yield first
        case ast.Tuple([*_, _] as values, ast.Load()) if len(values) > 1:
            yield ast.Tuple(values[:-1], ast.Load())
        case ast.Return(ast.expr() as value) if ast.unparse(value) != "None":
            yield ast.Return(ast.Constant(None))
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Continue():
            yield ast.Pass()
    test = getattr(node, "test", None)
    if isinstance(node, ast.If | ast.While) and test is not None:
        yield negated(test)
    if isinstance(node, ast.comprehension):
        yield from map(negated, node.ifs)


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All of what computes: neither annotations nor what an error says."""
    match tree:
        case ast.Raise() | ast.Import() | ast.ImportFrom() | ast.JoinedStr():
            return
        case ast.FunctionDef(args=args, body=body):
            parts: Sequence[ast.AST] = [*args.defaults, *(d for d in args.kw_defaults if d), *body]
        case ast.AnnAssign(value=value):
            parts = [value] if value else []
        case _:
            parts = list(ast.iter_child_nodes(tree))
    yield tree
    for part in parts:
        yield from nodes(part)


def mutants(path: str, text: str) -> list[Mutant]:
    """Every mutant of a file."""
    lines = [0]
    for line in text.encode().splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    found = []
    for node in nodes(ast.parse(text)):
        for new in changes(node):
            place = node
            if isinstance(node, ast.If | ast.While):
                place = node.test
            elif isinstance(node, ast.comprehension):
                assert isinstance(new, ast.UnaryOp)
                place = new.operand
            start = lines[place.lineno - 1] + place.col_offset
            end = lines[place.end_lineno - 1] + place.end_col_offset
            written = ast.unparse(ast.fix_missing_locations(new))
            if isinstance(new, ast.expr) and not isinstance(new, ast.Constant | ast.Name):
                written = f"({written})"
            old = text.encode()[start:end].decode()
            found.append(Mutant(path, place.lineno, old, written, start, end))
    return found


def chosen(root: Path, count: int, seed: int) -> list[Mutant]:
    """So many of all mutants of the engine; a file has as many as its size lets it have."""
    every = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            every += mutants(name, path.read_text(encoding="utf-8"))
    return random.Random(seed).sample(every, count)


def copied(root: Path, to: Path) -> None:
    """The files that git knows, and those that it would."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=True
    ).stdout.splitlines():
        if (root / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, to / name)


def likely(ran: Iterable[Reached], line: str) -> list[str]:
    """The tests that reach a line, the quick ones first, as many as take `LIKELY` seconds."""
    found, total = [], 0.0
    for row in sorted((r for r in ran if line in r.lines), key=lambda r: r.seconds):
        total += row.seconds
        if total > LIKELY:
            break
        found.append(row.test)
    return found


def recorded(root: Path, to: Path) -> list[Reached]:
    """Which tests reach which lines; found once and kept in a folder.

    Tests that are not run are left out: pytest takes one for an error.
    """
    if not to.is_dir():
        tested(root, ["-n", "2", "-p", "kit.reached"], None, {"DERIVE_REACHED": str(to)})
    known = set(tested(root, ["--collect-only"], None, {}).stdout.splitlines())
    return [row for row in read(to) if row.test in known]


def tested(
    folder: Path, more: Sequence[str], seconds: float | None, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    options = ["-q", "--no-header", "--tb=no", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *more],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(folder / "tests"), str(folder))),
            "OMP_NUM_THREADS": "1",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def failing(folder: Path, runs: Iterable[Sequence[str]], seconds: float) -> str:
    """The first test that fails in these runs, one after the other; "" if none does."""
    for run in runs:
        listed = folder / "tests.txt"
        listed.write_text("\n".join(run), encoding="utf-8")
        try:
            done = tested(folder, ["-x", f"@{listed}"], seconds, {})
        except subprocess.TimeoutExpired:
            return f"{run[0]}, ..: more than {seconds:.0f} s"
        if done.returncode not in (0, 5):
            told = [x for x in done.stdout.splitlines() if x.startswith(("FAILED", "ERROR"))]
            return told[0] if told else f"{run[0]}: {done.stdout[-200:]}{done.stderr[-200:]}"
    return ""


def killed_by(
    folder: Path, mutant: Mutant, ran: Sequence[Reached], files: Sequence[str], seconds: float
) -> str:
    """What kills a mutant, or ""."""
    path = folder / mutant.path
    before = path.read_text(encoding="utf-8")
    first = likely(ran, f"{mutant.path}:{mutant.line}")
    path.write_text(mutant.applied(before), encoding="utf-8")
    try:
        runs = [first] if first else []
        return failing(folder, [*runs, *([file] for file in files)], seconds)
    finally:
        path.write_text(before, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--first", type=int, default=0, help="the first that is tried")
    parser.add_argument("--only", help="these alone, by number: 3,7")
    parser.add_argument("--seconds", type=float, default=1800, help="the most a file may take")
    parser.add_argument("--jobs", type=int, default=2, help="how many mutants at a time")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout")
    parser.add_argument(
        "--reached",
        type=Path,
        default=ROOT / ".pytest_cache" / "reached",
        help="where it is kept which tests reach which lines; found if it is not there",
    )
    parser.add_argument("files", nargs="*", default=ORDER, help="tests in their order")
    given = parser.parse_args()
    made = chosen(given.root, given.count, given.seed)
    numbers = list(range(given.first, given.count))
    if given.only:
        numbers = [int(n) for n in given.only.split(",")]
    with TemporaryDirectory() as name, ThreadPoolExecutor(given.jobs) as pool:
        folders: Queue[Path] = Queue()
        for n in range(given.jobs):
            copied(given.root, Path(name) / str(n))
            folders.put(Path(name) / str(n))
        ran = recorded(Path(name) / "0", given.reached.absolute())

        def tried(n: int) -> bool:
            began, folder = time.monotonic(), folders.get()
            by = killed_by(folder, made[n], ran, given.files, given.seconds)
            folders.put(folder)
            print(f"{n:3d} {made[n]}\n      {by or 'SURVIVES'} ({time.monotonic() - began:.0f} s)",
                  flush=True)  # fmt: skip
            return bool(by)

        killed = sum(pool.map(tried, numbers))
    print(f"{killed} of {len(numbers)} killed")
