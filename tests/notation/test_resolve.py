"""From names to a complete operation: sizes, kinds, guards, parameters, and their errors."""

import keyword
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from kit.each import each_row, told

from derive.algebra.expr import (
    Access,
    Add,
    And,
    Call,
    Composite,
    Expr,
    Guard,
    Index,
    Mul,
    Not,
    Param,
    Rel,
    Size,
    Where,
    accesses,
    num,
    walk,
)
from derive.check import oracle
from derive.errors import DeriveWarning, SpecError
from derive.notation.advice import WORDS
from derive.notation.operation import AxisOf, Choice, Extent, KeepDim, Number, Operation, SizeOf
from derive.notation.specification import parse
from derive.show.formula import unicode


def extent(op: Operation, name: str) -> Extent:
    return next(e for e in op.extents if e.name == name)


def sources(text: str) -> dict[str, tuple[tuple[str, int], ...]]:
    return {e.name: e.sources for e in parse(text).extents}


def size(text: str, name: str) -> Expr | None:
    return extent(parse(text), name).size


# Sizes


def test_a_letter_alone_on_axes_is_one_extent() -> None:
    found = sources("C[i,j] = sum[k](A[i,k]*B[k,j])")
    assert found == {"i": (("A", 0),), "k": (("A", 1), ("B", 0)), "j": (("B", 1),)}


def test_letters_that_share_an_axis_share_the_extent_of_the_first() -> None:
    op = parse("y[i,j] = x[i] - x[j]")
    assert op.equations[0].axes == (Index("i", "i"), Index("j", "i"))
    assert [e.name for e in op.extents] == ["i"]


def test_extents_join_through_equations() -> None:
    assert sources("h[a] = x[a]; y[b] = h[b]*z[b]") == {"a": (("x", 0), ("z", 0))}


def test_the_op_line_names_the_extent() -> None:
    op = parse("op f(x[t]) -> y; y[u] = x[size(t)-1-u]")
    assert op.equations[0].axes == (Index("u", "t"),)


def test_an_axis_without_a_letter_has_a_name_of_its_own() -> None:
    op = parse("y[n] = x[T[n]]")
    assert op.inputs[0].axes == (Index("x0", "x0"),)
    assert extent(op, "x0").sources == (("x", 0),)
    op = parse("y[x0] = x[T[x0]]")
    assert op.inputs[0].axes == (Index("x0_", "x0_"),)


def test_axes_of_one_tensor_have_different_indices() -> None:
    op = parse("y = sum[i](A[i,i])")
    assert op.inputs[0].axes == (Index("i", "i"), Index("i'", "i"))
    assert extent(op, "i").sources == (("A", 0), ("A", 1))


DERIVED = told(
    """\
y[u] = x[u+1] - x[u]
    size(u) = size(x0) − 1
y[u] = x[u+2] - x[u+1]
    size(u) = size(x0) − 2
y[u] = x[3*u+1]
    size(u) = ⌊(size(x0) − 2)/3⌋ + 1
y[t] = sum[k](x[t+k]*w[k])
    size(t) = size(x0) + 1 − size(k)
op f(x[l], w[k]) -> y; y[t] = sum[k](x[t-k+size(k)-1]*w[k])
    size(t) = size(l) + 1 − size(k)
op f(x[l], w[k]; s=1, d=1) -> y; y[t] = sum[k](x[s*t+d*k]*w[k])
    size(t) = ⌊(d + size(l) − d·size(k) − 1)/s⌋ + 1
y[u] = x[u+1]*z[u]
    size(u) = minimum(size(x0) − 1, size(z0))
# What stands alone on an axis of the same tensor does not fix the range.
y[t] = sum[k](w[k]*x[t+k]) + x[t]
    size(t) = minimum(size(x0) + 1 − size(k), size(x0))
y[n,k] = concat[k](a[n,k], b[n,k])
    size(k) = size(a1) + size(b1)
op f(x[l]; s, size(t)=floor((size(l)-1)/s)+1) -> y; y[t] = [s*t<size(l)]*x[s*t]
    size(t) = ⌊(size(l) − 1)/s⌋ + 1
"""
)


@each_row("text, expected", DERIVED)
def test_derived_size(text: str, expected: str) -> None:
    name, _, value = expected.removeprefix("size(").partition(") = ")
    found = size(text, name)
    assert found is not None and unicode(found) == value
    assert not extent(parse(text), name).sources


def test_a_flip_has_the_size_of_its_axis() -> None:
    op = parse("y[t] = x[size(t)-1-t]")
    assert extent(op, "t") == Extent("t", False, (("x", 0),), None)


def test_guarded_accesses_do_not_narrow_a_range() -> None:
    op = parse("op f(x[t]) -> y; y[t] = where(t >= 2, x[t-2], 0)")
    assert extent(op, "t").size is None


