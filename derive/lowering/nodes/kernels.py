"""Calls of torch's fused kernels, with all tensors in one layout."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from derive.algebra.expr import Access, Expr, Index, Num, Rel, Size, accesses, free_indices, num
from derive.algebra.poly import as_poly, atom
from derive.kernels.kernel_spec import AttentionResult, Kernel, KernelResult
from derive.kernels.table import KERNELS
from derive.lowering.ground.context import Scope
from derive.lowering.ground.value import Indices, Value, broadcast, shape_of
from derive.program.gradient_predication import wanted
from derive.program.torch_ir import Code, FunctionCall, Keyword, Literal, Subscript, literal


def lower_kernel(scope: Scope, e: Kernel, order: Indices) -> Value:
    """Lower a kernel to the call of its row, with all tensors of one shape.

    Some kernels need equal shapes: a sum along an axis, a loss under vmap, and gelu_backward with
    oneDNN. Expanded tensors with stride 0 are fine for all of them.
    """
    row = KERNELS[e.name]
    numbers = {p.name for p in row.operation.parameters}
    order = _with_bound(e, order)
    args: dict[str, Value] = {}
    axes: tuple[Index | None, ...] = ()
    for name, a in zip(row.arguments, e.args, strict=True):
        value = scope.as_float(scope.lower(a, order))
        if name not in numbers:
            value = scope.frame.fit(scope.as_tensor(value), order)
            axes = broadcast(axes, value.axes)
        args[name] = value
    single = {t.name for t in row.operation.inputs if not t.axes}
    codes: dict[str, Code] = {}
    for name, value in args.items():
        if name not in numbers and value.axes != axes:
            lost = e.along if name in single else ()
            value = scope.frame.fill(value, [None if i in lost else i for i in axes])
        codes[name] = value.code
    made = Value(row.code(codes), axes)
    places = {i.name: scope.frame.place(made, k) for i, k in zip(row.places, e.along, strict=True)}
    scope.note(e.name, row.states)
    left = tuple(i for i in axes if i is None or i not in e.binders)
    return Value(row.code({**codes, **places}), left)


def _with_bound(e: Kernel, order: Indices) -> list[Index]:
    """Return the order with the indices that the kernel sums over, where the tensors have them.

    An outer index of the same name is a different one.
    """
    whole = [i for i in order if i not in e.binders]
    for i in e.binders:
        found = (x for a in e.args for x in accesses(a) if i in x.positions)
        at = next((x.positions[: x.positions.index(i)] for x in found), ())
        whole.insert(max((whole.index(j) + 1 for j in at if j in whole), default=0), i)
    return whole


def lower_part(scope: Scope, e: KernelResult, order: Indices) -> Value:
    """Return one result of the call; its other results are available from then on."""
    row = KERNELS[e.name]
    numbers = {p.name for p in row.operation.parameters}
    whole = len(row.operation.inputs[0].axes)
    large = {t.name for t in row.operation.inputs if len(t.axes) == whole}
    codes: dict[str, Code] = {"along": shape_of(e.along), "wanted": wanted(len(row.parts))}
    for name, a in zip(row.arguments, e.args, strict=True):
        if name in numbers:
            codes[name] = scope.as_float(scope.lower(a, ())).code
        elif isinstance(a, Num):
            codes[name] = Literal("None")
        elif name in row.statistics:
            assert isinstance(a, Access)
            codes[name] = scope.tensor(a.tensor).code
        else:
            codes[name] = _kernel_argument(scope, a, e.axes, name in large).code
    share = codes.pop("share")
    call = row.code(codes)
    if isinstance(call, FunctionCall) and share is not literal(1):
        call = FunctionCall(call.name, (*call.args, Keyword("share", share)))
    for n, other in enumerate(e.others, 1):
        assert isinstance(other, Access)
        axes = tuple(i for i in other.positions if isinstance(i, Index))
        scope.results[other.tensor] = Value(Subscript(call, (literal(n),)), axes)
    scope.note(e.name, row.states)
    lost = frozenset(e.binders)
    axes = tuple(i for i in e.axes if i not in lost)
    return Value(Subscript(call, (literal(e.number),)), axes)


def _kernel_argument(scope: Scope, e: Expr, axes: Indices, large: bool) -> Value:
    """Return an argument with its own axes at full size; with all axes if ``large``."""
    own = axes if large else [i for i in axes if i in free_indices(e)]
    value = scope.as_tensor(scope.as_float(scope.lower(e, list(axes))))
    return scope.frame.expand(value, own, scope.like)


def lower_attended(scope: Scope, e: AttentionResult, order: Indices) -> Value:
    """Return one result of a fused attention; each tensor has the axes of its row in order."""
    row = KERNELS[e.name]
    op = row.operation
    (d,) = e.home["d"]
    usual = as_poly(e.args[-1]) is atom(Size(d.extent), Fraction(-1, 2))
    none = Literal("None")
    codes: dict[str, Code] = {"scale": none if usual else scope.lower(e.args[-1], ()).code}
    for t, a in zip(op.inputs, e.args[:-1], strict=True):
        axes = _row_indices(e, t.axes)
        if t.kind == "bool":
            codes[t.name] = _attention_mask(scope, e, a, axes)
        elif a is num(0):
            codes[t.name] = none
        elif t.name in row.statistics:
            assert isinstance(a, Access)
            codes[t.name] = scope.tensor(a.tensor).code
        else:
            value = scope.as_tensor(scope.as_float(scope.lower(a, axes)))
            fits = scope.frame.fit(value, axes)
            whole = fits if t.name == "m" else scope.frame.expand(fits, axes, scope.like)
            codes[t.name] = whole.code
    call = row.code(codes)
    assert isinstance(call, FunctionCall)
    given = max(n for n, x in enumerate(call.args, 1) if x is not none)
    call = FunctionCall(call.name, call.args[:given])
    outer = {x.name: x.axes for x in op.equations}
    results = [_row_indices(e, outer[name]) for name in op.outputs]
    found = [Value(Subscript(call, (literal(n),)), tuple(axes)) for n, axes in enumerate(results)]
    for other, value in zip(e.others, found[1:], strict=False):
        assert isinstance(other, Access)
        scope.results[other.tensor] = value
    scope.note(e.name, row.states)
    return found[e.number]


def _row_indices(e: AttentionResult, axes: Sequence[Expr]) -> list[Index]:
    return [i for axis in axes if isinstance(axis, Index) for i in e.home[axis.name]]


def _attention_mask(scope: Scope, e: AttentionResult, seen: Expr, axes: Indices) -> Code:
    """Return the code of the attention mask; True means causal."""
    i, j, *_ = e.ends
    match seen:
        case Rel("<=", left, right) if as_poly(left) is atom(j) and as_poly(right) is atom(i):
            return Literal("True")
    return scope.frame.fit(scope.condition(seen, axes), axes).code
