"""Format derivations as text and JSON, and operations as one line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from derive.notation.comments import first_sentence
from derive.notation.operation import Choice, Operation
from derive.show.formula import equation

if TYPE_CHECKING:
    from derive.check.comparison import Compared
    from derive.cost.costs import Costs, Work
    from derive.cost.size_formula import Amount
    from derive.reports.formula import DerivationStep, Formula
    from derive.reports.result import Derivation, Tangents


def one_line(op: Operation) -> dict[str, Any]:
    """Return the name, inputs, parameters, outputs and signature of an operation."""
    choice = next((p for p in op.parameters if isinstance(p, Choice)), None)
    inputs = [_tensor_text(t) for t in op.inputs]
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


def described(op: Operation) -> dict[str, Any]:
    """Return the line of an operation, with what the comment above it says first."""
    return {**one_line(op), "description": first_sentence(op.comment)}


def _tensor_text(t: Any) -> str:
    kind = "" if t.kind == "float" else f": {t.kind}"
    return f"{t.name}{'' if t.default is None else '?'}{kind}"


def cost_as_text(d: Derivation, sizes: Mapping[str, int]) -> str:
    """Print the cost of forward and backward, with numbers for the given sizes.

    With only some sizes given, formulas are partially evaluated, and missing sizes are listed.
    """
    cost, known = d.cost, d.cost.sizes(sizes)
    lines = [d.name if d.option is None else f"{d.name} ({d.option})"]
    for title, work in (("forward", cost.forward), ("backward, every gradient", cost.backward)):
        lines += [
            "",
            title,
            f"  flops                         {work.flops}{_equals([work.flops], known)}",
            f"  full-tensor passes            {work.passes}",
            f"  largest intermediate          {_most(work.largest)}{_equals(work.largest, known)}",
        ]
    names = ", ".join(name for name, _ in cost.saved) or "nothing"
    held, own = cost.saved_bytes, cost.own_bytes
    lines += [
        "",
        f"saved for backward: {names}",
        f"  bytes                         {held}{_equals([held], known)}",
        f"  bytes beyond inputs, outputs  {own}{_equals([own], known)}",
    ]
    missing = _missing(cost, known) if sizes else []
    if missing:
        lines += ["", f"missing sizes: {', '.join(missing)}"]
    lines += [
        "",
        "flops: 2 for each product in a contraction, 1 per element elsewhere. A pass is one",
        "operation that reads or writes a tensor with as many axes as the largest input or output;",
        "a view is free. Intermediates are in elements, bytes are for float32, int64 and bool.",
    ]
    return "\n".join(lines)


def _missing(cost: Costs, known: Mapping[str, int]) -> list[str]:
    """Return the sizes that are needed to evaluate every formula."""
    amounts = [cost.saved_bytes, cost.own_bytes]
    for work in (cost.forward, cost.backward):
        amounts += [work.flops, *work.largest]
    needed = set().union(*(a.needs() for a in amounts)) - set(known)
    return [letter for letter in cost.letters if letter in needed]


def _most(amounts: Sequence[Amount]) -> str:
    shown = ", ".join(dict.fromkeys(map(str, amounts))) or "none"
    return f"max({shown})" if len(set(map(str, amounts))) > 1 else shown


def _known_amount(a: Amount, sizes: Mapping[str, int]) -> int | None:
    return a.at(sizes) if a.needs() <= set(sizes) else None


def _equals(amounts: Sequence[Amount], known: Mapping[str, int]) -> str:
    """Return " = VALUE": the largest value, or the simplified formula if sizes are missing."""
    values = [_known_amount(a, known) for a in amounts]
    numbers = [n for n in values if n is not None]
    if len(numbers) == len(amounts):
        shown = str(max(numbers, default=""))
    else:
        shown = _most([a.given(known) for a in amounts])
    return f" = {shown}" if shown and shown != _most(amounts) else ""


def _cost_as_json(d: Derivation, sizes: Mapping[str, int]) -> dict[str, Any]:
    cost, known = d.cost, d.cost.sizes(sizes)

    def amount(a: Amount) -> dict[str, Any]:
        return {"formula": str(a), "value": _known_amount(a, known)}

    def work(w: Work) -> dict[str, Any]:
        return {
            "flops": amount(w.flops),
            "contraction_flops": amount(w.contracted),
            "passes": w.passes,
            "largest_intermediate": [amount(a) for a in w.largest],
        }

    return {
        "operations": cost.operations,
        "contractions": cost.contractions,
        "lines": cost.lines,
        "sizes": known,
        "missing": _missing(cost, known),
        "forward": work(cost.forward),
        "backward": work(cost.backward),
        "saved_bytes": amount(cost.saved_bytes),
        "own_bytes": amount(cost.own_bytes),
        "saved": {name: amount(a) for name, a in cost.saved},
        "wide": [{"of": w.owner, **amount(w.size)} for w in cost.wide],
    }


def warnings_of(op: Operation, option: str | None, costs: Costs) -> list[str]:
    """Warn of intermediates with more axes than any tensor in the operation's text."""
    name = op.name if option is None else f"{op.name} ({option})"
    return [
        f"{name}: {w.owner} is computed through a tensor of {w.size} elements, and no input, "
        f"equation, condition or access has more than {w.axes} ax{'is' if w.axes == 1 else 'es'}; "
        "if this is intended, give the tensor its own equation, or add stable after the ';' of "
        "the op line (stable=True in Python)"
        for w in costs.wide
    ]


