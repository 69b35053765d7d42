"""What the templates of the site place: plain data, formulas as MathML, code as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from derive.algebra.expr import Call, Reduce, walk
from derive.api import derivation, graph_data, source
from derive.check.checks import GRADIENTS, QUICK
from derive.check.step_values import verdicts
from derive.notation.operation import Choice, Operation, options
from derive.reports.formula import DerivationStep, Formula
from derive.reports.result import Derivation, steps_of
from derive.show.identities import AxisFunction
from derive.show.mathml import aligned
from derive.site.code import block, listing, owners
from derive.site.cost import CostView, cost_view
from derive.site.documents import conventions, measured
from derive.site.formulas import FormulaView, StepView, row, step, style_of, symbol
from derive.site.picture import inline

_LINES = "line"
"""The anchors of the lines of the plain module begin with this, as the templates know."""


_WIDE = 90
"""A formula of more characters needs the whole width of a page."""


@dataclass(frozen=True)
class Entry:
    """An operation of the site: where it stands in the catalog, and what is said of it."""

    operation: Operation
    family: str
    signature: str
    description: str = ""
    text: str = ""
    """The operation as its file has it, if that is a text in index notation."""

    @property
    def name(self) -> str:
        """The name of the operation."""
        return self.operation.name


@dataclass(frozen=True)
class Derived:
    """A formula with the steps that lead to it."""

    name: str
    title: str
    steps: tuple[StepView, ...]


@dataclass(frozen=True)
class OptionView:
    """All about one option of a choice, or about an operation without one."""

    title: str
    equations: tuple[FormulaView, ...]
    definitions: tuple[FormulaView, ...]
    symbols: tuple[str, ...]
    gradients: tuple[FormulaView, ...]
    rewritten: tuple[StepView, ...]
    derived: tuple[Derived, ...]
    saved: str
    recognised: tuple[tuple[str, str, str], ...]
    cost: CostView
    picture: str
    """The graph as SVG, or "" where it is not drawn."""


@dataclass(frozen=True)
class Bar:
    """A measured ratio, and its length in percent of the longest."""

    what: str
    ratio: float
    length: float


@dataclass(frozen=True)
class Convention:
    """What the gradient of a function is at its kinks and ties, and where the guide says so."""

    name: str
    place: str
    said: str


@dataclass(frozen=True)
class OperationView:
    """The page of an operation."""

    name: str
    family: str
    signature: str
    description: str
    spec: str
    is_wide: bool
    options: tuple[OptionView, ...]
    plain: str
    production: str
    production_lines: int
    steps: int
    checked: int
    bars: tuple[Bar, ...]
    conventions: tuple[Convention, ...]
    checks: tuple[tuple[str, str], ...]
    more_checks: int


def operation_view(entry: Entry, drawn: bool = False) -> OperationView:
    """Return the page of an operation; the work is here. If ``drawn``, it has its graphs."""
    op = entry.operation
    found = [derivation(op, option) for option, _ in options(op)]
    plain, production = source(op, style="plain"), source(op, standalone=False)
    names = list(dict.fromkeys(f.name for d in found for f in _formulas(d)))
    choice = next((p for p in op.parameters if isinstance(p, Choice)), None)
    chosen = dict(choice.outputs) if choice else {}
    lines = owners(plain, names, chosen)
    first: dict[str, int] = {}
    for n, owner in sorted(lines.items(), key=lambda line: (line[1].helps, line[0])):
        for name in owner.names:
            first.setdefault(name, n)
    taken: set[str] = set()
    pictures = inline([graph_data(op, d.option) for d in found]) if drawn else [""] * len(found)
    views = tuple(
        _option_view(op, d, first, taken, picture)
        for d, picture in zip(found, pictures, strict=True)
    )
    steps = [s for v in views for s in (*v.rewritten, *(s for f in v.derived for s in f.steps))]
    ratios = measured().get(op.name, ())
    bars = [*ratios, ("the other", 1.0)] if ratios else []
    longest = max((ratio for _, ratio in bars), default=1)
    return OperationView(
        name=op.name,
        family=entry.family,
        signature=entry.signature,
        description=entry.description,
        spec=block(entry.text or str(op), "derive"),
        is_wide=max(len(str(f)) for d in found for f in _formulas(d)) > _WIDE,
        options=views,
        plain=listing(plain, _LINES, lines),
        production=listing(production, "production", owners(production, names, chosen)),
        production_lines=production.count("\n"),
        steps=len(steps),
        checked=sum(s.checked for s in steps),
        bars=tuple(Bar(what, ratio, round(100 * ratio / longest, 1)) for what, ratio in bars),
        conventions=tuple(_conventions(op)),
        checks=tuple((c.name, c.states) for c in GRADIENTS),
        more_checks=len(QUICK) - len(GRADIENTS),
    )


def example(entry: Entry) -> tuple[str, str, str]:
    """Return spec, formulas and the plain module, without its docstring, of an operation."""
    op = entry.operation
    d = derivation(op)
    style = style_of(op, d)
    formulas = aligned(f.sides(style) for f in (*d.equations, *d.shown))
    text = source(op, style="plain")
    return (
        block(entry.text or str(op), "derive"),
        formulas,
        block(text.split('"""\n', 2)[-1].strip(), "python"),
    )


def _formulas(d: Derivation) -> tuple[Formula, ...]:
    """Return all formulas of a page, in order."""
    return (*d.equations, *d.definitions, *d.shown)


def _option_view(
    op: Operation, d: Derivation, lines: Mapping[str, int], taken: set[str], picture: str
) -> OptionView:
    style = style_of(op, d)
    marks = dict(zip(map(id, steps_of(d)), verdicts(op, d), strict=True))

    def table(formulas: Sequence[Formula]) -> tuple[FormulaView, ...]:
        return tuple(row(f, style, lines, taken) for f in formulas)

    def steps(log: Sequence[DerivationStep]) -> tuple[StepView, ...]:
        return tuple(step(s, style, marks.get(id(s)) is True) for s in log)

    choice = next((p.name for p in op.parameters if isinstance(p, Choice)), "")
    return OptionView(
        title="" if d.option is None else f'{choice}="{d.option}"',
        equations=table(d.equations),
        definitions=table(d.definitions),
        symbols=tuple(symbol(style, name, output) for output, name in d.cotangents),
        gradients=table(d.shown),
        rewritten=steps(d.rewritten),
        derived=tuple(
            Derived(f.name, style.whole(style.access(f.name, ())), steps(f.steps))
            for f in (*d.adjoints, *d.gradients.values())
            if f.steps
        ),
        saved=", ".join(d.saved) or "nothing",
        recognised=d.recognised,
        cost=cost_view(op, d.cost),
        picture=picture,
    )


def _conventions(op: Operation) -> Iterator[Convention]:
    """Yield the conventions of the functions and reductions in the equations."""
    met: set[str] = set()
    for equation in op.equations:
        for e in walk(equation.body):
            name = e.function if isinstance(e, Call) else None
            name = e.kind if isinstance(e, Reduce | AxisFunction) else name
            if name in conventions() and name not in met:
                assert name is not None
                met.add(name)
                yield Convention(name, *conventions()[name])
