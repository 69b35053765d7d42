"""What keeps the design: import order, dumb templates, an engine that knows no operation."""

import ast
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from graphlib import TopologicalSorter
from io import StringIO
from pathlib import Path

import pytest
from jinja2 import Environment, nodes
from kit.command import ROOT, run
from kit.each import each_operation, has_turn
from kit.shared import anew

import derive
from derive import catalog, parse
from derive.algebra.expr import Access, Expr, Index, Param, Size, walk
from derive.algebra.substitution import replace
from derive.api import source
from derive.module import predicated_lines
from derive.notation.operation import (
    AxisOf,
    Choice,
    Equation,
    Extent,
    KeepDim,
    Number,
    Operation,
    Parameter,
    SizeOf,
    Tensor,
)

PACKAGE = ROOT / "derive"
FILES = sorted(p for p in PACKAGE.rglob("*.py") if "generated" not in p.parts)
NAMED_COMMANDS = (
    "audit_table auditing cli explaining graphing linting options site starting tracing "
    "verifying writing"
).split()
COMMANDS = [PACKAGE / name for name in (f"command/{n}.py" for n in NAMED_COMMANDS)]
EXAMPLES = [p for p in FILES if (PACKAGE / "examples") in p.parents]
ENGINE = [p for p in FILES if p.parent.name != "catalog" and p not in EXAMPLES]

ROOMS = (
    ("errors", "memory", "passes"),
    ("loaded",),
    ("budget",),
    ("algebra",),
    ("show",),
    ("notation",),
    ("blocks",),
    ("calculus",),
    ("program",),
    ("kernels",),
    ("lowering/ground",),
    ("lowering/patterns",),
    ("lowering/nodes",),
    ("lowering",),
    ("cost",),
    ("reports",),
    ("module",),
    ("catalog",),
    ("pipeline",),
    ("api",),
    ("joint",),
    ("check",),
    ("tracing",),
    ("auditing",),
    ("linting",),
    ("site",),
    ("command",),
    ("__main__",),
    ("generated",),
    ("examples",),
)
"""A room imports from itself and from those above it."""

FOLDERS = {"derive", "generated", "templates", "tests"}
TOP = FOLDERS | {"LICENSE", "README.md", "constraints.txt", "pyproject.toml"}
DOTTED = {".ci", ".github", ".gitignore", ".pre-commit-config.yaml", ".pre-commit-hooks.yaml"}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_top_level_is_what_the_design_draws():
    known = run("git", "ls-files", "--cached", "--others", "--exclude-standard")
    if known.returncode:
        pytest.skip("not a git checkout")
    top = {line.split("/")[0] for line in known.stdout.splitlines() if (ROOT / line).exists()}
    assert top == TOP | DOTTED


def room(name: str) -> int:
    """The floor of what a dotted name of ours names: that of the smallest room around it."""
    parts = name.split(".")[1:]
    around = ["/".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return next(n for inner in around for n, names in enumerate(ROOMS) if inner in names)


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(path)))


def imported(path: Path) -> Iterator[str]:
    """The names of ours that a file imports."""
    for node in nodes_of(path):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative(path)}: import by the full name"
            names = [node.module]
            if node.module == "derive":
                names = [f"derive.{alias.name}" for alias in node.names]
        for name in names:
            if name.startswith("derive.") and not name.startswith("derive.__version__"):
                yield name


def place(path: Path, node: ast.AST) -> str:
    return f"{relative(path)}:{node.lineno}"


def test_a_room_imports_only_what_stands_above_it():
    files = [p for p in FILES if p.name != "__init__.py"]
    below = [
        (relative(p), name) for p in files for name in imported(p) if room(name) > room(dotted(p))
    ]
    assert not below


def test_no_file_imports_itself_through_others():
    """Nor by imports within functions or for types alone; a CycleError names the files."""
    files = {dotted(p).removesuffix(".__init__"): p for p in FILES}
    imports: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        for node in nodes_of(path):
            if isinstance(node, ast.Import):
                imports[name] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                imports[name] |= inner & files.keys() or {node.module}
    within = {name: (found & files.keys()) - {name} for name, found in imports.items()}
    assert sum(map(len, within.values())) > len(files)
    TopologicalSorter(within).prepare()


def test_every_file_has_a_room():
    for path in FILES:
        assert (path.parent == PACKAGE and path.name == "__init__.py") or room(dotted(path)) >= 0


def test_the_map_of_the_engine_names_folders_and_files_that_exist():
    rows = re.findall(r"^\| `(\w+)/` \|(.*)\|$", (PACKAGE / "README.md").read_text("utf-8"), re.M)
    folders = {path.parent.name for path in PACKAGE.glob("*/*.py")}
    assert folders - {"examples", "loaded"} == {folder for folder, _ in rows}
    for folder, row in rows:
        for name in re.findall(r"`([\w/]+\.py)`", row):
            assert (PACKAGE / folder / name).is_file(), f"{folder}/{name}"


