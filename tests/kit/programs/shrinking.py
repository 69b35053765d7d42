"""A failing program made small: the shortest text found that still fails in the same way."""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

from kit.programs.parts import Program

from derive.errors import SpecError
from derive.notation import syntax, text_form


def shrunk(program: Program, fails: Callable[[Program], bool]) -> Program:
    """Simpler and simpler programs, as long as they fail."""
    best, found = program, True
    while found:
        found = False
        for text in _simpler(best.text):
            given = _with_text(best, text)
            if given is not None and len(text) < len(best.text) and fails(given):
                best, found = given, True
                break
    return best


def _with_text(program: Program, text: str) -> Program | None:
    """The program of another text, if it is one, with the arguments that it has."""
    try:
        op = read(text)
    except SpecError:
        return None
    tensors = {t.name: program.tensors[t.name] for t in op.inputs or ()}
    values = {p.name: program.parameters[p.name] for p in op.parameters
              if p.name in program.parameters}  # fmt: skip
    twins = program.twins if program.twins and {*program.twins} <= tensors.keys() else None
    return replace(program, text=text, tensors=tensors, parameters=values, twins=twins)


def read(text: str) -> syntax.OperationSyntax:
    (operation,) = text_form._group_by_op(text_form._located_statements(text))
    return operation


def _simpler(text: str) -> Iterator[str]:
    """Texts with something left out, the largest parts first."""
    op = read(text)
    outputs = op.outputs or ()
    for n in range(len(outputs)):
        if len(outputs) > 1 and outputs[0][0] is None:
            yield _written(replace(op, outputs=(*outputs[:n], *outputs[n + 1 :])))
    for n in range(len(op.equations)):
        yield _written(replace(op, equations=(*op.equations[:n], *op.equations[n + 1 :])))
    for n in range(len(op.inputs or ())):
        inputs = op.inputs or ()
        yield _written(replace(op, inputs=(*inputs[:n], *inputs[n + 1 :])))
    for n in range(len(op.parameters)):
        yield _written(replace(op, parameters=(*op.parameters[:n], *op.parameters[n + 1 :])))
    for n, equation in enumerate(op.equations):
        for body in _smaller(equation.body):
            equations = (*op.equations[:n], replace(equation, body=body), *op.equations[n + 1 :])
            yield _written(replace(op, equations=equations))
        for m in range(len(equation.axes)):
            axes = (*equation.axes[:m], *equation.axes[m + 1 :])
            equations = (*op.equations[:n], replace(equation, axes=axes), *op.equations[n + 1 :])
            yield _written(replace(op, equations=equations))


def _smaller(e: syntax.Raw) -> Iterator[syntax.Raw]:
    """e with one part left out or made simple, outermost first."""
    if not isinstance(e, syntax.NumberSyntax | syntax.NameSyntax | syntax.Star):
        yield syntax.NumberSyntax(Fraction(1))
        yield from (p for p in e.parts() if not isinstance(p, syntax.Star))
    if isinstance(e, syntax.Bind) and e.condition is not None:
        yield replace(e, condition=None)
    if isinstance(e, syntax.Bind) and len(e.indices) > 1:
        for n in range(len(e.indices)):
            yield replace(e, indices=(*e.indices[:n], *e.indices[n + 1 :]))
    for name in ("terms", "factors", "args"):
        items = getattr(e, name, ())
        if len(items) > 1 and not isinstance(e, syntax.CompositeSyntax | syntax.ApplySyntax):
            for n in range(len(items)):
                left = (*items[:n], *items[n + 1 :])
                if len(left) > 1 or isinstance(e, syntax.Bind):
                    yield replace(e, **{name: left})
                else:
                    yield left[0] if isinstance(left[0], syntax.Raw) else left[0][1]
    for f in fields(e):
        for changed in _changed(getattr(e, f.name)):
            yield replace(e, **{f.name: changed})


def _changed(value: Any) -> Iterator[Any]:
    """A field with one of the expressions in it made smaller."""
    if isinstance(value, syntax.Raw):
        yield from _smaller(value)
    elif isinstance(value, tuple):
        for n, item in enumerate(value):
            for changed in _changed(item):
                yield (*value[:n], changed, *value[n + 1 :])


# Text


def _written(op: syntax.OperationSyntax) -> str:
    """The text of an operation as it was written."""
    line = f"op {op.name}({', '.join(map(_tensor, op.inputs or ()))}"
    if op.parameters:
        line += f"; {', '.join(map(_parameter, op.parameters))}"
    pairs = op.outputs or ()
    if pairs and pairs[0][0] is not None:
        shown = " | ".join(f"{option}: {name}" for option, name in pairs)
    else:
        shown = ", ".join(name for _, name in pairs)
    equations = [f"{_item(e.name, e.axes)} = {syntax.show(e.body)}" for e in op.equations]
    return "\n".join((f"{line}) -> {shown}", *equations))


def _item(name: str, axes: tuple[syntax.Raw, ...] | None) -> str:
    return f"{name}[{','.join(map(syntax.show, axes))}]" if axes else name


def _tensor(t: syntax.TensorSyntax) -> str:
    default = f"={syntax.show(t.default)}" if t.default is not None else ""
    return _item(t.name, t.axes) + (f": {t.kind}" if t.kind else "") + default


def _parameter(p: syntax.ParameterSyntax) -> str:
    if p.options:
        return f"{p.name}={'|'.join(p.options)}"
    if p.fixes:
        return f"size({p.name})={syntax.show(p.value)}" if p.value else ""
    return p.name if p.value is None else f"{p.name}={syntax.show(p.value)}"
