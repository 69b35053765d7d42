"""A derivation as text and as JSON, an operation as one line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from derive.formula import equation
from derive.result import Derivation, DerivationStep, Formula
from derive.spec.operation import Choice, Operation

__all__ = ["as_json", "as_text", "one_line"]


def one_line(op: Operation) -> dict[str, Any]:
    """The name, the inputs, parameters and outputs, and the signature made of them."""
    choice = next((p for p in op.parameters if isinstance(p, Choice)), None)
    inputs = [_tensor(t) for t in op.inputs]
    parameters = [p.name for p in op.parameters]
    outputs = list(op.outputs) if choice is None else [f"{o}: {n}" for o, n in choice.outputs]
    given = ", ".join(inputs) + ("; " + ", ".join(parameters) if parameters else "")
    joined = ", ".join(outputs) if choice is None else " | ".join(outputs)
    return {
        "name": op.name,
        "inputs": inputs,
        "parameters": parameters,
        "outputs": list(op.outputs),
        "signature": f"({given}) -> {joined}",
    }


def _tensor(t: Any) -> str:
    kind = "" if t.kind == "float" else f": {t.kind}"
    return f"{t.name}{'' if t.default is None else '?'}{kind}"


def as_text(d: Derivation, style: str, steps: bool, wrt: str | None) -> str:
    """The equations, what is named besides, and the gradients, a formula a line."""
    lines = [d.name if d.option is None else f"{d.name} ({d.option})", ""]
    lines += [f"  {_text(f, style)}" for f in d.equations]
    named = d.step_definitions if steps else d.definitions
    if named:
        lines += ["", "where", *(f"  {_text(f, style)}" for f in named)]
    cotangents = ", ".join(f"{name} = ∂L/∂{output}" for output, name in d.cotangents)
    lines += ["", f"gradients, {cotangents}" if cotangents else "no output has a gradient"]
    lines += [f"  {_text(f, style)}" for f in d.adjoints]
    lines += [f"  {_text(d.gradients[name], style)}" for name in _chosen(d, wrt)]
    saved = ", ".join(d.saved) or "nothing"
    cost = f"{d.cost.operations} operations, {d.cost.contractions} contractions"
    lines += ["", f"saved for backward: {saved}; backward: {cost}"]
    if steps:
        shown = [*d.adjoints, *(d.gradients[name] for name in _chosen(d, wrt))]
        for formula in shown:
            lines += ["", f"steps of {formula.name}"]
            for n, step in enumerate(formula.steps, 1):
                lines += [f"  {n}. {step.rule}: {step.states}", f"     {step.text(style)}"]
    return "\n".join(lines)


def _text(f: Formula, style: str) -> str:
    return f.latex() if style == "latex" else str(f)


def _chosen(d: Derivation, wrt: str | None) -> Iterator[str]:
    return (name for name in d.gradients if wrt is None or name == wrt)


def as_json(op: Operation, d: Derivation, steps: bool, wrt: str | None) -> dict[str, Any]:
    """Everything that the text says, in Unicode and LaTeX."""
    return {
        **one_line(op),
        "option": d.option,
        "equations": [_formula(f, False) for f in d.equations],
        "definitions": [_formula(f, False) for f in d.definitions],
        "cotangents": dict(d.cotangents),
        "adjoints": [_formula(f, steps) for f in d.adjoints],
        "gradients": {name: _formula(d.gradients[name], steps) for name in _chosen(d, wrt)},
        "saved": list(d.saved),
        "cost": {
            "operations": d.cost.operations,
            "contractions": d.cost.contractions,
            "lines": d.cost.lines,
        },
    }


def _formula(f: Formula, steps: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": f.name,
        "unicode": str(f),
        "latex": f.latex(),
        "mathml": f.mathml(),
    }
    if steps:
        found["steps"] = [_step(step) for step in f.steps]
    return found


def _step(step: DerivationStep) -> dict[str, str]:
    return {
        "rule": step.rule,
        "states": step.states,
        "before": equation(step.name, step.axes, step.before, "unicode"),
        "after": equation(step.name, step.axes, step.after, "unicode"),
        "latex": step.text("latex"),
    }