def test_an_example_uses_public_names_only():
    """Those of derive, the catalog and the generated modules: what anyone can import."""
    public = {*derive.__all__, "catalog"}
    for path in EXAMPLES:
        for node in nodes_of(path):
            if isinstance(node, ast.Import):
                names = {a.name for a in node.names if a.name.split(".")[0] == "derive"}
                assert names <= {"derive"}, place(path, node)
            if isinstance(node, ast.ImportFrom) and node.module == "derive":
                assert {alias.name for alias in node.names} <= public, place(path, node)
            elif isinstance(node, ast.ImportFrom) and node.module.startswith("derive."):
                assert node.module.split(".")[1] in {"examples", "generated"}, place(path, node)
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "derive":
                assert node.attr in public, place(path, node)
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "catalog":
                assert node.attr in derive.catalog.__all__, place(path, node)


USERS = {
    "torch": {"check", "tracing", "auditing", "command", "examples", "linting"},
    "numpy": {"check", "tracing", "auditing", "algebra", "examples"},
    "jinja2": {"module"},
    "typer": {"command"},
    "rich": {"command", "examples"},
    "pygments": {"site"},
    "markdown_it": {"site"},
}
"""The rooms that import a library."""


def test_a_library_is_imported_where_it_belongs():
    for path in FILES:
        for node in nodes_of(path):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module]
            for library in USERS.keys() & {name.split(".")[0] for name in names}:
                assert path.relative_to(PACKAGE).parts[0] in USERS[library], place(path, node)


MOST_LINES = {ast.FunctionDef: 125, ast.ClassDef: 420}
"""Of a function, docstring and options of a command included, and of a class."""


def test_functions_and_classes_are_small():
    large = [
        place(path, node)
        for path in FILES
        for node in nodes_of(path)
        if type(node) in MOST_LINES and node.end_lineno - node.lineno >= MOST_LINES[type(node)]
    ]
    assert not large


def test_no_evaluation_and_no_calculus_of_sympy():
    """Text is never run, and SymPy's own substitution and derivatives capture summed indices.

    Sizes of torch's have none. A backward that is audited runs again, its own code edited.
    """
    for path in FILES:
        of_sizes = path == PACKAGE / "tracing" / "sizes.py"
        of_edits = path == PACKAGE / "auditing" / "repair.py"
        for node in nodes_of(path):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", None)
                assert of_edits or name not in {"eval", "exec", "compile"}, place(path, node)
            if isinstance(node, ast.Attribute):
                forbidden = {"subs", "xreplace", "doit", "diff", "parse_expr"}
                forbidden -= {"xreplace"} if of_sizes else set()
                assert node.attr not in forbidden, place(path, node)


FINITENESS = {"calculus/value_analysis.py", "calculus/guard_insertion.py"}
"""Which values may be infinite, and guards of these; lowering/ground/numbers has numbers."""


def test_the_facts_about_infinite_values_are_read_by_their_analyses_alone():
    allowed = {PACKAGE / path for path in (*FINITENESS, "lowering/ground/numbers.py")}
    for folder in ("calculus", "lowering", "program", "cost", "module"):
        for path in set((PACKAGE / folder).rglob("*.py")) - allowed:
            for node in nodes_of(path):
                if isinstance(node, ast.Attribute):
                    columns = {"total", "overflows", "is_infinite_of_nothing"}
                    assert node.attr not in columns, place(path, node)


def test_only_the_command_line_prints_or_exits():
    """The commands have exit codes, and options that may be wrong; console.py prints."""
    for path in set(ENGINE) - set(COMMANDS):
        for node in nodes_of(path):
            if isinstance(node, ast.Call):
                assert getattr(node.func, "id", None) not in {"print", "exit", "quit"}, place(
                    path, node
                )
                assert ast.unparse(node.func) not in {"sys.exit", "typer.Exit"}, place(path, node)
            if isinstance(node, ast.Name) and node.id in {"typer", "rich"}:
                assert path.name == "console.py", place(path, node)


def test_no_file_of_the_engine_names_an_operation_that_is_no_function_of_the_notation():
    names = {"linear_cross_entropy", "nll_loss", "nll", "cross_entropy"}
    for path in ENGINE:
        for node in nodes_of(path):
            if isinstance(node, ast.Constant):
                assert node.value not in names, place(path, node)
            if isinstance(node, ast.Name | ast.Attribute):
                found = node.id if isinstance(node, ast.Name) else node.attr
                assert found not in names, place(path, node)


