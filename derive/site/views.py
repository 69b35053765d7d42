"""What the templates of the site place: plain data, formulas as MathML, code as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
from derive.site.cost import cost_view
from derive.site.documents import conventions, measured
from derive.site.formulas import row, step, style_of, symbol
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


def operation_view(entry: Entry, drawn: bool = False) -> dict[str, Any]:
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
    views = [
        _option_view(op, d, first, taken, picture)
        for d, picture in zip(found, pictures, strict=True)
    ]
    derived = [s for view in views for d in view["derived"] for s in d["steps"]]
    steps = [*derived, *(s for view in views for s in view["rewritten"])]
    ratios = measured().get(op.name, ())
    bars = [*ratios, ("the other", 1.0)] if ratios else []
    longest = max((ratio for _, ratio in bars), default=1)
    return {
        "name": op.name,
        "family": entry.family,
        "signature": entry.signature,
        "description": entry.description,
        "spec": block(entry.text or str(op), "derive"),
        "is_wide": max(len(str(f)) for d in found for f in _formulas(d)) > _WIDE,
        "options": views,
        "plain": listing(plain, _LINES, lines),
        "production": listing(production, "production", owners(production, names, chosen)),
        "production_lines": production.count("\n"),
        "steps": len(steps),
        "checked": sum(s["checked"] for s in steps),
        "bars": [
            {"what": what, "ratio": ratio, "length": round(100 * ratio / longest, 1)}
            for what, ratio in bars
        ],
        "conventions": list(_conventions(op)),
        "checks": [(c.name, c.states) for c in GRADIENTS],
        "more_checks": len(QUICK) - len(GRADIENTS),
    }


def example(entry: Entry) -> tuple[str, str, str]:
    """Return spec, formulas and the plain module, without its docstring, of an operation."""
    op = entry.operation
    d = derivation(op)
    style = style_of(op, d)
    formulas = aligned(f.sides(style) for f in (*d.equations, *d.shown))
    code = source(op, style="plain").split('"""\n', 2)[-1].strip()
    return block(entry.text or str(op), "derive"), formulas, block(code, "python")


def _formulas(d: Derivation) -> tuple[Formula, ...]:
    """Return all formulas of a page, in order."""
    return (*d.equations, *d.definitions, *d.shown)


def _option_view(
    op: Operation, d: Derivation, lines: Mapping[str, int], taken: set[str], picture: str
) -> dict[str, Any]:
    """Return all about one option of a choice, or about an operation without one."""
    style = style_of(op, d)
    marks = dict(zip(map(id, steps_of(d)), verdicts(op, d), strict=True))

    def table(formulas: Sequence[Formula]) -> list[dict[str, Any]]:
        return [row(f, style, lines, taken) for f in formulas]

    def steps(log: Sequence[DerivationStep]) -> list[dict[str, Any]]:
        return [step(s, style, marks.get(id(s)) is True) for s in log]

    choice = next((p.name for p in op.parameters if isinstance(p, Choice)), "")
    derived = [
        {"name": f.name, "title": style.whole(style.access(f.name, ())), "steps": steps(f.steps)}
        for f in (*d.adjoints, *d.gradients.values())
        if f.steps
    ]
    return {
        "title": "" if d.option is None else f'{choice}="{d.option}"',
        "equations": table(d.equations),
        "definitions": table(d.definitions),
        "symbols": [symbol(style, name, output) for output, name in d.cotangents],
        "gradients": table(d.shown),
        "rewritten": steps(d.rewritten),
        "derived": derived,
        "saved": ", ".join(d.saved) or "nothing",
        "recognised": d.recognised,
        "cost": cost_view(op, d.cost),
        "picture": picture,  # the graph as SVG, or "" where it is not drawn
    }


def _conventions(op: Operation) -> Iterator[Mapping[str, str]]:
    """Yield the conventions of the functions and reductions in the equations."""
    met: set[str] = set()
    for equation in op.equations:
        for e in walk(equation.body):
            name = e.function if isinstance(e, Call) else None
            name = e.kind if isinstance(e, Reduce | AxisFunction) else name
            if name in conventions() and name not in met:
                assert name is not None
                met.add(name)
                place, said = conventions()[name]
                yield {"name": name, "place": place, "said": said}