_PATTERN = ("equation", "pattern", "states")


def as_json(
    op: Operation, d: Derivation | Tangents, steps: bool, sizes: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Return a derivation as JSON data, with Unicode and LaTeX, and costs for these sizes."""
    found = {
        **one_line(op),
        "option": d.option,
        "equations": [_formula(f, False) for f in d.equations],
        "rewritten": [_step_as_json(step) for step in d.rewritten] if steps else [],
        "definitions": [_formula(f, False) for f in d.definitions],
    }
    if isinstance(d, Mapping):
        tangents = {name: _formula(f, steps) for name, f in d.items()}
        return {**found, "given": dict(d.given), "tangents": tangents}
    return {
        **found,
        "recognised": [dict(zip(_PATTERN, r, strict=True)) for r in d.recognised if steps],
        "cotangents": dict(d.cotangents),
        "adjoints": [_formula(f, steps) for f in d.adjoints],
        "gradients": {name: _formula(f, steps) for name, f in d.gradients.items()},
        "saved": list(d.saved),
        "cost": _cost_as_json(d, sizes or {}),
    }


def _formula(f: Formula, steps: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": f.name,
        "unicode": str(f),
        "latex": f.latex(),
        "mathml": f.mathml(),
    }
    if steps:
        found["steps"] = [_step_as_json(step) for step in f.steps]
    return found


def _step_as_json(step: DerivationStep) -> dict[str, str]:
    return {
        "rule": step.rule,
        "states": step.states,
        "before": equation(step.name, step.axes, step.before, "unicode"),
        "after": equation(step.name, step.axes, step.after, "unicode"),
        "latex": step.text("latex"),
    }


def comparison_title(made: Compared) -> str:
    """Return a title: ``softmax: gradients of S by generated/softmax.py, float32, k=3 p=2``."""
    name = made.operation if made.option is None else f"{made.operation} ({made.option})"
    shapes = {x: n if isinstance(n, tuple) else (n,) for x, n in made.sizes.items()}
    sizes = " ".join(f"{x}={','.join(map(str, shape))}" for x, shape in shapes.items())
    code = made.module or "code derived now"
    parts = (f"{name}: gradients of {made.output} by {code}", made.dtype, sizes)
    return ", ".join(filter(None, parts))


def comparison_as_json(made: Compared) -> dict[str, Any]:
    """Return a comparison as JSON data; nan and inf become null."""
    found = made.comparison
    return {
        "operation": made.operation,
        "option": made.option,
        "output": made.output,
        "dtype": made.dtype,
        "module": made.module,
        "sizes": dict(made.sizes),
        "exact": found.exact,
        "approximate": found.approximate,
        "maxdiff": _finite(found.maxdiff),
        "rows": [{**vars(row), "maxdiff": _finite(row.maxdiff)} for row in found.rows],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