def test_a_template_only_places_and_indents():
    allowed = {"Template", "Output", "TemplateData", "Name", "Getattr", "For"}
    environment = Environment(autoescape=False)
    for path in (ROOT / "templates").glob("*.jinja"):
        tree = environment.parse(path.read_text(encoding="utf-8"))
        assert {type(node).__name__ for node in (tree, *tree.find_all(nodes.Node))} <= allowed
        assert all(not loop.else_ and loop.test is None for loop in tree.find_all(nodes.For))


def names_of(op: Operation) -> list[str]:
    """The names that a person chose: of op, its tensors, letters, sizes and parameters."""
    axes = [i for t in (*op.inputs, *op.equations) for i in t.axes]
    sizes = [e.size for e in op.extents if e.size is not None]
    letters = {
        part.name
        for e in (*axes, *(e.body for e in op.equations), *sizes)
        for part in walk(e)
        if isinstance(part, Index)
    }
    own = (*op.inputs, *op.equations, *op.extents, *op.parameters)
    return sorted({op.name, *letters, *(o.name for o in own)})


def renamed(op: Operation) -> Operation:
    """op under other names, which sort the other way round."""
    names = names_of(op)
    new = {name: f"z{len(names) - n:03d}" for n, name in enumerate(names)}
    other = new.__getitem__
    assert sorted(names, key=other, reverse=True) == names

    def within(e: Expr) -> Expr:
        def node(part: Expr) -> Expr | None:
            match part:
                case Index(name, extent, group):
                    return Index(other(name), other(extent), group)
                case Size(extent):
                    return Size(other(extent))
                case Param(name):
                    return Param(other(name))
                case Access(tensor, positions):
                    return Access(other(tensor), tuple(map(within, positions)))
            return None

        return replace(e, node)

    def parameter(p: Parameter) -> Parameter:
        match p:
            case Number(name, default, integer, bounds):
                return Number(other(name), default, integer, bounds)
            case AxisOf(name, index, default):
                return AxisOf(other(name), within(index), default)
            case KeepDim(name, index):
                return KeepDim(other(name), within(index))
            case SizeOf(name, extent, default):
                return SizeOf(other(name), other(extent), default)
            case Choice(name, outputs):
                return Choice(other(name), tuple((option, other(o)) for option, o in outputs))

    return Operation.resolved(
        other(op.name),
        tuple(
            Tensor(other(t.name), tuple(map(within, t.axes)), t.kind, t.default) for t in op.inputs
        ),
        tuple(map(parameter, op.parameters)),
        tuple(
            Equation(other(e.name), tuple(map(within, e.axes)), within(e.body), e.kind)
            for e in op.equations
        ),
        tuple(map(other, op.outputs)),
        tuple(
            Extent(
                other(e.name),
                e.group,
                tuple((other(name), n) for name, n in e.sources),
                None if e.size is None else within(e.size),
            )
            for e in op.extents
        ),
        op.stable,
    )


class Anonymous(ast.NodeTransformer):
    """Names that the module itself binds, numbered as they appear; texts are left out.

    Those of the module, of each function and of ctx are numbered apart: what a helper calls its
    argument has nothing to do with a parameter of that name.
    """

    def __init__(self, tree: ast.Module) -> None:
        tops = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        self.scopes = [Scope("g", {n.name for n in tops} | bound(tree.body))]
        self.kept = Scope("k", {n.attr for n in ast.walk(tree) if is_kept(n)})

    def name(self, name: str) -> str:
        return next((s.number(name) for s in reversed(self.scopes) if name in s.bound), name)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.name(node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self.name(node.arg))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self.name(node.name)
        arguments = {n.arg for n in ast.walk(node.args) if isinstance(n, ast.arg)}
        self.scopes.append(Scope("v", arguments | bound(node.body)))
        made = self.generic_visit(node)
        self.scopes.pop()
        return made

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self.name(node.name)
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if is_kept(node):
            node.attr = self.kept.number(node.attr)
        return self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return ast.Constant("")

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant("") if isinstance(node.value, str) else node


class Scope:
    """The names that one part of a module binds, numbered as they appear."""

    def __init__(self, letter: str, bound: set[str]) -> None:
        self.letter, self.bound = letter, bound
        self.numbers: dict[str, str] = {}

    def number(self, name: str) -> str:
        return self.numbers.setdefault(name, f"{self.letter}{len(self.numbers)}")


def bound(body: list[ast.stmt]) -> set[str]:
    """The names that statements bind, those within functions left out."""
    found: set[str] = set()
    pending: list[ast.AST] = list(body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef):
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        pending += ast.iter_child_nodes(node)
    return found


