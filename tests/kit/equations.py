"""Random equations for tests, and what is needed to evaluate any stage's form of one.

`expressions` makes nested expressions over a fixed set of tensors; `operations` makes whole
operations as text. All classes of indices have different extents, so that transposed axes cannot
pass. Values are positive and apart from each other, so that no sample stands at a kink.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from derive.algebra import expr as ex
from derive.algebra.factor import to_tree
from derive.algebra.interpret import array
from derive.algebra.poly import Poly
from derive.algebra.substitution import fresh, substitute
from derive.calculus.flatten import flatten
from derive.calculus.lets import Let, Lets
from derive.calculus.rematerialize import operation_costs
from derive.notation.operation import Number, Operation, SizeOf


def checked(examples: int) -> settings:
    """So many random examples, the same ones in every run."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


SIZES = {"i": 2, "j": 3, "k": 5}
TENSORS: dict[str, str] = {
    "s": "",
    "x": "i",
    "y": "j",
    "z": "k",
    "A": "ij",
    "B": "jk",
    "C": "ki",
    "D": "ii",
}
"""The classes of the axes of each tensor of floats; T[j] is an integer tensor of positions in k."""

RESERVED = {*TENSORS, "T"}


def index(name: str) -> ex.Index:
    """``i``, ``i'``, ...: an index whose class is its first letter."""
    return ex.Index(name, name[0])


def samples(seed: int = 0, sizes: Mapping[str, int] = SIZES) -> dict[str, Any]:
    """An array for each tensor: floats in (0.3, 1.7), no two equal."""
    rng = np.random.default_rng(seed)
    made: dict[str, Any] = {}
    for name, axes in TENSORS.items():
        shape = tuple(sizes[a] for a in axes)
        places = rng.permutation(int(np.prod(shape))) + rng.uniform(0.2, 0.8, int(np.prod(shape)))
        made[name] = (0.3 + 1.4 * places / max(1, np.prod(shape))).reshape(shape)
    made["T"] = rng.integers(0, sizes["k"], sizes["j"])
    return made


def flat(e: ex.Expr) -> tuple[Poly, Lets]:
    """e in flat form, and the lets that were made on the way."""
    lets = Lets({}, set(RESERVED))
    return flatten(lets, e), lets


def defined(let: Let, nested: Callable[[ex.Expr], ex.Expr] = to_tree) -> ex.Expr:
    """The right side of a let as a tree."""
    body, condition = nested(let.body), let.condition
    condition = None if condition is None else nested(condition)
    if let.kind == "sum":
        return body
    if let.kind == "others":
        (k,) = let.binders
        other = fresh(k, let.formals)
        apart: ex.Expr = ex.Rel("!=", other, k)
        if condition is not None:
            apart = ex.And((substitute(condition, {k: other}), apart))
        return ex.Reduce("prod", (other,), substitute(body, {k: other}), apart)
    return ex.Reduce(let.kind, let.binders, body, condition)


def with_lets(
    lets: Lets,
    tensors: Mapping[str, Any],
    sizes: Mapping[str, Any] = SIZES,
    parameters: Mapping[str, Any] | None = None,
    nested: Callable[[ex.Expr], ex.Expr] = to_tree,
) -> dict[str, Any]:
    """The tensors, and the value of every let that is not among them.

    What is compared with a maximum must be rounded as the maximum was: ``nested`` is the form
    in which both are evaluated.
    """
    known = dict(tensors)
    for let in lets:
        if let.name not in known:
            known[let.name] = array(
                let.formals, defined(let, nested), known, sizes, parameters or {}, let.dtype
            )
    return known


def evaluated(
    axes: Sequence[ex.Expr],
    e: ex.Expr,
    tensors: Mapping[str, Any],
    lets: Lets | None = None,
    sizes: Mapping[str, Any] = SIZES,
) -> Any:
    """The array of e, flat or nested, over these axes."""
    known = tensors if lets is None else with_lets(lets, tensors, sizes)
    return array(axes, to_tree(e), known, sizes, {})


