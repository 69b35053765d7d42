"""Matrix products, einsum and attention."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import sympy
from torch.utils._sympy.functions import FloorDiv

from derive.errors import DeriveError
from derive.tracing.context import Context, TracedEquation, operation
from derive.tracing.names import is_simple, value_key
from derive.tracing.reductions import norm, reduce_axes, softmax_along
from derive.tracing.refusals import unread
from derive.tracing.values import (
    Atom,
    Position,
    TracedApply,
    TracedNode,
    TracedNumber,
    TracedRead,
    TracedReduce,
    TracedValue,
    apply,
    joined,
    walk,
)


def contracted(
    context: Context, a: TracedValue, b: TracedValue, places: Sequence[tuple[int, int]]
) -> TracedValue:
    """Contract pairs of axes of a and b; the result has the other axes of a, then of b."""
    a, b = _contraction_operand(context, a), _contraction_operand(context, b)
    rank = len(a.axes)
    wide = replace(a, axes=(*a.axes, *((),) * len(b.axes)))
    axes: list[Any] = [()] * (rank + len(b.axes))
    pairs = {m: n for n, m in places}
    for n, axis in enumerate(b.axes):
        axes[pairs[n] if n in pairs else rank + n] = axis
    values = context.aligned(wide, replace(b, axes=tuple(axes)))
    whole = context.axes_of(values)
    product = TracedValue(whole, values[0].node * values[1].node)
    summed = [d for n, m in places for d in (n, rank + m)]
    return reduce_axes("sum", product, summed) if summed else product


def _contraction_operand(context: Context, x: TracedValue) -> TracedValue:
    """Return the factor of a contraction, named if its elements are divided by a reduction.

    A row divided by its norm is then computed once, not for each row that it is multiplied by.
    """
    divisors = (
        part.args[1] for part in walk(x.node) if isinstance(part, TracedApply) and part.name == "/"
    )
    normed = any(isinstance(part, TracedReduce) for divisor in divisors for part in walk(divisor))
    return (context.simple(x) if normed else x).fresh()


@operation("mm", "bmm", "matmul", "dot", "mv", "vdot", "inner_")
def matrix_product(context: Context, a: TracedValue, b: TracedValue) -> TracedValue:
    """Return the matrix product of the last axes, with the others broadcast."""
    if len(b.axes) == 1:
        return contracted(context, a, b, [(len(a.axes) - 1, 0)])
    if len(a.axes) == 1:
        return contracted(context, a, b, [(0, len(b.axes) - 2)])
    a, b = _contraction_operand(context, a), _contraction_operand(context, b)
    *batch, rows, inner = a.axes
    *other, inner2, columns = b.axes
    one = replace(a, axes=(*batch, rows, (), inner))
    two = replace(b, axes=(*other, (), columns, inner2))
    values = context.aligned(one, two)
    product = TracedValue(context.axes_of(values), values[0].node * values[1].node)
    return reduce_axes("sum", product, -1)


@operation("linear")
def linear(
    context: Context, x: TracedValue, weight: TracedValue, bias: TracedValue | None = None
) -> TracedValue:
    made = contracted(context, x, weight, [(len(x.axes) - 1, 1)])
    return made if bias is None else context.elementwise(operator.add, made, bias)


@operation("addmm", "addmv", "addbmm", "baddbmm")
def addmm(
    context: Context, c: TracedValue, a: TracedValue, b: TracedValue, beta: Any = 1, alpha: Any = 1
) -> TracedValue:
    made = matrix_product(context, a, b)
    if context.called == "addbmm":
        made = reduce_axes("sum", made, 0)
    if alpha != 1:
        made = context.elementwise(operator.mul, alpha, made)
    if beta == 0:
        return made
    if beta != 1:
        c = context.elementwise(operator.mul, beta, c)
    return context.elementwise(operator.add, c, made)


@operation("outer", "ger")
def outer(context: Context, a: TracedValue, b: TracedValue) -> TracedValue:
    return contracted(context, a, b, [])


@operation("einsum")
def einsum(
    context: Context, equation: str, operands: Sequence[TracedValue], **_: Any
) -> TracedValue:
    names, right = _einsum_terms(equation, [len(x.axes) for x in operands])
    letters = list(dict.fromkeys(c for term in names for c in term))
    # As in torch, ellipsis axes that some operands lack come first.
    letters.sort(key=lambda c: (not isinstance(c, int), -c if isinstance(c, int) else 0))
    wide = []
    for term, x in zip(names, operands, strict=True):
        x, term = _on_diagonals(context, x.fresh(), term)
        own = tuple(x.axes[term.index(c)] if c in term else () for c in letters)
        wide.append(replace(x, axes=own))
    values = context.aligned(*wide)
    by_letter = dict(zip(letters, context.axes_of(values), strict=True))
    node = reduce(operator.mul, (v.node for v in values))
    summed = [c for c in letters if c not in right]
    whole = TracedValue(tuple(by_letter[c] for c in (*right, *summed)), node)
    return reduce_axes("sum", whole, range(len(right), len(letters))) if summed else whole


_Letter = str | int
"""A letter, or the number of an ellipsis axis, counted from the last."""


def _einsum_terms(equation: str, ranks: Sequence[int]) -> tuple[list[list[_Letter]], list[_Letter]]:
    """Return (the letters of each operand, those of the result)."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    names = left.split(",")
    counts = [
        rank - len(term.replace("...", "")) if "..." in term else 0
        for term, rank in zip(names, ranks, strict=True)
    ]

    def spelt(term: str, count: int) -> list[_Letter]:
        before, dots, after = term.partition("...")
        around: list[_Letter] = list(reversed(range(count))) if dots else []
        return [*before, *around, *after]

    every = "".join(names).replace(".", "")
    if not arrow:
        # The letters that occur once, sorted, after the ellipsis axes.
        right = "..." * ("..." in left)
        right += "".join(sorted(c for c in set(every) if every.count(c) == 1))
    return [spelt(t, n) for t, n in zip(names, counts, strict=True)], spelt(right, max(counts))


