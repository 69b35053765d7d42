"""A derivation as text and as JSON, an operation as one line."""

from __future__ import annotations

import math
from typing import Any

from derive.comparison import Compared
from derive.formula import equation
from derive.result import Derivation, DerivationStep, Formula
from derive.spec.operation import Choice, Operation

__all__ = ["as_json", "as_text", "comparison_as_json", "comparison_title", "one_line"]


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


def as_text(d: Derivation, style: str, steps: bool) -> str:
    """The equations, what is named besides, and the gradients, a formula a line."""
    lines = [d.name if d.option is None else f"{d.name} ({d.option})", ""]
    lines += [f"  {_text(f, style)}" for f in d.equations]
    named = d.step_definitions if steps else d.definitions
    if named:
        lines += ["", "where", *(f"  {_text(f, style)}" for f in named)]
    cotangents = ", ".join(f"{name} = ∂L/∂{output}" for output, name in d.cotangents)
    lines += ["", f"gradients, {cotangents}" if cotangents else "no output has a gradient"]
    lines += [f"  {_text(f, style)}" for f in d.adjoints]
    lines += [f"  {_text(f, style)}" for f in d.gradients.values()]
    saved = ", ".join(d.saved) or "nothing"
    cost = f"{d.cost.operations} operations, {d.cost.contractions} contractions"
    lines += ["", f"saved for backward: {saved}; backward: {cost}"]
    if steps:
        if d.rewritten:
            lines += ["", "equations in a stable form"]
        for step in d.rewritten:
            lines += [f"  {step.states}", f"     {step.text(style)}"]
        for formula in (*d.adjoints, *d.gradients.values()):
            lines += ["", f"steps of {formula.name}"]
            for n, step in enumerate(formula.steps, 1):
                lines += [f"  {n}. {step.rule}: {step.states}", f"     {step.text(style)}"]
    return "\n".join(lines)


def _text(f: Formula, style: str) -> str:
    return f.latex() if style == "latex" else str(f)


def as_json(op: Operation, d: Derivation, steps: bool) -> dict[str, Any]:
    """Everything that the text says, in Unicode and LaTeX."""
    return {
        **one_line(op),
        "option": d.option,
        "equations": [_formula(f, False) for f in d.equations],
        "rewritten": [_step(step) for step in d.rewritten] if steps else [],
        "definitions": [_formula(f, False) for f in d.definitions],
        "cotangents": dict(d.cotangents),
        "adjoints": [_formula(f, steps) for f in d.adjoints],
        "gradients": {name: _formula(f, steps) for name, f in d.gradients.items()},
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


def comparison_title(made: Compared) -> str:
    """What was compared: ``softmax: gradients of S, float32, k=3 p=2 q=4``."""
    name = made.operation if made.option is None else f"{made.operation} ({made.option})"
    sizes = " ".join(f"{letter}={_size(n)}" for letter, n in made.sizes.items())
    parts = (f"{name}: gradients of {made.output}", made.dtype, sizes)
    return ", ".join(filter(None, parts))


def _size(size: int | tuple[int, ...]) -> str:
    return ",".join(map(str, size)) if isinstance(size, tuple) else str(size)


def comparison_as_json(made: Compared) -> dict[str, Any]:
    """The rows and what they were made with; a difference that is no number is null."""
    found = made.comparison
    return {
        "operation": made.operation,
        "option": made.option,
        "output": made.output,
        "dtype": made.dtype,
        "sizes": dict(made.sizes),
        "exact": found.exact,
        "approximate": found.approximate,
        "maxdiff": _finite(found.maxdiff),
        "rows": [{**vars(row), "maxdiff": _finite(row.maxdiff)} for row in found.rows],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