def test_a_letter_compared_with_another_takes_its_size() -> None:
    op = parse("op f(x[k]) -> y; y[i] = sum[k | k <= i](x[k])")
    assert op.equations[0].axes == (Index("i", "k"),)
    op = parse("op f(x[k]) -> y; y[i] = sum[k | k < i + 1](x[k])")
    assert op.equations[0].axes == (Index("i", "k"),)


def test_composite_axes() -> None:
    op = parse("op f(E[n,(h d)]; heads=size(h, 4)) -> y; y[n,h,d] = E[n,(h d)]")
    assert op.inputs[0].axes[1] is Composite((Index("h", "h"), Index("d", "d")))
    assert extent(op, "h").size is Param("heads")
    assert extent(op, "d").size is Call("floordiv", (Size("E1"), Size("h")))
    assert extent(op, "E1") == Extent("E1", False, (("E", 1),), Mul((Size("h"), Size("d"))))
    assert op.parameters == (SizeOf("heads", "h", 4),)


def test_one_index_for_a_composite_axis() -> None:
    op = parse("op f(a[n,t,d], W[k,j]) -> y; e[n,(t d)] = a[n,t,d]; y[n,j] = sum[k](e[n,k]*W[k,j])")
    whole = Mul((Size("t"), Size("d")))
    assert extent(op, "k") == Extent("k", False, (("W", 0),), whole)
    (read,) = accesses(op.equations[1].body, "e")
    assert read.positions == (Index("n", "n"), Index("k", "k"))


def test_one_index_for_composite_axes_of_several_tensors() -> None:
    op = parse(
        "op f(x[(t d)], a[t], b[d]) -> y; e[(t d)] = a[t]*b[d]; g[l] = e[l]**2; "
        "y = sum[k](x[k]*g[k])"
    )
    assert op.equations[1].axes == (Index("l", "l"),)
    assert extent(op, "l") == Extent("l", False, (("x", 0),), Mul((Size("t"), Size("d"))))
    assert {i.extent for e in op.equations[2:] for i in e.body.bound()} <= {"l"}


def test_a_part_of_a_composite_axis_may_be_its_quotient() -> None:
    op = parse("op f(a[n,d], W[(t d),j], z[k]) -> y; y[n,t] = sum[d,j](a[n,d]*W[(t d),j])*z[0]")
    assert extent(op, "t").size is Call("floordiv", (Size("W0"), Size("d")))


def test_other_parts_of_a_composite_axis_are_a_number() -> None:
    op = parse("op f(x[(t d)], a[t], b[d]) -> y; y[t,d] = x[(d t)]*a[t]*b[d]")
    (read,) = accesses(op.equations[0].body, "x")
    t, d = Index("t", "t"), Index("d", "d")
    assert read.positions[0] is Add((Mul((Size("t"), d)), t))


def test_a_constant_part_does_not_size_an_axis() -> None:
    op = parse("op f(x[k], a[s], w[d]) -> y; y[d] = x[(0 d)]*w[d] + sum[s](x[(s d)]*a[s])")
    assert extent(op, "k").size is Mul((Size("s"), Size("d")))
    op = parse("op f(x[k], w[d]) -> y; y[d] = x[d]*w[d]*x[0]")
    assert extent(op, "k").size is None


def test_constant_part_of_a_composite_is_affine() -> None:
    op = parse("op f(E[(h d)], w[d]) -> y; y[h] = E[(h 1)]*w[0]")
    (read,) = accesses(op.equations[0].body, "E")
    assert read.positions[0] is Add((Mul((Size("d"), Index("h", "h"))), num(1)))


def test_left_zero_is_an_axis_of_size_one() -> None:
    op = parse("z[n,0] = sum[k](x[n,k]); y[n,k] = x[n,k]/z[n,0]")
    assert op.equations[0].axes[1] is num(0)


def test_size_of_an_optional_input_is_read_elsewhere() -> None:
    op = parse("op f(W[c]=1, x[c]) -> y; y[c] = W[c]*x[c]")
    assert extent(op, "c").sources == (("x", 0), ("W", 0))


# Groups and parameters


def test_groups() -> None:
    op = parse(
        "op f(A[*p,k,*q]; dim=axis(k, -1), keepdim=keep(k)) -> y; y[*p,*q] = mean[k](A[*p,k,*q])"
    )
    k = Index("k", "k")
    assert op.inputs[0].axes == (Index("p", "p", True), k, Index("q", "q", True))
    assert op.parameters == (AxisOf("dim", k, -1), KeepDim("keepdim", k))
    assert extent(op, "p") == Extent("p", True, (("A", 0),), None)