def _on_diagonals(
    context: Context, x: TracedValue, term: Sequence[_Letter]
) -> tuple[TracedValue, list[_Letter]]:
    """Return the diagonal of x for each repeated letter, and the distinct letters."""
    left: list[_Letter] = []
    axes: list[Any] = []
    for n, c in enumerate(term):
        if c not in left:
            left.append(c)
            axes.append(x.axes[n])
            continue
        k = term.index(c)
        if not x.axes[n] or not x.axes[k]:
            raise unread(
                f"einsum repeats the letter {c} in one term, once on an axis of size 1, which "
                "is not supported"
            )
        for dim in (k, n):
            x, _ = context.single(x, dim)
        axes[left.index(c)] = x.axes[k]
        x = x.at({x.axes[n][0]: Position(x.axes[k][0])})
    return replace(x, axes=tuple(axes)), left


@operation("scaled_dot_product_attention")
def attention(
    context: Context,
    q: TracedValue,
    k: TracedValue,
    v: TracedValue,
    attn_mask: TracedValue | None = None,
    dropout_p: Any = 0.0,
    is_causal: bool = False,
    *,
    scale: Any = None,
    enable_gqa: bool = False,
) -> TracedValue:
    if dropout_p:
        text = "the attention draws random numbers, because dropout_p is above 0; set it to 0"
        raise DeriveError(text, kind="torch-state")
    if enable_gqa:
        k, v = (_with_heads(context, x, q.shape[-3]) for x in (k, v))
    q, k, v = (
        x if is_simple(x.node) else context.named(x, s) for x, s in ((q, "q"), (k, "k"), (v, "v"))
    )
    keys = replace(k, axes=(*k.axes[:-2], k.axes[-1], k.axes[-2]))
    scores = matrix_product(context, q, keys)
    if scale is None:
        root = TracedValue((), apply("sqrt", q.shape[-1]))
        scores = context.elementwise(operator.truediv, scores, root)
    elif scale != 1:
        scores = context.elementwise(operator.mul, scores, scale)
    masked = attn_mask is not None and attn_mask.kind == "bool"
    scores = context.named(scores, "scores")
    if attn_mask is not None and not masked:
        # An infinite branch of the mask cannot be named.
        scores = context.elementwise(operator.add, scores, attn_mask)
        scores = replace(scores, node=context.outward(scores.node))
    if not scores.axes[-1]:
        if masked:
            raise unread("an attention to one key under a mask is not supported")
        return matrix_product(context, replace(scores, node=TracedNumber(1)), v)
    scores, _ = context.single(scores, len(scores.axes) - 1)
    if masked:
        # The mask applies within the softmax, to named scores.
        scores = context.elementwise(
            lambda s, m: apply("where", m, s, -sympy.oo), scores, attn_mask, kind="float"
        )
    scores, key = context.single(scores, len(scores.axes) - 1)
    if is_causal:
        scores = context.with_one_index(scores, len(scores.axes) - 2)
        seen = Position(key) <= joined(scores.axes[-2])
        scores = replace(scores, node=apply("where", seen, scores.node, -sympy.oo))
    weights = softmax_along(context, "softmax", scores, key)
    return matrix_product(context, weights, v)


