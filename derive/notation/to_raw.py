"""The algebra as what a person writes: softmax by its name, quotients, roots, letters.

It is the way back from `derive.notation.body`; `derive.notation.raw.show` makes text of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import permutations

from derive.algebra.expr import (
    Access,
    Add,
    And,
    Call,
    Composite,
    Const,
    Expr,
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
    free_indices,
    num,
    tensors,
)
from derive.algebra.functions import POWERS
from derive.algebra.substitution import substitute
from derive.notation import raw
from derive.notation.build import product, total
from derive.notation.raw import Raw

__all__ = ["Letters", "ToRaw"]

Letters = Mapping[Index, str]
"""The letter of each index that stands for something here."""

_ROOTS = {exponent: name for name, exponent in POWERS.items() if exponent != 2}

_LARGEST_DENOMINATOR = 100
"""Beyond it a number is a decimal, where it has one."""


class ToRaw:
    """Writes expressions of one operation, whose positions have no guards.

    ``taken`` are names that no new letter may have, ``sizes`` those of extents where they are said
    by others.
    """

    def __init__(
        self, taken: Iterable[str] = (), sizes: Mapping[str, Expr | None] | None = None
    ) -> None:
        self._taken = frozenset(taken)
        self._sizes = sizes or {}

    def write(self, e: Expr, letters: Letters) -> Raw:
        """e, whose free indices have these letters."""
        match e:
            case Num(value):
                return _number(value)
            case Const(name) | Param(name):
                return raw.Name(name)
            case Size(extent):
                # That of an argument of concat is called as the index that it is read with.
                own = (name for i, name in letters.items() if i.extent == extent and "#" in i.name)
                return raw.Apply("size", (raw.Name(next(own, extent)),))
            case Index(_, _, group):
                return (raw.Star if group else raw.Name)(letters[e])
            case Composite(args):
                return raw.Composite(tuple(self.write(a, letters) for a in args))
            case Access(tensor, positions):
                if not positions:
                    return raw.Name(tensor)
                return raw.Item(tensor, tuple(self.write(p, letters) for p in positions))
            case Add(args):
                return self._kept("log_softmax", e, None, letters) or self._sum(args, letters)
            case Mul() | Pow(_, Num()):
                return self._product(e, letters)
            case Call() | Where():
                return self._call(e, letters)
            case Reduce():
                return self._reduction(e, letters)
            case Iverson(condition):
                return raw.Bracket(self.write(condition, letters))
            case Rel(op, left, right):
                return raw.Compare(self.write(left, letters), ((op, self.write(right, letters)),))
            case Not(arg):
                return raw.Negation(self.write(arg, letters))
            case And(args) | Or(args):
                if not args:
                    return raw.Apply("true" if isinstance(e, And) else "false", ())
                kind = raw.Both if isinstance(e, And) else raw.Either
                parts = tuple(self.write(a, letters) for a in args)
                return kind(parts) if len(parts) > 1 else parts[0]
        raise TypeError(f"a specification has no {type(e).__name__}: {e}")

    def _sum(self, args: Sequence[Expr], letters: Letters) -> Raw:
        terms = []
        for arg in args:
            negative = _coefficient(arg) < 0
            terms.append((negative, self.write(_negated(arg) if negative else arg, letters)))
        return raw.Sum(tuple(terms))

    def _product(self, e: Expr, letters: Letters) -> Raw:
        args = e.args if isinstance(e, Mul) else (e,)
        if len(args) == 2 and isinstance(args[0], Iverson):
            kept = self._exponential(args[1], args[0].condition, letters)
            if kept is not None:
                return kept
        if _coefficient(e) < 0:
            return raw.Negative(self.write(_negated(e), letters))
        factors: list[tuple[bool, Raw]] = []
        divisors: list[tuple[bool, Raw]] = []
        for arg in args:
            if isinstance(arg, Num) and arg.value.denominator > _LARGEST_DENOMINATOR:
                factors.append((False, _number(arg.value)))
            elif isinstance(arg, Num):
                factors += [(False, _number(arg.value.numerator))] * (arg.value.numerator != 1)
                divisors += [(True, _number(arg.value.denominator))] * (arg.value.denominator != 1)
            elif isinstance(arg, Pow) and arg.exponent is num(-1):
                factors.append((True, self.write(arg.base, letters)))
            else:
                factors.append((False, self._power(arg, letters)))
        factors += divisors
        if factors[0][0]:
            factors.insert(0, (False, _number(1)))
        return factors[0][1] if len(factors) == 1 else raw.Product(tuple(factors))

    def _power(self, e: Expr, letters: Letters) -> Raw:
        if not isinstance(e, Pow):
            return self.write(e, letters)
        base = self.write(e.base, letters)
        if isinstance(e.exponent, Num) and e.exponent.value in _ROOTS:
            return raw.Apply(_ROOTS[e.exponent.value], (base,))
        return raw.Power(base, self.write(e.exponent, letters))

    def _call(self, e: Expr, letters: Letters) -> Raw:
        composed = self._exponential(e, None, letters) or self._joined(e, letters)
        if composed is not None:
            return composed
        args = tuple(self.write(part, letters) for part in e.parts())
        if isinstance(e, Where):
            return raw.Apply("where", args)
        assert isinstance(e, Call)
        if e.function == "pow":
            return raw.Power(*args)
        if e.function == "floordiv":
            return raw.Apply("floor", (raw.Product(((False, args[0]), (True, args[1]))),))
        return raw.Apply(e.function, args)

    # what composed heads became

    def _exponential(self, e: Expr, condition: Expr | None, letters: Letters) -> Raw | None:
        """softmax_k(x) where e is exp(x - logsumexp_k'(x'))."""
        if not isinstance(e, Call) or e.function != "exp":
            return None
        return self._kept("softmax", e.args[0], condition, letters)

    def _kept(self, kind: str, e: Expr, condition: Expr | None, letters: Letters) -> Raw | None:
        """kind[k | condition](x) where e is x - logsumexp_k'(x')."""
        if not isinstance(e, Add) or not isinstance(e.args[-1], Mul):
            return None
        rest, last = e.args[:-1], e.args[-1].args
        if len(last) != 2 or last[0] is not num(-1) or not isinstance(last[1], Reduce):
            return None
        x, lse = rest[0] if len(rest) == 1 else Add(rest), last[1]
        if lse.kind != "logsumexp" or (lse.condition is None) != (condition is None):
            return None
        for outer in permutations(_alike(lse.indices, letters), len(lse.indices)):
            renaming: Mapping[Index, Expr] = dict(zip(lse.indices, outer, strict=True))
            asked = lse.condition and substitute(lse.condition, renaming)
            if substitute(lse.body, renaming) is x and asked is condition:
                kept = tuple(self.write(i, letters) for i in outer)
                test = None if condition is None else self.write(condition, letters)
                return raw.Bind(kind, kept, test, (self.write(x, letters),))
        return None

    def _joined(self, e: Expr, letters: Letters) -> Raw | None:
        """concat_k(a(k), b(k)) where e is a(k) if k < size(a), else b(k - size(a))."""
        k = _compared(e)
        whole = None if k is None else self._sizes.get(k.extent)
        if k is None or not isinstance(whole, Add):
            return None
        pieces: list[Raw] = []
        offset: Expr = num(0)
        for n, size in enumerate(whole.args):
            end, piece = total((offset, size)), e
            if n < len(whole.args) - 1:
                if not isinstance(e, Where) or e.condition is not Rel("<", k, end):
                    return None
                piece, e = e.then, e.other
            if not isinstance(size, Size):
                return None
            own = Index(f"{k.name}#", size.extent)
            moved = _cancelled(substitute(piece, {k: total((own, offset))}))
            pieces.append(self.write(moved, {**letters, own: letters[k]}))
            offset = end
        return raw.Bind("concat", (self.write(k, letters),), None, tuple(pieces))

    def _reduction(self, e: Reduce, letters: Letters) -> Raw:
        inner = dict(letters)
        free = free_indices(e)
        for index in e.indices:
            used = {letters[i] for i in free} | {inner[i] for i in e.indices if i in inner}
            inner[index] = self._letter(index, used)
        indices = tuple(self.write(i, inner) for i in e.indices)
        condition = None if e.condition is None else self.write(e.condition, inner)
        return raw.Bind(e.kind, indices, condition, (self.write(e.body, inner),))

    def _letter(self, index: Index, used: set[str]) -> str:
        """Its own letter or that of its size where nothing around it is called so, or a new one."""
        own = index.name.rstrip("'").partition("#")[0]
        for letter in (own, index.extent):
            if letter not in used:
                return letter
        return next(new for new in _numbered(own) if new not in used | self._taken)


def _compared(e: Expr) -> Index | None:
    """k of where(k < .., .., ..)."""
    if isinstance(e, Where) and isinstance(e.condition, Rel):
        left = e.condition.left
        return left if isinstance(left, Index) else None
    return None


def _cancelled(e: Expr) -> Expr:
    """e with sums flat and without what they add and subtract."""
    e = e.map(_cancelled)
    if not isinstance(e, Add):
        return e
    flat = total(e.args)
    terms = list(flat.args if isinstance(flat, Add) else (flat,))
    for term in list(terms):
        opposite = product((num(-1), term))
        if term is not opposite and {term, opposite} <= set(terms) and not tensors(term):
            terms.remove(term)
            terms.remove(opposite)
    return total(terms or (num(0),))


def _alike(indices: Sequence[Index], letters: Letters) -> list[Index]:
    """What the indices of a reduction may have been before they were bound."""
    return [i for i in letters if any((i.extent, i.group) == (k.extent, k.group) for k in indices)]


def _numbered(name: str) -> Iterator[str]:
    n = 2
    while True:
        yield f"{name}{n}"
        n += 1


def _number(value: Fraction | int) -> Raw:
    value = Fraction(value)
    if value < 0:
        return raw.Negative(_number(-value))
    if value.denominator == 1 or raw.decimal(value) is not None:
        return raw.Number(value, value.denominator == 1)
    return raw.Product(((False, _number(value.numerator)), (True, _number(value.denominator))))


def _coefficient(e: Expr) -> Fraction:
    first = e.args[0] if isinstance(e, Mul) else e
    return first.value if isinstance(first, Num) else Fraction(1)


def _negated(e: Expr) -> Expr:
    """-e for a product or number with a negative coefficient."""
    if isinstance(e, Num):
        return Num(-e.value)
    assert isinstance(e, Mul) and isinstance(e.args[0], Num)
    first = () if e.args[0].value == -1 else (Num(-e.args[0].value),)
    rest = (*first, *e.args[1:])
    return rest[0] if len(rest) == 1 else Mul(rest)
