"""Formulas and steps as MathML, for pages and for the engine in a browser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from derive.notation.operation import Operation
from derive.reports.formula import DerivationStep, Formula
from derive.reports.result import Derivation, steps_of
from derive.show.formula import sides
from derive.show.mathml import MathML, Partial, aligned, parts
from derive.site.code import anchor


def style_of(op: Operation, d: Derivation) -> MathML:
    """Return a style in which the gradients, adjoints and partial derivatives are fractions."""
    named = (*d.equations, *d.definitions, *d.step_definitions)
    ranks = {f.name: len(f.axes) for f in named} | {t.name: len(t.axes) for t in op.inputs}
    partials = {f.name: Partial("L", name) for name, f in d.gradients.items()}
    for step in steps_of(d):
        if step.name in ranks or step.name in partials:
            continue
        above, slash, below = step.name.partition("/")
        if slash and above.startswith("∂") and below.startswith("∂"):
            above, below = above[1:], below[1:]
            partials[step.name] = Partial(above, below, ranks.get(above, 0))
        elif step.name.startswith("grad_") and step.name[len("grad_") :] in ranks:
            partials[step.name] = Partial("L", step.name[len("grad_") :])
    return MathML(partials)


def symbol(style: MathML, name: str, output: str) -> str:
    """Return ``G = ∂L/∂Y``."""
    fraction = MathML({name: Partial("L", output)}).access(name, ())
    return style.whole(f"{style.name(name)}{style.relations['==']}{fraction}")


def row(f: Formula, style: MathML, lines: Mapping[str, int], taken: set[str]) -> dict[str, Any]:
    """Return a formula in two parts, its anchor ("" if it stands above already), its line or 0."""
    left, right = parts(f.sides(style))
    own = "" if f.name in taken else anchor(f.name)
    taken.add(f.name)
    line = lines.get(f.name, 0)
    return {"name": f.name, "anchor": own, "left": left, "right": right, "line": line}


def step(of: DerivationStep, style: MathML, checked: bool) -> dict[str, Any]:
    """Return a step: its rule, the formula after it, and whether its value was checked."""
    formula = aligned([sides(of.name, of.axes, of.after, style)])
    return {"rule": of.rule, "states": of.states, "formula": formula, "checked": checked}