def is_kept(node: ast.AST) -> bool:
    """Whether it is what setup_context keeps under a name of ours."""
    torchs = {"needs_input_grad", "saved_tensors", "save_for_backward"}
    return (
        isinstance(node, ast.Attribute)
        and ast.unparse(node.value) == "ctx"
        and node.attr not in torchs
    )


def anonymous(text: str) -> str:
    tree = ast.parse(text)
    return ast.dump(Anonymous(tree).visit(tree), indent=1)


BATCH_NORM = """
op batch_norm(x[i,j], gain[j], bias[j]; eps=1e-5) -> y
mu[j]     = mean[i](x[i,j])
var[j]    = sum[i]((x[i,j] - mu[j])**2) / (size(i) - 1)
xhat[i,j] = (x[i,j] - mu[j]) * (var[j] + eps)**(-1/2)
y[i,j]    = gain[j]*xhat[i,j] + bias[j]
"""
CAUSAL_ATTENTION = """
op causal_attention(Q[*b,t,d], K[*b,s,d], V[*b,s,e]; scale=1) -> Y
L[*b,t,s] = scale*sum[d](Q[*b,t,d]*K[*b,s,d])
P[*b,t,s] = softmax[s | s <= t](L[*b,t,s])
Y[*b,t,e] = sum[s](P[*b,t,s]*V[*b,s,e])
"""
GRU_CELL = """
op gru_cell(x[n,c], h[n,d], Wr[d,c], Ur[d,e], br[d], Wz[d,c], Uz[d,e], bz[d],
            Wn[d,c], Un[d,e], bn[d], cn[d]) -> y
r[n,d] = sigmoid(sum[c](Wr[d,c]*x[n,c]) + sum[e](Ur[d,e]*h[n,e]) + br[d])
z[n,d] = sigmoid(sum[c](Wz[d,c]*x[n,c]) + sum[e](Uz[d,e]*h[n,e]) + bz[d])
q[n,d] = sum[c](Wn[d,c]*x[n,c]) + bn[d]
w[n,d] = tanh(q[n,d] + r[n,d]*(sum[e](Un[d,e]*h[n,e]) + cn[d]))
y[n,d] = (1 - z[n,d])*w[n,d] + z[n,d]*h[n,d]
"""
DISTANCES = """
op distances(X[*b,i,d], Y[*b,j,d], w[d]) -> y
y[*b,i,j] = sum[d](w[d]*(X[*b,i,d]-Y[*b,j,d])**2)
"""
KEPT_DISTANCES = """
op distances(X[i,d], Y[j,d], w[d]; stable) -> y
y[i,j] = sum[d](w[d]*(X[i,d]-Y[j,d])**2)
"""


@pytest.mark.parametrize(
    "text", [BATCH_NORM, CAUSAL_ATTENTION, GRU_CELL, DISTANCES, KEPT_DISTANCES]
)
def test_the_engine_does_not_see_names(text):
    assert_blind(parse(text))


@each_operation(share=3, turns=8)
def test_the_engine_does_not_see_names_of_the_catalog(op):
    assert_blind(op)


def assert_blind(op):
    """On lines and names of any length: a long line is broken, and a long name is cut."""
    with pytest.MonkeyPatch.context() as patch, anew("program_of"):
        lines = (
            "emit.COLUMNS",
            "function_codegen.COLUMNS",
            "public.COLUMNS",
            "pretty_printer.COLUMNS",
        )
        for name in (f"module.{width}" for width in (*lines, "shape_checks.SHORT")):
            patch.setattr(f"derive.{name}", 10_000)
        patch.setattr("derive.program.torch_printer.COLUMNS", 10_000)
        for letters in ("_MOST", "_MOST_OF_OPERAND", "_SHORT"):
            patch.setattr(f"derive.program.value_names.{letters}", 10_000)
        predicated_lines._of_lines.cache_clear()
        assert anonymous(source(renamed(op))) == anonymous(source(op))
    predicated_lines._of_lines.cache_clear()


WRITTEN = """
import sys
from derive import catalog, derivation, source
for name in sys.argv[1:]:
    op = catalog.find(name)
    print(source(op))
    for f in derivation(op).gradients.values():
        print(*f.steps, sep="\\n")
"""


@pytest.mark.slow
def test_a_process_with_another_hash_generates_the_same_bytes(monkeypatch):
    """Of an operation of every second family, with the steps; hashes here are drawn at random."""
    names = [members[-1] for n, members in enumerate(catalog.FAMILIES.values()) if has_turn(n, 2)]
    monkeypatch.setattr(sys, "argv", ["", *names])
    with redirect_stdout(StringIO()) as here:
        exec(WRITTEN, {})
    there = run(sys.executable, "-c", WRITTEN, *names, PYTHONHASHSEED="1")
    assert there.returncode == 0, there.stderr
    assert there.stdout == here.getvalue() != ""