def _with_heads(context: Context, x: TracedValue, heads: sympy.Expr) -> TracedValue:
    """Repeat each head of keys or values for a group of queries."""
    dim = len(x.axes) - 3
    if context.sizes.equal(heads, x.shape[dim]):
        return x
    times = context.sizes.plain(FloorDiv(heads, x.shape[dim]))
    return x.with_axis(dim, (*x.axes[dim], Atom.new(times)))


@operation("cdist", "_cdist_forward")
def distances(context: Context, a: TracedValue, b: TracedValue, p: Any = 2, *_: Any) -> TracedValue:
    """Return the norm of the difference of each row of a and each row of b."""
    a, b = a.fresh(), b.fresh()
    one = replace(a, axes=(*a.axes[:-1], (), a.axes[-1]))
    two = replace(b, axes=(*b.axes[:-2], (), *b.axes[-2:]))
    return norm(context, context.elementwise(operator.sub, one, two), p, -1)


# ----------------------------------------------------------------------------------- hoist products
# Hoist matrix products out of sums, into equations of their own.
#
#     y[n,m] = sum[k](h[n,k]*sum[c](x[n,c]*up[k,c])*down[m,k])
#
# is    up2[n,k] = sum[c](x[n,c]*up[k,c])
#       y[n,m] = sum[k](h[n,k]*up2[n,k]*down[m,k])
#
# A named product is computed once, and saved for the backward.

_OF_A_MODULE = "_weight"


def hoisted_products(
    equations: Sequence[TracedEquation], fresh: Callable[[str], str]
) -> list[TracedEquation]:
    """Return the equations with hoisted products, each before the equations that read it."""
    named: dict[tuple[Any, ...], str] = {}
    found: list[TracedEquation] = []

    def visit(node: TracedNode, inside: bool, place: TracedEquation) -> TracedNode:
        is_sum = isinstance(node, TracedReduce)
        parts = tuple(visit(part, inside or is_sum, place) for part in node.parts())
        node = node.with_parts(parts) if parts else node
        if not (inside and isinstance(node, TracedReduce) and _sums_product(node)):
            return node
        axes = tuple((atom,) for atom in _free(node))
        said = value_key(TracedValue(axes, node))
        if said not in named:
            named[said] = fresh(_stem(node))
            found.append(TracedEquation(named[said], axes, node, "float", place.place))
        return TracedRead(named[said], tuple(map(joined, axes)))

    for equation in equations:
        body = visit(equation.body, False, equation)
        found.append(replace(equation, body=body))
    return found


def _sums_product(node: TracedReduce) -> bool:
    """True if the indices of a sum occur in at least two reads."""
    if node.kind != "sum":
        return False
    summed = set(node.atoms)
    read = {part for part in walk(node.body) if isinstance(part, TracedRead)}
    return len([r for r in read if not summed.isdisjoint(_positions(r))]) > 1


def _positions(node: TracedNode) -> Iterator[Atom]:
    return (part.atom for part in walk(node) if isinstance(part, Position))


def _free(node: TracedReduce) -> list[Atom]:
    """Return the free indices of a sum, in order of occurrence."""
    bound = {a for part in walk(node) if isinstance(part, TracedReduce) for a in part.atoms}
    return [a for a in dict.fromkeys(_positions(node)) if a not in bound]


def _stem(node: TracedNode) -> str:
    """Return the name of the module whose weight is read, else "h"."""
    names = [part.name for part in walk(node) if isinstance(part, TracedRead)]
    own = [n.removesuffix(_OF_A_MODULE) for n in names if n.endswith(_OF_A_MODULE)]
    return own[-1] if own else "h"
