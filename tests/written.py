"""The operations of the catalog in the text notation, as far as it says all of one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from derive import DeriveError, parse
from derive.algebra.expr import (
    Access,
    Add,
    And,
    Call,
    Composite,
    Const,
    Expr,
    Guard,
    Index,
    Iverson,
    Mul,
    Not,
    Num,
    Or,
    Param,
    Pow,
    Reduce,
    Rel,
    Size,
    Where,
)
from derive.catalog import operations
from derive.spec.operation import AxisOf, Choice, KeepDim, Number, Operation, SizeOf


def written() -> Iterator[str]:
    """Each operation that is read again from its text."""
    for op in operations():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                text = text_of(op)
                parse(text)
            except (DeriveError, TypeError):
                continue
        yield text


def text_of(op: Operation) -> str:
    """The op line and a line for each equation."""
    inputs = []
    for t in op.inputs:
        kind = "" if t.kind == "float" else f": {t.kind}"
        default = "" if t.default is None else f"={t.default}"
        inputs.append(f"{t.name}[{_list(t.axes)}]{kind}{default}" if t.axes else t.name)
    options, outputs = [], ", ".join(op.outputs)
    for p in op.parameters:
        match p:
            case Number(name, default):
                value = _default(default)
                options.append(name + value)
            case AxisOf(name, index, default):
                options.append(f"{name}=axis({_index(index)}{_after(default)})")
            case KeepDim(name, index):
                options.append(f"{name}=keep({_index(index)})")
            case SizeOf(name, extent, default):
                options.append(f"{name}=size({extent}{_after(default)})")
            case Choice(name, pairs):
                options.append(f"{name}={'|'.join(o for o, _ in pairs)}")
                outputs = " | ".join(f"{o}: {out}" for o, out in pairs)
    options += [f"size({e.name})={_text(e.size)}" for e in op.extents if isinstance(e.size, Num)]
    options += ["stable"] * op.stable
    rest = "".join(f"{'; ' if n == 0 else ', '}{o}" for n, o in enumerate(options))
    lines = [f"op {op.name}({', '.join(inputs)}{rest}) -> {outputs}"]
    for e in op.equations:
        axes = f"[{_list(e.axes)}]" if e.axes else ""
        lines.append(f"{e.name}{axes} = {_text(e.body)}")
    return "\n".join(lines)


def _default(value: object) -> str:
    return "" if value is None else f"={_text(value) if isinstance(value, Expr) else value}"


def _after(value: object) -> str:
    return "" if value is None else f", {value}"


def _list(items: tuple[Expr, ...]) -> str:
    return ", ".join(map(_text, items))


def _index(i: Index) -> str:
    return ("*" if i.group else "") + i.name.replace("'", "_")


def _text(e: Expr) -> str:
    match e:
        case Num(value):
            return str(value) if value >= 0 and value.denominator == 1 else f"({value})"
        case Const(name) | Param(name):
            return name
        case Index():
            return _index(e)
        case Size(extent):
            return f"size({extent})"
        case Access(tensor, positions):
            return f"{tensor}[{_list(positions)}]" if positions else tensor
        case Composite(args):
            return f"({' '.join(map(_text, args))})"
        case Guard(_, position):
            return _text(position)
        case Add(args):
            return f"({' + '.join(map(_text, args))})"
        case Mul(args):
            return "*".join(map(_text, args))
        case Pow(base, exponent) | Call("pow", (base, exponent)):
            return f"({_text(base)})**{_text(exponent)}"
        case Call("floordiv", (a, b)):
            return f"floor({_text(a)}/({_text(b)}))"
        case Call(function, args):
            return f"{function}({_list(args)})"
        case Reduce(kind, indices, body, condition):
            where = "" if condition is None else f" | {_text(condition)}"
            return f"{kind}[{', '.join(map(_index, indices))}{where}]({_text(body)})"
        case Rel(op, left, right):
            return f"({_text(left)} {op} {_text(right)})"
        case And(args):
            return f"({' and '.join(map(_text, args))})"
        case Or(args):
            return f"({' or '.join(map(_text, args))})"
        case Not(arg):
            return f"(not {_text(arg)})"
        case Iverson(condition):
            return f"[{_text(condition)}]"
        case Where(condition, then, other):
            return f"where({_text(condition)}, {_text(then)}, {_text(other)})"
    raise TypeError(type(e).__name__)
