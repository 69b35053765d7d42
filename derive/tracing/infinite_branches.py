"""Move the infinite branches of choices outward, to the outermost choice.

f(where(c, -inf, x)) = where(c, f(-inf), f(x))

A mask that is added, scaled or exponentiated thus becomes the branch that a maximum or a softmax
leaves out, as the notation requires.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import sympy

from derive.tracing.condition_folding import negated
from derive.tracing.values import (
    TracedApply,
    TracedNode,
    TracedNumber,
    TracedRead,
    TracedReduce,
    apply,
)

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
        own = self.condition if self.holds else negated(self.condition)
        return apply("and", other, own)


def infinite_choice(node: TracedNode) -> InfiniteChoice | None:
    """Return the choice if exactly one of its branches is infinite, else None."""
    if not leaves_out(node):
        return None
    c, a, b = node.parts()
    if sign_of(a) and sign_of(b):
        return None
    return (
        InfiniteChoice(c, sign_of(a), b, True)
        if sign_of(a)
        else InfiniteChoice(c, sign_of(b), a, False)
    )


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
                rest = self._out(_with_argument(node, n, left.rest))
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
                return apply("where", left.under(held), TracedNumber(left.sign * sympy.oo), rest)
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
            case "*", [TracedNumber() as other] if (by := self._asked(other)) is not None:
                return TracedNumber(sign * by * sympy.oo)
            case "/", [TracedNumber() as other] if not n and (by := self._asked(other)) is not None:
                return TracedNumber(sign * by * sympy.oo)
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


def _with_argument(node: TracedApply, n: int, arg: TracedNode) -> TracedApply:
    return TracedApply(node.name, tuple(arg if k == n else x for k, x in enumerate(node.args)))


def _without_added_zero(node: TracedNode) -> TracedNode:
    """Drop an added zero, as the finite branch of a mask has."""
    match node:
        case TracedApply("+", (x, TracedNumber(n))) | TracedApply("+", (TracedNumber(n), x)) if (
            n == 0
        ):
            return x
        case TracedApply("-", (x, TracedNumber(n))) if n == 0:
            return x
    return node
