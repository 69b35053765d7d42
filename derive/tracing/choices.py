"""Choices where(c, a, b): conditions folded, unreachable branches dropped, infinite ones outermost.

An index counts from 0, so where(n != -100, a, b) is a.
where(c == 0, a, where(c == 1, b, e)) with size(c) = 2 is where(c == 0, a, b).
f(where(c, -inf, x)) = where(c, f(-inf), f(x)): a mask that is added, scaled or exponentiated
becomes the branch that a maximum or a softmax leaves out, as the notation requires.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import product
from typing import Any

import sympy

from derive.algebra.expr import DENIED, MIRRORED, RELATIONS
from derive.tracing.values import (
    Atom,
    Joined,
    Position,
    TracedApply,
    TracedNode,
    TracedNumber,
    TracedParameter,
    TracedRead,
    TracedReduce,
    apply,
    as_node,
    gap_of,
    is_integer,
    rewritten,
    substituted,
    walk,
)

# -------------------------------------------------------------------- conditions


def fold_comparison(symbol: str, a: TracedNode, b: TracedNode) -> TracedNode:
    """Return a comparison of a and b, folded if it is constant.

    It is constant for two numbers, for an index and a negative number, and for positions with a
    known difference. A bool compared as 1 or 0 is the bool itself: where(c, 1, 0) > 0 is c.
    """
    m, n = map(_constant, (a, b))
    if m is not None and n is not None:
        return TracedNumber(bool(RELATIONS[symbol](m, n)))
    for one, value, own in ((a, n, symbol), (b, m, MIRRORED[symbol])):
        if value is not None and value < 0 and _is_from_zero(one):
            return TracedNumber(bool(RELATIONS[own](0, value)))
    if (gap := gap_of(a, b)) is not None:
        return TracedNumber(bool(RELATIONS[symbol](gap, 0)))
    match a:
        case TracedApply("where", (c, x, y)) if isinstance(b, TracedNumber):
            match fold_comparison(symbol, x, b), fold_comparison(symbol, y, b):
                case TracedNumber(first), TracedNumber(second):
                    return as_node(first) if first == second else c if first else negated(c)
    return apply(symbol, a, b)


def where(c: TracedNode, a: Any, b: Any) -> TracedNode:
    """Return where(c, a, b), folded if c is constant or a == b."""
    if isinstance(c, TracedNumber) and isinstance(c.value, bool):
        return as_node(a if c.value else b)
    if as_node(a) == as_node(b):
        return as_node(a)
    return apply("where", c, a, b)


def negated(c: TracedNode) -> TracedNode:
    """Return not c; a comparison of positions, which are never nan, is inverted instead."""
    match c:
        case TracedApply(symbol, (a, b)) if symbol in DENIED and all(
            isinstance(x, TracedNumber) or _is_position(x) for x in (a, b)
        ):
            return apply(DENIED[symbol], a, b)
        case TracedApply("not", (inner,)):
            return inner
    return apply("not", c)


def without_choices_of_truths(node: TracedNode, truth: bool) -> TracedNode:
    """Write where(c, a, b) of two truths as (c and a) or (not c and b), which the notation has.

    ``truth`` says whether the expression itself is a truth.
    """
    if isinstance(node, TracedNumber) and truth:
        return TracedNumber(bool(node.value))
    match node:
        case TracedApply("where"):
            kinds = [True, truth, truth]
        case TracedReduce(kind):
            kinds = [kind in ("any", "all"), True]
        case _:
            held = isinstance(node, TracedApply) and node.name in ("and", "or", "not", "truth")
            kinds = [held] * len(node.parts())
    parts = node.parts()
    new = [without_choices_of_truths(p, k) for p, k in zip(parts, kinds, strict=False)]
    if truth and isinstance(node, TracedApply) and node.name == "where":
        return _one_of(*new)
    same = all(a is b for a, b in zip(parts, new, strict=True))
    return node if same else node.with_parts(new)


def _one_of(c: TracedNode, a: TracedNode, b: TracedNode) -> TracedNode:
    """Return the truth a where c holds, and b elsewhere."""
    match a, b:
        case TracedNumber(value), _:
            return c | b if value else negated(c) & b
        case _, TracedNumber(value):
            return negated(c) | a if value else c & a
    return (c & a) | (negated(c) & b)


def multiplied(a: TracedNode, b: TracedNode) -> TracedNode:
    """Return a*b, with (1/x)*n as n/x: torch traces n/x as (1/x)*n."""
    for one, number in ((a, b), (b, a)):
        match one, number:
            case TracedApply("/", (TracedNumber(1), x)), TracedNumber():
                return number / x
    return a * b


def _is_position(node: TracedNode) -> bool:
    items = node.items if isinstance(node, Joined) else (node,)
    return all(isinstance(i, Position) for i in items)


def _is_from_zero(node: TracedNode) -> bool:
    """True if the node is a position, or a sum of positions and sizes, so never negative."""
    match node:
        case TracedApply("+", parts):
            numbers = (p.value for p in parts if isinstance(p, TracedNumber))
            return all(getattr(n, "is_nonnegative", False) is True for n in numbers) and all(
                isinstance(p, TracedNumber) or _is_from_zero(p) for p in parts
            )
        case Position() | Joined():
            return _is_position(node)
    return False


def _constant(node: TracedNode) -> float | None:
    """Return the value of a number without symbols, else None."""
    value = node.value if isinstance(node, TracedNumber) else None
    return value if isinstance(value, int | float) else None


def conjunction(tests: Sequence[TracedNode]) -> TracedNode | None:
    """Return the condition that all tests hold, None without any."""
    return reduce(operator.and_, tests) if tests else None


# -------------------------------------------------------------------- unreachable branches


_MEANT = {
    "and": operator.and_,
    "==": operator.eq,
    "<": operator.lt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "%": operator.mod,
    "//": operator.floordiv,
}
_MOST = 256
"""Size of an axis up to which positions are enumerated."""
_ENDS = 8


def merged_where(sizes: Any, test: TracedNode, value: TracedNode, rest: TracedNode) -> TracedNode:
    """Return where(test, value, rest), merged with a choice in value that has the same rest.

    where(c, where(d, a, rest), rest) is where(c and d, a, rest), also if the inner rest is without
    branches that no position selects.
    """
    value = rewritten(value, _moved_once)
    match value:
        case TracedApply("where", (inner, made, other)):
            outside = _without_start(rest)
            match test:
                case TracedApply("==", (Position(atom), TracedNumber() as n)):
                    outside = substituted(outside, {atom: n})
            whole = apply("where", inner, made, outside)
            if _without_start(other) == outside or without_dead_branches(whole, sizes) == value:
                return apply("where", test & _without_start(inner), made, rest)
    return apply("where", test, value, rest)


def _moved_once(node: TracedNode) -> TracedNode:
    """Fold x - 1 + 1 to x, and a repeated start parameter to one."""
    match node:
        case TracedApply(
            "+", (TracedApply("+", (_, TracedParameter(own))) as inner, TracedParameter(other))
        ):
            return inner if own == other else node
        case TracedApply(
            "+" | "-" as two, (TracedApply("+" | "-" as one, (x, TracedNumber(m))), TracedNumber(n))
        ):
            if isinstance(m, bool | float) or isinstance(n, bool | float) or not _is_place(x):
                return node
            by = (m if one == "+" else -m) + (n if two == "+" else -n)
            return x if by == 0 else TracedApply("+", (x, TracedNumber(by)))
    return node


def _without_start(node: TracedNode) -> TracedNode:
    """Drop start parameters, 0 as given, which only say that an axis is longer."""

    def change(x: TracedNode) -> TracedNode:
        match x:
            case TracedApply("+", (place, TracedParameter())) if _is_place(place):
                return place
        return _moved_once(x)

    return rewritten(node, change)


def _is_place(node: TracedNode) -> bool:
    return not any(isinstance(x, TracedRead) for x in walk(node))


def without_dead_branches(node: TracedNode, sizes: Any) -> TracedNode:
    """Return the choice without branches that no position selects."""
    match node:
        case TracedApply("where", (test, value, TracedApply("where", (other, last, _)))) if (
            _are_opposite(test, other, sizes)
        ):
            return TracedApply("where", (test, value, last))
        case TracedApply("where", (test, _, _)) if (atom := _tested_index(test)) is not None:
            if isinstance(atom.size, sympy.Integer) and atom.size <= _MOST:
                return _without_unreachable(node, atom, set(range(int(atom.size))), sizes)
    return _without_unset(node, sizes)


def _without_unset(node: TracedNode, sizes: Any) -> TracedNode:
    """Return the choice without uninitialized memory if it is written everywhere.

    It is so in the examples, and also if one of its sizes doubles and no other.
    """
    writes, rest = [], node
    while isinstance(rest, TracedApply) and rest.name == "where":
        writes.append(rest.args[:2])
        rest = rest.args[2]
    if rest != apply("unset") or not writes:
        return node
    tested = {t: found for t, _ in writes if (found := _tested_indices(t)) is not None}
    atoms = tuple(dict.fromkeys(a for found in tested.values() for a in found))
    symbols = {s for a in atoms for s in sizes.meant(a.size).free_symbols}
    for doubled in (None, *sorted(symbols, key=str)):
        hint = partial(sizes.hint, doubled=doubled)
        lengths = [hint(a.size) for a in atoms]
        # Of a long axis, both ends stand for all positions.
        places = [[n for n in range(m) if min(n, m - 1 - n) < _ENDS] for m in lengths]
        for at in product(*places):
            here = dict(zip(atoms, at, strict=True))
            if not any(_value_at(t, here, hint) for t in tested):
                return node
    made: TracedNode = writes[-1][1]
    return reduce(lambda other, own: TracedApply("where", (*own, other)), writes[-2::-1], made)


def _without_unreachable(node: TracedNode, atom: Atom, left: set[int], sizes: Any) -> TracedNode:
    """Simplify the choice for the positions that are left."""
    match node:
        case TracedApply("where", (test, value, rest)) if _tested_index(test) == atom:
            here = {n for n in left if _value_at(test, {atom: n}, sizes.hint)}
            if here == left:
                return value
            rest = _without_unreachable(rest, atom, left - here, sizes)
            return TracedApply("where", (test, value, rest)) if here else rest
    return node


def _tested_index(test: TracedNode) -> Atom | None:
    """Return the only index of a test that depends on positions of one axis alone."""
    found = _tested_indices(test) or ()
    plain = all(is_integer(x.value) for x in walk(test) if isinstance(x, TracedNumber))
    return next(iter(found)) if len(found) == 1 and plain else None


def _tested_indices(test: TracedNode) -> dict[Atom, None] | None:
    """Return the indices of a test that depends on positions and sizes alone."""
    found: dict[Atom, None] = {}
    for x in walk(test):
        match x:
            case Position(atom):
                found[atom] = None
            case TracedNumber(value) if not isinstance(value, bool | float):
                pass
            case TracedApply(name) if name in _MEANT:
                pass
            case _:
                return None
    return found


def _value_at(node: TracedNode, at: Mapping[Atom, int], hint: Callable[..., Any]) -> Any:
    """Return a test, or a position in it, at these positions and sizes."""
    match node:
        case Position(atom):
            return at[atom]
        case TracedNumber(value):
            return int(value) if is_integer(value) else hint(value)
        case TracedApply(name, (a, b)):
            return _MEANT[name](_value_at(a, at, hint), _value_at(b, at, hint))
    raise AssertionError(node)


def _are_opposite(test: TracedNode, other: TracedNode, sizes: Any) -> bool:
    """True if one test holds below a position and the other from there on."""
    match test, other:
        case (
            TracedApply("<" | ">=" as one, (Position(a), TracedNumber(m))),
            TracedApply("<" | ">=" as two, (Position(b), TracedNumber(n))),
        ):
            return bool(a == b and one != two and sizes.equal(m, n))
    return False


# -------------------------------------------------------------------- infinite branches


_LEFT: dict[str, tuple[float | None, float | None]] = {
    "exp": (0, sympy.oo),
    "exp2": (0, sympy.oo),
    "expm1": (-1, sympy.oo),
    "sigmoid": (0, 1),
    "logsigmoid": (-sympy.oo, 0),
    "softplus": (0, sympy.oo),
    "relu": (0, sympy.oo),
    "tanh": (-1, 1),
    "erf": (-1, 1),
    "erfc": (2, 0),
    "sign": (-1, 1),
    "abs": (sympy.oo, sympy.oo),
    "square": (sympy.oo, sympy.oo),
    "floor": (-sympy.oo, sympy.oo),
    "detach": (-sympy.oo, sympy.oo),
    "neg": (sympy.oo, -sympy.oo),
    "sqrt": (None, sympy.oo),
    "rsqrt": (None, 0),
    "log": (None, sympy.oo),
    "log1p": (None, sympy.oo),
}
"""Limits of functions at minus and at plus infinity; None if undefined."""


def sign_of(node: TracedNode) -> int:
    """Return 1 or -1 for an infinity, else 0."""
    if isinstance(node, TracedNumber) and not isinstance(node.value, bool):
        if node.value in (sympy.oo, float("inf")):
            return 1
        if node.value in (-sympy.oo, float("-inf")):
            return -1
    return 0


def leaves_out(node: TracedNode) -> bool:
    """True if the node is a choice with an infinite branch, for a reduction to leave out."""
    return (
        isinstance(node, TracedApply) and node.name == "where" and any(map(sign_of, node.args[1:]))
    )


@dataclass(frozen=True)
class InfiniteChoice:
    """A choice with one infinite branch, taken where the condition ``holds``, or where it fails."""

    condition: TracedNode
    sign: int
    rest: TracedNode
    holds: bool

    def with_branches(self, infinite: TracedNode, rest: TracedNode) -> TracedNode:
        """Return the same choice between other branches."""
        branches = (infinite, rest) if self.holds else (rest, infinite)
        return apply("where", self.condition, *branches)

    def moved(self, condition: TracedNode, rest: TracedNode) -> TracedNode:
        """Return the choice with another condition and another finite branch."""
        infinite = TracedNumber(self.sign * sympy.oo)
        return replace(self, condition=condition).with_branches(infinite, rest)

    def under(self, other: TracedNode) -> TracedNode:
        """Return the condition that ``other`` holds and the infinite branch is taken."""
        return other & (self.condition if self.holds else negated(self.condition))


def infinite_choice(node: TracedNode) -> InfiniteChoice | None:
    """Return the choice if exactly one of its branches is infinite, else None."""
    if not leaves_out(node):
        return None
    c, a, b = node.parts()
    first, second = sign_of(a), sign_of(b)
    if first and second:
        return None
    return InfiniteChoice(c, first, b, True) if first else InfiniteChoice(c, second, a, False)


@dataclass
class Outward:
    """Rewrites expressions; ``signs`` collects the numbers whose sign decided a limit."""

    signs: set[float] = field(default_factory=set)

    def __call__(self, node: TracedNode) -> TracedNode:
        if not isinstance(node, TracedApply) or not node.args:
            return node
        args = tuple(x if isinstance(x, TracedRead | TracedReduce) else self(x) for x in node.args)
        return self._out(TracedApply(node.name, args))

    def _out(self, node: TracedApply) -> TracedNode:
        if node.name == "where":
            return self._chosen(node)
        for n, arg in enumerate(node.args):
            left = infinite_choice(arg)
            if left is None:
                continue
            limit = self._limit(node, n, left.sign)
            if limit is not None:
                args = (*node.args[:n], left.rest, *node.args[n + 1 :])
                rest = self._out(TracedApply(node.name, args))
                return left.with_branches(limit, _without_added_zero(rest))
        return node

    def _chosen(self, node: TracedApply) -> TracedNode:
        """Flatten a choice between choices that have an infinite branch."""
        c, a, b = node.args
        if sign_of(a) or sign_of(b):
            return node
        for branch, held in ((a, c), (b, negated(c))):
            left = infinite_choice(branch)
            if left is not None:
                others = (left.rest, b) if branch is a else (a, left.rest)
                rest = self._chosen(TracedApply("where", (c, *others)))
                return apply("where", left.under(held), left.sign * sympy.oo, rest)
        return node

    def _limit(self, node: TracedApply, n: int, sign: int) -> TracedNode | None:
        """Return the function's value at an infinite n-th argument; None if it is unknown."""
        others = [x for k, x in enumerate(node.args) if k != n]
        infinite = TracedNumber(sign * sympy.oo)
        match node.name, others:
            case name, [] if name in _LEFT:
                limit = _LEFT[name][sign > 0]
                return None if limit is None else TracedNumber(limit)
            case "+" | "-", [other]:
                own = -sign if node.name == "-" and n else sign
                turned = -1 if node.name == "-" and not n else 1
                signs = {turned * s for s in _signs(other)}
                return TracedNumber(own * sympy.oo) if signs <= {own} else None
            case "*" | "/" as name, [TracedNumber() as other] if name == "*" or not n:
                by = self._asked(other)
                return None if by is None else TracedNumber(sign * by * sympy.oo)
            case "/", [other] if n and not _signs(other):
                return TracedNumber(0)
            case "maximum" | "minimum", [other]:
                return infinite if (sign > 0) == (node.name == "maximum") else other
            case "clamp", [low, high] if not n:
                return high if sign > 0 else low
        return None

    def _asked(self, number: TracedNumber) -> int | None:
        """Return the sign of a number, and record that the number must not change."""
        try:
            value = float(number.value)
        except TypeError:
            # Sizes are positive.
            return 1 if isinstance(number.value, sympy.Expr) and number.value.is_positive else None
        if not value or abs(value) == float("inf"):
            return None
        self.signs.add(value)
        return 1 if value > 0 else -1


def _signs(node: TracedNode) -> set[int]:
    """Return the signs of the infinities that an expression may be."""
    if isinstance(node, TracedApply) and node.name == "where":
        return _signs(node.args[1]) | _signs(node.args[2])
    return {sign_of(node)} - {0}


def _without_added_zero(node: TracedNode) -> TracedNode:
    """Drop an added zero, as the finite branch of a mask has."""
    match node:
        case TracedApply("+" | "-", (x, TracedNumber(n))) | TracedApply(
            "+", (TracedNumber(n), x)
        ) if n == 0:
            return x
    return node