def numbers(op: Operation, parameters: Mapping[str, Any], sizes: Mapping[str, Any]) -> Any:
    """The parameters of op that stand in expressions, by name."""
    found = {p.name: parameters[p.name] for p in op.parameters if isinstance(p, Number)}
    return found | {p.name: sizes[p.extent] for p in op.parameters if isinstance(p, SizeOf)}


@st.composite
def expressions(
    draw: Any, scope: tuple[ex.Index, ...], depth: int = 3, smooth: bool = False
) -> ex.Expr:
    """A positive expression over the indices of scope; ``smooth`` leaves brackets out.

    Bound indices may hide free ones and each other.
    """
    kinds = ["access", "number"]
    if depth:
        kinds = ["access", "add", "mul", "mul", "power", "call", "sum", "sum", "mean"]
        if not smooth:
            kinds += ["delta", "bracket"]
    kind = draw(st.sampled_from(kinds))
    inner = expressions(scope, depth - 1, smooth)
    if kind == "number":
        return ex.num(draw(st.sampled_from([1, 2, 3])))
    if kind == "add":
        return ex.Add((draw(inner), draw(inner)))
    if kind == "mul":
        return ex.Mul((draw(inner), draw(inner)))
    if kind == "power":
        exponent = draw(st.sampled_from([2, -1, 3, "1/2", "-1/2"]))
        base = draw(expressions(scope, depth - 1, True))
        return ex.Pow(base, ex.num(_fraction(exponent)))
    if kind == "call":
        function = draw(st.sampled_from(["tanh", "sigmoid", "log1p"]))
        return ex.Call(function, (draw(inner),))
    if kind in ("sum", "mean"):
        k = index(draw(st.sampled_from(["i", "i'", "j", "j'", "k", "k'"])))
        others = tuple(i for i in scope if i is not k)
        return ex.Reduce(kind, (k,), draw(expressions((*others, k), depth - 1, smooth)))
    pairs = [(a, b) for a in scope for b in scope if a is not b and a.extent == b.extent]
    if kind == "delta" and pairs:
        return ex.Mul((ex.Delta(*draw(st.sampled_from(pairs))), draw(inner)))
    if kind == "bracket" and scope:
        i = draw(st.sampled_from(scope))
        op = draw(st.sampled_from(["<=", "==", "!="]))
        return ex.Mul((ex.Iverson(ex.Rel(op, i, ex.num(1))), draw(inner)))
    tensor = draw(st.sampled_from(sorted(TENSORS)))
    return ex.Access(tensor, tuple(draw(_position(scope, axis)) for axis in TENSORS[tensor]))


def _fraction(value: int | str) -> Fraction:
    return Fraction(value)


def _position(scope: tuple[ex.Index, ...], axis: str) -> Any:
    """An index of this class; a constant where there is none, and for k also a gather."""
    found: list[ex.Expr] = [i for i in scope if i.extent == axis]
    if axis == "k":
        found += [ex.Access("T", (i,)) for i in scope if i.extent == "j"]
    return st.sampled_from(found or [ex.num(0)])


@st.composite
def operations(draw: Any, depth: int = 3) -> str:
    """The text of an operation of one or two equations, smooth almost everywhere.

    Conditions, gathers, every kind of reduction, one letter bound again, and tensors that are
    read at two different letters of one class all occur.
    """
    used: dict[str, None] = {}
    axes = draw(st.sampled_from(["", "i", "j", "ij", "ji", "ik", "kj"]))
    lines = []
    names = dict(TENSORS)
    if draw(st.booleans()):
        own = draw(st.sampled_from(["i", "j", "ij"]))
        first = draw(_text(tuple(own), depth - 1, names, used))
        lines.append(f"u{_brackets(own)} = {first}{_each(own, used)}")
        names["u"] = own
        body = f"u{_brackets(own)}*" + draw(_text(tuple(own), depth - 1, names, used))
        free = [a for a in own if a not in axes]
        if free:
            body = f"sum[{','.join(free)}]({body})"
        lines.append(f"r{_brackets(axes)} = {body} + {draw(_text(tuple(axes), 1, names, used))}")
    else:
        lines.append(f"r{_brackets(axes)} = {draw(_text(tuple(axes), depth, names, used))}")
    lines[-1] += _each(axes, used)
    inputs = ", ".join(
        "T[j]" if name == "T" else f"{name}{_brackets(_apart(TENSORS[name]))}"
        for name in sorted(used)
        if name != "u"
    )
    return f"op f({inputs}) -> r\n" + "\n".join(lines)