def test_a_split_is_determined_by_another_input() -> None:
    op = parse("op f(x[*p,*q], w[*q]) -> y; y[*p] = sum[*q](x[*p,*q]*w[*q])")
    assert extent(op, "q").sources == (("x", 1), ("w", 0))


def test_choice() -> None:
    op = parse(
        "op f(x[i]; r=mean|sum|none) -> none: x1 | mean: m | sum: s\n"
        "x1[i] = x[i]**2; s = sum[i](x1[i]); m = s/size(i)"
    )
    assert op.parameters == (Choice("r", (("mean", "m"), ("sum", "s"), ("none", "x1"))),)
    assert op.outputs == ("x1", "m", "s")


def test_numbers() -> None:
    op = parse("op f(x[i]; a, b=2, s=2) -> y; y[u] = a*b*x[s*u]")
    assert op.parameters == (
        Number("a", None, False),
        Number("b", Fraction(2), False),
        Number("s", Fraction(2), True),
    )


# Kinds


def kinds(text: str) -> dict[str, str]:
    op = parse(text)
    pairs = [(t.name, str(t.kind)) for t in op.inputs]
    return dict(pairs + [(e.name, str(e.kind)) for e in op.equations])


def test_kinds_are_seen_from_use() -> None:
    found = kinds("y[n] = x[T[n]]*where(m[n], 1, 2) + u[X[n,T[n]]]")
    assert found == {"x": "float", "T": "int", "m": "bool", "u": "float", "X": "int", "y": "float"}


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("y[i] = x[i] and x[i]", 8, "x[i]"),
        ("y[i] = x[i]*[x[i]]", 14, "x[i]"),
        ("y[i,j] = where(x[i,j], 1, 2)", 16, "x[i, j]"),
        ("y = any[i](not x[i])", 16, "x[i]"),
        ("op f(T[n]: int, x) -> y; y[n] = [x]*T[n]", 34, "x"),
    ],
)
def test_a_condition_leaves_no_gradient(text: str, column: int, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (1, column)
    assert caught.value.message.startswith(f"{said} is a condition here, so x is a bool")
    assert f"compare it, {said} != 0" in caught.value.message


def test_a_condition_beside_numbers_is_a_bool_tensor() -> None:
    assert parse("y[i] = where(x[i], z[i], 2)").inputs[0].kind == "bool"
    assert parse("op f(x[i]: bool) -> y; y[i] = [x[i]]").inputs[0].kind == "bool"


def test_integer_equations() -> None:
    found = kinds("p[n,k] = off[n] + 2*k; y[n,k] = x[p[n,k]]*w[k]")
    assert (found["p"], found["off"], found["y"]) == ("int", "int", "float")
    found = kinds("a[i] = argmax[j](x[i,j]); y[i] = x[i,a[i]]; n = sum[i]([y[i] > 0])")
    assert (found["a"], found["x"], found["y"], found["n"]) == ("int", "float", "float", "int")


def test_bool_equations() -> None:
    found = kinds("v[n] = T[n] > 0; w = all[n](v[n]); y = sum[n | v[n]](x[n])*w")
    assert (found["v"], found["w"]) == ("bool", "bool")


def test_division_makes_a_float() -> None:
    assert kinds("h[i] = i/2 + 0*x[i]")["h"] == "float"
    assert kinds("op f(T[i]: int) -> h; h[i] = T[i]**2 + abs(T[i])")["h"] == "int"
    assert kinds("op f(T[i]: int) -> h; h[i] = T[i]**-1")["h"] == "float"


@each_row(
    "condition, kinds",
    [
        ("T[n] == c", "int"),
        ("T[n] - 1 == 2*c and T[n] != 7", "int"),
        ("T[n] == c and U[n] == T[n] and T[n] != skip", "int int"),
        ("m[T[n]] == c", "int int"),
        ("T[n] == c and T[n] > 1/2", "float"),
        ("T[n] == c and T[n] == U[n]*U[n]", "float float"),
        ("T[n] == c and x[n] > T[n]*T[n]", "float"),
        ("T[n] == U[n]", "float float"),
        ("x[n] > c", ""),
    ],
)
def test_an_input_that_is_only_compared_with_positions_holds_integers(
    condition: str, kinds: str
) -> None:
    shapes = {"T": ", T[n]", "U": ", U[n]", "m": ", m[k]"}
    tensors = "".join(axes for name, axes in shapes.items() if f"{name}[" in condition)
    body = f"skip*sum[n | {condition}](x[n])"
    op = parse(f"op f(x[n]{tensors}; skip=1, classes=size(c)) -> y; y[c] = {body}")
    assert [t.kind for t in op.inputs] == ["float", *kinds.split()]


def test_a_tensor_of_numbers_remains() -> None:
    op = parse("op f(T[n]; classes=size(c)) -> y; y[n,c] = [T[n] == c]")
    assert op.inputs[0].kind == "float"


def test_a_parameter_compared_with_integers_is_one() -> None:
    op = parse("op f(L[n,c], T[n]; ig=-100) -> y; y[n] = where(T[n] != ig, L[n,T[n]], 0)")
    assert op.parameters == (Number("ig", Fraction(-100), True),)


# Guards


def positions(text: str, tensor: str) -> list[Expr]:
    op = parse(text)
    return [a.positions[-1] for e in op.equations for a in accesses(e.body, tensor)]


T_ = Index("t", "t")
BACK = Add((T_, num(-1)))


def test_branches_guard() -> None:
    text = "op f(x[t], z[t]) -> y; y[t] = where(t >= 1, x[t-1], z[t-1+size(t)])"
    condition = Rel(">=", T_, num(1))
    assert positions(text, "x") == [Guard(condition, BACK)]
    inner = Add((T_, num(-1), Size("t")))
    assert positions(text, "z") == [Guard(Not(condition), inner)]


def test_brackets_guard_the_other_factors() -> None:
    text = "op f(x[t]) -> y; y[t] = x[t-1]*[t >= 1]"
    assert positions(text, "x") == [Guard(Rel(">=", T_, num(1)), BACK)]


def test_the_condition_of_a_reduction_guards() -> None:
    text = "op f(x[t]) -> y; y = sum[t | t >= 1](x[t-1])"
    assert positions(text, "x") == [Guard(Rel(">=", T_, num(1)), BACK)]


def test_the_left_of_and_guards_the_right() -> None:
    text = "op f(x[t]) -> y; y[t] = [t >= 1 and x[t-1] > 0]*2"
    assert positions(text, "x") == [Guard(Rel(">=", T_, num(1)), BACK)]


def test_conditions_on_other_indices_give_way_to_the_bounds() -> None:
    text = "op f(x[n,t], m[n]: bool) -> y; y[n,t] = [m[n]]*x[n,t-1]"
    assert positions(text, "x") == [Guard(Rel("<=", num(0), BACK), BACK)]


@pytest.mark.parametrize(("said", "op", "least"), [("t >= 1", ">=", 1), ("t > 0", ">", 0)])
def test_a_bound_is_as_a_condition_says_it(said: str, op: str, least: int) -> None:
    text = f"op f(x[n,t], m[n]: bool) -> y; y[n,t] = [m[n] and {said}]*x[n,t-1]"
    assert positions(text, "x") == [Guard(Rel(op, T_, num(least)), BACK)]


def test_a_bound_that_a_condition_only_implies_is_said_by_it() -> None:
    text = "op f(x[n,t], m[n]: bool) -> y; y[n,t] = [m[n] and not (t <= 2)]*x[n,t-1]"
    assert positions(text, "x") == [Guard(Not(Rel("<=", T_, num(2))), BACK)]


def test_a_position_that_is_in_bounds_is_left() -> None:
    text = "op f(x[t], m[t]: bool) -> y; y[t] = where(m[t], x[size(t)-1-t], x[t])"
    assert not any(isinstance(p, Guard) for p in positions(text, "x"))


def test_integer_tensors_are_guarded() -> None:
    text = "op f(L[n,c], T[n]; ig=-1) -> y; y[n] = where(T[n] != ig, L[n,T[n]], 0)"
    target = Access("T", (Index("n", "n"),))
    assert positions(text, "L") == [Guard(Rel("!=", target, Param("ig")), target)]


def test_nested_accesses_are_guarded_each() -> None:
    text = "op f(x[a], T[t]) -> y; y[t] = where(t >= 1, x[T[t-1]], 0)"
    condition = Rel(">=", T_, num(1))
    assert positions(text, "T") == [Guard(condition, BACK)]
    inner = Access("T", (Guard(condition, BACK),))
    assert positions(text, "x") == [Guard(condition, inner)]


def test_concat_is_guarded() -> None:
    op = parse("y[k] = concat[k](a[k], b[k])")
    k = Index("k", "k")
    first = Rel("<", k, Size("a0"))
    shifted = Add((k, Mul((num(-1), Size("a0")))))
    assert op.equations[0].body is Where(
        first, Access("a", (Guard(first, k),)), Access("b", (Guard(Not(first), shifted),))
    )


def test_guards_stand_only_in_positions() -> None:
    op = parse("op f(x[t]) -> y; y[t] = where(t >= 1 and t < 5, x[t-1], 0)")
    condition = And((Rel(">=", T_, num(1)), Rel("<", T_, num(5))))
    assert op.equations[0].body is Where(condition, Access("x", (Guard(condition, BACK),)), num(0))
    assert sum(isinstance(e, Guard) for e in walk(op.equations[0].body)) == 1


# Warnings and errors


def test_warnings() -> None:
    with pytest.warns(DeriveWarning, match="input z is not used in f") as caught:
        parse("op f(x[i], z[j]) -> y; y[i] = x[i]")
    assert caught[0].filename == __file__
    with pytest.warns(DeriveWarning, match="equation h is not used in op"):
        parse("h[i] = 2*x[i]; y[i] = x[i]")
    with pytest.warns(DeriveWarning, match="parameter eps is not used in f"):
        parse("op f(x[i]; eps=1) -> y; y[i] = x[i]")


def test_reserved_names() -> None:
    for name in sorted(keyword.kwlist):
        with pytest.raises(SpecError):
            parse(f"op f({name}[i]) -> y; y[i] = {name}[i]")
        with pytest.raises(SpecError):
            parse(f"op {name}(x[i]) -> y; y[i] = x[i]")
    for name in sorted(WORDS):
        with pytest.raises(SpecError):
            parse(f"y[{name}] = x[{name}]")


WRONG = told(
    """\
op f(x[i,j]) -> y; y[i] = x[i]
    line 1, column 27: x has 2 axes but is read here with 1 [D014]
y[*p] = x[*p] + x[i]
    line 1, column 19: index i of x[i] is neither summed over nor on the left; sum over it,
    sum[i](...), or add it to y [D011]
y[*p,i] = x[*p]*x[i]
    line 1, column 17: axis 0 of x is a group of axes but is read here as no group [D014]
y[i,j] = x[i]
    line 1, column 5: index j has no size: it is not a whole axis of any input; declare it on the op
    line, or give size(j)=... [D015]
y[t,k] = x[t+k]
    line 1, column 10: axis 0 of x does not determine the sizes of t and k; declare one of them on
    the op line, or give size(t)=... [D015]
op f(x[i]; n=size(i), size(i)=3) -> y; y[i] = x[i]
    line 1, column 12: index i has two sizes, size(i)=... and n; remove one [D016]
op f(x[i], z[j]) -> y, v; y[i] = sum[k | k <= i](x[i-k]); v[j] = sum[k | k <= j](z[j-k])
    line 1, column 59: index k has two sizes: it is compared with j here, and with i elsewhere;
    rename one, or give size(k) [D016]
op f(a[n,k], b[n,k]) -> y; y[n,k] = concat[k](a[n,k], b[n,k])
    line 1, column 37: index k has two sizes, its own and the total of the joined parts; declare the
    arguments of concat with other indices [D016]
op f(W[(l i)], v[l]) -> y; y[k] = concat[k](W[(k 2)]*v[k], v[k])
    line 1, column 35: concat joins along an index that precedes a constant in a composite axis;
    give the value read there its own equation [D010]
y[n,k] = concat[k](a[n,k], b[n])
    line 1, column 28: argument 2 of concat[k] does not have index k, so its size is unknown [D010]
op f(x[n,u]; lags=size(k)) -> r; r[n,k] = sum[u](x[n,u]*x[n,u+k])
    line 1, column 57: x is read out of bounds: the position runs past the end of axis 1 by lags -
    1; add a condition, or give its index a range of its own [D018]
op f(x[t]) -> y; y[t] = x[t+1]
    line 1, column 25: x is read out of bounds: the position runs past the end of axis 0 by 1; add a
    condition, or give its index a range of its own [D018]
y[i] = x[i-1]
    line 1, column 8: axis 0 of x is read out of bounds for every size of i; add a condition [D018]
y[i] = x[i,-1]
    line 1, column 8: axis 1 of x is read at position -1; positions start at 0; from the end of an
    axis k, this is size(k) - 1 [D018]
y[i] = x[i/2]
    line 1, column 8: axis 0 of x is read at a position that is not an integer combination of
    indices, sizes, integer parameters and integer tensors; give the position its own equation
    [D019]
h[i] = T[i]/2; y[i] = x[h[i]]
    line 1, column 1: h is used as an index but is not an integer; its equation must contain only
    integers, without division, or int(floor(...)) [D020]
op f(x[i], T[i]: float) -> y; y[i] = x[T[i]]
    line 1, column 40: T is used as an index but is a float tensor; declare it T: int [D020]
op f(x[i,j]; s=1.5) -> y; y[u] = x[s*u,0]
    line 1, column 14: parameter s is used as an integer; its default is 3/2 [D023]
op f(x[*p,*q]) -> y; y[*p,*q] = x[*p,*q]
    line 1, column 6: the split of the axes of x into *p and *q is ambiguous; write one group, put
    an index between them, or read one alone on another input [D026]
op f(x[b,*p,*q]; dim=axis(b)) -> y; y[b] = sum[*p,*q](x[b,*p,*q])
    line 1, column 6: the split of the axes of x into *p and *q is ambiguous; write one group, put
    an index between them, or read one alone on another input [D026]
op f(x[*p,k,*q]) -> y; y[*p,k,*q] = x[*p,k,*q]
    line 1, column 6: the split of the axes of x into *p and *q is ambiguous; give dim=axis(k)
    [D026]
y[*p] = x[p]
    line 1, column 11: p is a group of axes; write *p [D007]
y[p] = x[*p]
    line 1, column 10: p is both an index and a group *p; rename one [D007]
y[*p] = x[*p]*p
    line 1, column 15: group *p is not a number; it can only be a whole axis position [D013]
op f(x[i]; dim=axis(i), d=axis(i)) -> y; y[i] = x[i]
    line 1, column 25: dim and d both set the position of axis i [D024]
op f(x[i]; kept=keep(i)) -> y; y[i] = x[i]
    line 1, column 12: kept: every output already has axis i, so there is nothing to keep [D024]
op f(x[i]; dim=axis(i)) -> y; y[i] = x[i]*dim
    line 1, column 43: parameter dim is not a number and cannot appear in an expression [D023]
op f(x[i]; g=size(i, 0)) -> y; y[i] = x[i]*g
    line 1, column 14: the default of g must be positive, not 0 [D023]
op f(x[i]; size(i)=2.5) -> y; y[i] = x[i]
    line 1, column 17: size(i) must be an integer, or an expression of sizes and integer parameters
    with + - * and floor(a/b), not 2.5 [D023]
op f(W[c]=1) -> y; y[c] = W[c]
    line 1, column 6: the size of c is read only from W, which may be None; another input must have
    axis 0 of W [D027]
op f(x[i]; r=a|b) -> y; y[i] = x[i]
    line 1, column 12: choice r needs an output for each option: -> a: ... | b: ... [D025]
op f(x[i]; r=a|b) -> a: y; y[i] = x[i]
    line 1, column 12: option b of r has no output [D025]
op f(x[i]; r=a|b) -> a: y | c: y; y[i] = x[i]
    line 1, column 12: c is not an option of r [D025]
op f(x[i]) -> a: y | c: y; y[i] = x[i]
    line 1, column 1: the outputs name options, but no parameter is a choice a|b [D025]
op f(x[i]) -> z; y[i] = x[i]
    line 1, column 1: output z is not defined by an equation [D005]
op f(x[i]; x=1) -> y; y[i] = x[i]
    line 1, column 12: x is both an input and a parameter; rename one [D007]
op f(x[i]) -> f; f[i] = x[i]
    line 1, column 18: f is both the operation and an equation; rename one [D007]
y[a] = x[a]*a[a]
    line 1, column 13: a is both an index and an input; rename one [D007]
op f(x[i], x[j]) -> y; y[i] = x[i]
    line 1, column 12: input x is declared twice; remove one [D006]
y[i] = x[i]; y[j] = x[j]
    line 1, column 14: y is defined twice; rename one [D006]
op f(y[i]) -> y; y[i] = 2
    line 1, column 18: y is an input and cannot be defined; choose another name [D006]
y[i] = x[i] + x[i,i]
    line 1, column 15: x has 1 axis but is read here with 2 [D014]
y[*p] = x[*p] + sum[k](x[k])
    line 1, column 24: axis 0 of x is a group of axes but is read here as no group [D014]
op f(x[i]; size(i)=3, size(i)=4) -> y; y[i] = x[i]
    line 1, column 28: size(i) is given twice; remove one [D006]
op f(x[n]) -> y; y[n,m] = x[n]*m
    line 1, column 22: index m has no size: it is not a whole axis of any input; declare it on the
    op line, or give size(m)=... [D015]
op f(x[n], T[n]: int) -> y; y[n] = sum[g](x[T[g]])*0 + sum[h](h)
    line 1, column 60: index h has no size: it is not a whole axis of any input; declare it on the
    op line, or give size(h)=... [D015]
op f(x[i], A[i,j]) -> y; y[i] = sum[u](x[i])
    line 1, column 37: index u has no size: it is not a whole axis of any input; declare it on the
    op line, or give size(u)=... [D015]
op f(x[i]) -> y; y[i] = x
    line 1, column 25: x has 1 axis but is read here with 0 [D014]
op f(x[i]; s) -> y; y[i] = q*s*x[i]
    line 1, column 28: unknown name q; declare it on the op line, or define it above [D005]
op f(i[i]) -> y; y[i] = i[i]
    line 1, column 6: i is both an index and an input; rename one [D007]
op f(x[n,0]) -> y; y[n] = x[n]
    line 1, column 27: x has 2 axes but is read here with 1 [D014]
op f(x[n]; a=1, a=2) -> y; y[n] = x[n]*a
    line 1, column 17: parameter a is declared twice; remove one [D006]
op f(x[n]; a=b) -> y; y[n] = x[n]*a
    line 1, column 14: the default of a must be a number, not b [D023]
op f(x[n]; a=axis(z)) -> y; y[n] = x[n]
    line 1, column 19: index z has no size: it is not a whole axis of any input; declare it on the
    op line, or give size(z)=... [D015]
op f(x[n]; a=size(z)) -> y; y[n] = x[n]*a
    line 1, column 12: index z is unused: no axis has it, no reduction sums over it, and no equation
    uses its size [D023]
op f(x[n]; a=1, b > 0) -> y; y[n] = x[n]*a
    line 1, column 17: b is not a number among the parameters, but has a bound [D023]
op f(x[n]; a=size(n), a > 1) -> y; y[n] = x[n]*a
    line 1, column 23: a is not a number among the parameters, but has a bound [D023]
op f(x[n]; a=0, a > 0) -> y; y[n] = x[n]*a
    line 1, column 17: a must be greater than 0; its default is not [D023]
op f(x[n]; a=1, a == 1) -> y; y[n] = x[n]*a
    line 1, column 17: the bound of a must be a finite number, after one of >, >=, <, <=, != [D023]
op f(x[n]; a=1, a < inf) -> y; y[n] = x[n]*a
    line 1, column 17: the bound of a must be a finite number, after one of >, >=, <, <=, != [D023]
op f(x[n]; a=1, b=2, a < b) -> y; y[n] = x[n]*a
    line 1, column 26: the bound of a must be a number, not b [D023]
"""
)


@each_row("text, message", WRONG)
def test_wrong_operation(text: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert str(caught.value).splitlines()[0] == message


# Meaning, through the interpreter

RANDOM = np.random.default_rng(0)
V7 = RANDOM.normal(size=7)
A35 = RANDOM.normal(size=(3, 5))
A235 = RANDOM.normal(size=(2, 3, 5))
A36 = RANDOM.normal(size=(3, 6))
SIGNAL = RANDOM.normal(size=(2, 2, 9))
KERNEL = RANDOM.normal(size=(4, 2, 3))
MASK = RANDOM.normal(size=(3, 5)) > 0
CLASSES = np.array([1, -100, 4])


def softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def convolution(stride: int, dilation: int, padding: int = 0) -> Any:
    x = np.pad(SIGNAL, ((0, 0), (0, 0), (padding, padding)))
    length = (x.shape[2] - dilation * 2 - 1) // stride + 1
    pieces = [x[:, :, stride * t : stride * t + 2 * dilation + 1 : dilation] for t in range(length)]
    return np.stack([np.einsum("nck,ock->no", piece, KERNEL) for piece in pieces], axis=-1)


MEANING = [
    ("y[u] = x[u+1] - x[u]", {"x": V7}, {}, np.diff(V7)),
    ("y[t] = x[size(t)-1-t]", {"x": V7}, {}, V7[::-1]),
    ("op f(x[t]) -> y; y[t] = where(t>=2, x[t-2], 0)", {"x": V7}, {}, np.r_[0, 0, V7[:-2]]),
    ("op f(x[t]) -> y; y[t] = [t+1<size(t)]*x[t+1]", {"x": V7}, {}, np.r_[V7[1:], 0]),
    (
        "op f(x[n,c,l], w[o,c,k]; s=1, d=1) -> y\ny[n,o,t] = sum[c,k](x[n,c,s*t+d*k]*w[o,c,k])",
        {"x": SIGNAL, "w": KERNEL},
        {"s": 2, "d": 3},
        convolution(2, 3),
    ),
    ("y[n,o,t] = sum[c,k](x[n,c,t+k]*w[o,c,k])", {"x": SIGNAL, "w": KERNEL}, {}, convolution(1, 1)),
    (
        "op f(x[n,c,l], w[o,c,k]; s=1, p=0, size(t)=floor((size(l)+2*p-size(k))/s)+1) -> y\n"
        "y[n,o,t] = sum[c,k]([0 <= s*t+k-p < size(l)]*x[n,c,s*t+k-p]*w[o,c,k])",
        {"x": SIGNAL, "w": KERNEL},
        {"s": 2, "p": 1},
        convolution(2, 1, 1),
    ),
    (
        "op f(x[n,t]; lags=size(k)) -> r\nr[n,k] = sum[u](x[n,u]*x[n,u+k])",
        {"x": A35},
        {"lags": 3},
        np.stack([(A35[:, :3] * A35[:, k : k + 3]).sum(1) for k in range(3)], 1),
    ),
    (
        "op f(x[n], S[n]; segments=size(s)) -> y\ny[s] = sum[n | S[n] == s](x[n])",
        {"x": V7, "S": np.array([2, 0, 3, 0, 2, 2, 0])},
        {"segments": 4},
        np.array([V7[[1, 3, 6]].sum(), 0, V7[[0, 4, 5]].sum(), V7[2]]),
    ),
    (
        "r[k] = w[k]*sum[u](x[u+2*k]*x[u]*v[u])",
        {"w": V7[4:], "x": V7, "v": V7[::-1]},
        {},
        np.array([V7[4 + k] * (V7[:3] * V7[::-1][:3] * V7[2 * k :][:3]).sum() for k in range(3)]),
    ),
    ("y[n,k] = log_softmax[k](x[n,k])", {"x": A35}, {}, np.log(softmax(A35, 1))),
    (
        "y[n,k] = softmax[k | m[n,k]](x[n,k])",
        {"x": A35, "m": MASK},
        {},
        softmax(np.where(MASK, A35, -1e30), 1) * MASK,
    ),
    (
        "op f(A[*p,k,*q]; dim=axis(k)) -> S; S[*p,k,*q] = exp(A[*p,k,*q])/sum[k](exp(A[*p,k,*q]))",
        {"A": A235},
        {"dim": 1},
        softmax(A235, 1),
    ),
    (
        "y[n,k] = concat[k](a[n,k], 2*b[n,k], a[n,k+1])",
        {"a": A35, "b": A36},
        {},
        np.concatenate([A35, 2 * A36, A35[:, 1:]], 1),
    ),
    (
        "y[n,k] = concat[k](a[n,k], sum[k](b[k])*size(k)*b[k]*[n>=0])",
        {"a": A35, "b": V7},
        {},
        np.concatenate([A35, np.tile(V7.sum() * 7 * V7, (3, 1))], 1),
    ),
    (
        "op f(E[n,(h d)]; heads=size(h, 3)) -> y; y[n,(d h)] = E[n,(h d)]",
        {"E": A36},
        {},
        A36.reshape(3, 3, 2).transpose(0, 2, 1).reshape(3, 6),
    ),
    (
        "op f(E[n,(h d)], w[d]) -> y; y[n,h] = E[n,(h 1)]*w[0]",
        {"E": A36, "w": V7[:2]},
        {},
        A36.reshape(3, 3, 2)[:, :, 1] * V7[0],
    ),
    (
        "op f(L[n,c], T[n], W[c]=1; ig=-100, r=mean|sum) -> mean: m | sum: s\n"
        "l[n] = where(T[n] != ig, -W[T[n]]*L[n,T[n]], 0)\ns = sum[n](l[n])\n"
        "m = s/sum[n | T[n] != ig](W[T[n]])",
        {"L": A35, "T": CLASSES, "W": None},
        {},
        -(A35[0, 1] + A35[2, 4]) / 2,
    ),
    ("op f(x[k,j]) -> y; y[i,j] = sum[k | k<=i](x[k,j])", {"x": A35}, {}, A35.cumsum(0)),
    (
        "p[n,k] = off[n] + k; y[n,k] = x[p[n,k]]*w[k]",
        {"off": np.array([0, 3, 1]), "x": V7, "w": V7[:3]},
        {},
        V7[np.array([0, 3, 1])[:, None] + np.arange(3)] * V7[:3],
    ),
    ("y = sum[i](x[i]*sum[i](x[i]))", {"x": V7}, {}, V7.sum() ** 2),
    ("op f(x[i,j]; size(j)=5) -> y; y[i] = sum[j](x[i,j]*j)", {"x": A35}, {}, A35 @ np.arange(5)),
]


@each_row("text, tensors, parameters, expected", MEANING)
def test_meaning(
    text: str, tensors: dict[str, Any], parameters: dict[str, Any], expected: Any
) -> None:
    (found,) = oracle.outputs(parse(text), tensors, parameters).values()
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(
    "branches",
    [
        "where(i >= 1, x[i-1], where(i < 1, 2, x[i-1]))",
        "where(i >= 1, x[i-1], where(i >= 1, x[i-1], 2))",
        "where(i < 2, where(i >= 1, x[i-1], 0), x[i-1])",
    ],
)
def test_what_a_choice_within_a_branch_reads_is_guarded(branches: str) -> None:
    op = parse(f"op f(x[i]) -> y; y[i] = {branches}")
    assert [e.name for e in op.extents] == ["i"]


def test_what_both_branches_of_a_choice_read_gives_a_range():
    op = parse("op f(v[k], x[i]) -> y\ny[n] = sum[k](where(k != n, x[n+k]*v[k], 2*x[n+k]*v[k]))")
    y = oracle.outputs(op, {"v": np.ones(2), "x": np.arange(5.0)}, {})["y"]
    assert y.tolist() == [1.0, 5.0, 5.0, 7.0]