def _each(axes: str, used: dict[str, None]) -> str:
    """A term for each axis, so that its size is known."""
    found = ["xyz"["ijk".index(a)] for a in axes]
    used.update(dict.fromkeys(found))
    return "".join(f" + {name}[{a}]" for name, a in zip(found, axes, strict=True))


def _apart(axes: str) -> str:
    """One letter for each axis: D[i,i] is declared as D[i,l]."""
    return axes if len(set(axes)) == len(axes) else axes[0] + "l"


def _brackets(axes: Sequence[str]) -> str:
    return f"[{','.join(axes)}]" if axes else ""


@st.composite
def _text(
    draw: Any, scope: tuple[str, ...], depth: int, names: dict[str, str], used: dict[str, None]
) -> str:
    readable = [n for n, axes in sorted(names.items()) if set(axes) <= set(scope)]
    kinds = ["access"]
    if depth > 0:
        kinds += ["access", "add", "mul", "mul", "div", "call", "sum", "reduce", "gather", "where"]
    kind = draw(st.sampled_from(kinds))

    def inner(s: tuple[str, ...] = scope) -> str:
        return str(draw(_text(s, depth - 1, names, used)))

    if kind == "add":
        return f"({inner()} + {inner()})"
    if kind == "mul":
        return f"{inner()}*{inner()}"
    if kind == "div":
        return f"{inner()}/(1 + {inner()})"
    if kind == "call":
        return f"{draw(st.sampled_from(['tanh', 'sigmoid', 'sin', 'log1p', 'sqrt']))}({inner()})"
    if kind in ("sum", "reduce"):
        many = ["mean", "max", "amax", "min", "logsumexp", "prod"]
        name = "sum" if kind == "sum" else draw(st.sampled_from(many))
        k = draw(st.sampled_from("ijk"))
        readers = [n for n, axes in sorted(names.items()) if k in axes and set(axes) <= {*scope, k}]
        body = inner(tuple(dict.fromkeys((*scope, k))))
        first = draw(st.sampled_from(readers))
        used[first] = None
        taken = f"{k} | {k} >= 1" if draw(st.integers(0, 4)) == 0 else k
        return f"{name}[{taken}]({first}{_brackets(names[first])}*{body})"
    if kind == "gather" and "j" in scope:
        used.update(dict.fromkeys(("T", "z")))
        return "z[T[j]]"
    if kind == "where" and scope:
        return f"where({draw(st.sampled_from(scope))} < 1, {inner()}, {inner()})"
    chosen = draw(st.sampled_from(readable))
    used[chosen] = None
    return f"{chosen}{_brackets(names[chosen])}"


LONG = frozenset(
    "pixel_shuffle pixel_unshuffle conv2d depthwise_conv2d conv_transpose1d im2col max_pool2d"
    " avg_pool2d tucker kron pad lstm_cell relative_attention alibi_attention"
    " cross_attention grouped_query_attention multi_head_attention grouped_conv1d".split()
)
"""The operations of the catalog with so many indices that loops over all of them take long."""


def marks(name: str) -> tuple[pytest.MarkDecorator, ...]:
    """What a test that loops over all indices of the operation is marked with."""
    return (pytest.mark.long,) if name in LONG else ()


def cost(polys: Iterable[Poly]) -> float:
    """The cost of computing these once, common subexpressions once."""
    found: dict[ex.Expr, float] = {}
    for p in polys:
        found |= operation_costs(p)
    return sum(found.values())
