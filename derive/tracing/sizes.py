"""Sizes of axes: expressions of the symbols of a trace, compared and divided.

A trace follows one branch of ``if x.shape[0] < 100``, and its guards record the comparisons. A
reading is compared with the function at sizes where a guard is false (`other_branches`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, product
from random import Random
from typing import Any

import sympy
from sympy.printing.str import StrPrinter
from torch.utils._sympy import functions
from torch.utils._sympy.functions import CeilToInt, FloorDiv, TruncToInt
from torch.utils._sympy.printers import PythonPrinter

from derive.errors import DeriveError
from derive.tracing.refusals import SizesUnread
from derive.tracing.values import TracedValue

_MOST_ROUNDED = 40
"""Maximum number of quotients with which sizes are taken as equal: each may round others again."""


class SymbolicSizes:
    """Facts about the symbols of a trace."""

    def __init__(self, shapes: Any, rounds: bool = False) -> None:
        self.shapes = shapes
        self.rounds = rounds
        """True if every quotient is rounded down, also one that is exact in the examples."""
        self.alike: dict[sympy.Symbol, sympy.Expr] = {}
        """Values of symbols, as operations on several tensors imply."""
        for guard in shapes.guards:
            if (symbol := _fixed_symbol(guard.expr)) is not None:
                self.alike[symbol] = sympy.Integer(int(shapes.backed_var_to_val[symbol]))
        self.divided: list[tuple[sympy.Expr, sympy.Expr]] = []
        """(a size, its assumed divisor)."""
        self.least: list[sympy.Expr] = []
        """Expressions assumed to be >= 0: a part of an axis is no longer than the axis."""
        self.unreached: list[str] = []
        """Bounds of sizes that no tensor of a check reaches, as text."""
        self._plain: dict[Any, sympy.Expr] = {}
        self._in_inputs: dict[Any, sympy.Expr] = {}
        self._equal: dict[Any, bool] = {}
        self.rounded: dict[sympy.Expr, sympy.Symbol] = {}
        """Floor divisions that may leave a remainder, each with a symbol, as it is a size."""

    def of(self, size: Any) -> sympy.Expr:
        """Return a size of torch as an expression, exact floor divisions as quotients."""
        node = getattr(size, "node", None)
        return sympy.sympify(size) if node is None else self.plain(node.expr)

    def example(self, size: Any) -> int:
        """Return a size of torch in the examples."""
        node = getattr(size, "node", None)
        return int(size if node is None else self.hint(self._resolved(node.expr)))

    def counted(self, size: Any) -> sympy.Expr:
        """Return a size of torch as an expression, with divisions rounded down for all sizes."""
        node = getattr(size, "node", None)
        e = sympy.sympify(size) if node is None else _plain_numbers(self._resolved(node.expr))
        return self._with_rounding(e, lambda whole, b: (whole, b) in self.divided)

    def number(
        self, size: Any, parts: Sequence[sympy.Expr], axes: Sequence[sympy.Expr]
    ) -> sympy.Expr:
        """Return a number of torch that tensors are computed with.

        A division is exact if its quotient is the size of one of the ``parts`` of axes. A number of
        positions of one of the ``axes`` is the size of the axis, whatever the remainder.
        """
        e = _plain_numbers(self._resolved(size.node.expr))
        known = [*parts, *axes] if isinstance(e, FloorDiv) else parts
        return self._with_rounding(e, lambda whole, b: any(self.equal(p * b, whole) for p in known))

    def _with_rounding(self, e: sympy.Expr, is_exact: Callable[[Any, Any], bool]) -> sympy.Expr:
        """Return the expression; a division is rounded, down or up, where it is not exact."""
        for x in sorted(e.atoms(FloorDiv), key=lambda x: len(str(x))):
            a, b = x.args
            if not any(is_exact(whole, b) for whole in (a, a - (b - 1))):
                self._rounded(x)
        return self.plain(e)

    def quotient_down(self, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
        """Return a/b rounded down for all sizes."""
        a, b = self.plain(a), self.plain(sympy.sympify(b))
        if b == 1 or not (a.free_symbols or b.free_symbols):
            return a if b == 1 else a // b
        return self._rounded(FloorDiv(a, b))

    def meant(self, e: Any) -> sympy.Expr:
        """Replace the symbols of floor divisions by the divisions."""
        return _substituted_whole(e, {symbol: x for x, symbol in self.rounded.items()})

    def at_least(self, e: sympy.Expr) -> None:
        if e.free_symbols and e not in self.least:
            self.least.append(e)

    def plain(self, e: sympy.Expr) -> sympy.Expr:
        """Return the expression in independent symbols, without floor divisions."""
        e = sympy.sympify(e)
        if e.is_Integer:
            return e
        known = self._state()
        found = self._plain.get((e, known))
        if found is None:
            made = self._made_plain(e)
            found = self._plain[e, self._state()] = made
        return found

    def _state(self) -> tuple[int, ...]:
        """Return a cache key that grows with the facts about symbols."""
        return tuple(map(len, (self.shapes.replacements, self.alike, self.divided, self.rounded)))

    def _made_plain(self, e: sympy.Expr) -> sympy.Expr:
        e = _plain_numbers(self._resolved(sympy.sympify(e)))
        e = e.replace(lambda x: isinstance(x, FloorDiv), self._quotient_of)
        return e if e.is_Atom else sympy.simplify(e)

    def _resolved(self, e: Any) -> Any:
        """Return the expression in independent symbols."""
        return _substituted_whole(e, {**self.shapes.replacements, **self.alike})

    def asked(self) -> dict[Any, Any]:
        """Return the comparisons of sizes that held in the trace, each with its statement.

        That is None for those of the order in memory. Those with the range of integers, which torch
        itself makes, hold for all tensors.
        """
        guards = self.shapes.guards
        of = {self._resolved(g.expr): guards.statements.get(g.expr) for g in reversed(guards)}
        small = (e for e in of if all(abs(n) < _OVERFLOWS for n in e.atoms(sympy.Integer)))
        return {self.meant(e): of[e] for e in reversed([*small]) if e.free_symbols}

    def false_at(self, way: Mapping[Any, int], inputs: Mapping[str, TracedValue]) -> str:
        """Return that a guard of values is false at these sizes, as text; '' if none is."""
        own = (e for e, place in self.asked().items() if place is not None)
        false = (e for e in own if not _guard_holds(e, way))
        return next((guard_text(e, self, inputs) for e in false), "")

    def numbers_asked(self) -> list[float]:
        """Return the numbers that sizes, or quotients of them, were compared with."""
        found = (x for g in self.shapes.guards for x in g.expr.atoms(sympy.Float))
        return sorted(map(float, found))

    def takes(self, way: Mapping[Any, int]) -> bool:
        """True if these sizes satisfy the assumed divisors and bounds."""
        return self.divides(way) is True and self._is_bounded(way)

    def leaves_rest(self, way: Mapping[Any, int]) -> bool:
        """True if these sizes satisfy the bounds, and not the assumed divisors."""
        return self.divides(way) is False and self._is_bounded(way, whole=False)

    def divides(self, way: Mapping[Any, int]) -> bool | None:
        """True if every assumed divisor divides its size; None if a size is undefined."""
        try:
            pairs = [(self.value(a, way), self.value(b, way)) for a, b in self.divided]
            return not any(int(a) % int(b) for a, b in pairs)
        except (ValueError, TypeError, ZeroDivisionError):
            return None

    def bounded(self, inputs: Mapping[str, TracedValue]) -> Callable[[Mapping[str, Any]], bool]:
        """Return a function that is true of tensors whose sizes satisfy the assumed bounds."""
        places: dict[Any, tuple[str, int]] = {}
        for name, value in inputs.items():
            for n, axis in enumerate(value.axes):
                if len(axis) == 1 and axis[0].size.is_Symbol:
                    places.setdefault(axis[0].size, (name, n))
        least = [self.meant(self._resolved(e)) for e in self.least]
        known = [e for e in least if e.free_symbols <= places.keys()]
        holds = _quick(sympy.And(*(e >= 0 for e in known)), [*places])
        return lambda tensors: holds([tensors[name].shape[n] for name, n in places.values()])

    def _is_bounded(self, way: Mapping[Any, int], whole: bool = True) -> bool:
        """True if these sizes satisfy the assumed bounds; if not ``whole``, before a rounding."""
        try:
            least = (sympy.sympify(self.value(e, way)) for e in self.least)
            if not whole:
                return all(e.is_rational and (e > -1) == sympy.true for e in least)
            # A quotient of what is no integer has no value; it is taken as one that may be.
            return all(e.is_integer and (e >= 0) != sympy.false for e in least)
        except (ValueError, ZeroDivisionError):
            return False

    def value(self, e: Any, way: Mapping[Any, int]) -> sympy.Expr:
        """Evaluate a size at these values of the symbols of the inputs."""
        key = (e, self._state())
        if key not in self._in_inputs:
            self._in_inputs[key] = self.meant(self._resolved(e))
        return substitute_symbols(self._in_inputs[key], way)

    def _quotient_of(self, x: sympy.Expr) -> sympy.Expr:
        """Return a floor division as a quotient if it is exact or rounds up, else as a symbol."""
        if x in self.rounded:
            return self.rounded[x]
        a, b = x.args
        up = a - (b - 1)
        # A sum stays a floor division: whether it divides in the examples may be accidental.
        for whole in (e for e in (a, up) if not (e.is_Add or self.rounds)):
            if self.hint(whole) % self.hint(b) == 0 and self.hint(whole) > 0:
                if whole.free_symbols and (whole, b) not in self.divided:
                    self.divided.append((whole, b))
                return whole / b
        return self._rounded(x)

    def _rounded(self, x: sympy.Expr) -> sympy.Expr:
        """Return the symbol of a floor division; torch simplifies one, as (2*n)//2."""
        if not isinstance(x, FloorDiv):
            return x.replace(lambda e: isinstance(e, FloorDiv), self._rounded)
        if x not in self.rounded:
            self.rounded[x] = sympy.Symbol(f"~{len(self.rounded)}", integer=True, nonnegative=True)
        return self.rounded[x]

    def unify(self, a: sympy.Expr, b: sympy.Expr) -> bool:
        """Take two sizes as equal from now on; False if they differ in the examples."""
        a, b = self.plain(a), self.plain(b)
        if self.hint(a) != self.hint(b) or len(self.rounded) > _MOST_ROUNDED:
            return False
        for least in (e for e in (a, b) if type(e).__name__ == "Min"):
            if len({*map(self.hint, least.args)}) == 1:
                # The diagonal of a square matrix is as long as both axes.
                first, *others = least.args
                return all(self.unify(first, e) for e in others) and self.unify(a, b)
        free = (a - b).free_symbols
        fixed = free if self._has_few_solutions(a - b) else self._fixed_by(a - b)
        if fixed:
            # Such as the sizes of the kernels of two convolutions before a residual is added.
            self.alike.update({s: sympy.Integer(self.hint(s)) for s in fixed})
            return all(map(self._rounds_again, fixed))
        # With a symbol known of which another one is rounded, both are known.
        parts = {s for x, own in self.rounded.items() if own in free for s in x.free_symbols}
        # What holds for all sizes says nothing of a size, and one quotient is made of the others.
        quotients = {*self.rounded.values()} & free
        only = quotients if quotients and self._always_holds(self._resolved(a - b)) else free
        # A size that is divided more often is a part, which its whole makes known.
        divisors = {own: self.hint(x.args[1]) for x, own in self.rounded.items()}
        for symbol in sorted(
            only, key=lambda s: (s not in parts, s in divisors, -divisors.get(s, 0), str(s))
        ):
            found = _symbol_solutions(a - b, symbol)
            if len(found) == 1 and symbol not in found[0].free_symbols:
                self.alike[symbol] = found[0]
                return self._rounds_again(symbol)
        return bool(sympy.simplify(a - b) == 0)

    def _has_few_solutions(self, e: sympy.Expr) -> bool:
        """True if e is a positive combination of sizes, without their quotients, less a number."""
        symbols = e.free_symbols
        if len(symbols) < 2 or _is_product(e) or not symbols.isdisjoint(self.rounded.values()):
            return False
        signs = {sympy.sign(sympy.expand(e).coeff(s)) for s in symbols}
        return signs in ({1}, {-1})

    def _fixed_by(self, e: sympy.Expr) -> set[sympy.Symbol]:
        """The sizes that make e = 0 as they are in the examples, whatever one other size is.

        As size(d) = size(o) = 3 in (n - size(d))//2 - size(o) - (n - 1)//2 + 4, with any n.
        """
        quotients = [x for x, own in self.rounded.items() if own in e.free_symbols]
        plain = all(x.args[1].is_Integer and not x.args[0].has(FloorDiv) for x in quotients)
        if not quotients or not plain or _is_product(e) or self._always_holds(self._resolved(e)):
            return set()
        e = self.meant(self._resolved(e))
        for symbol in sorted(e.free_symbols, key=str):
            others = {s: sympy.Integer(self.hint(s)) for s in e.free_symbols - {symbol}}
            rest = substitute_symbols(e, others)
            if others and rest.has(FloorDiv) and self._always_holds(rest):
                return {*others}
        return set()

    def _always_holds(self, e: sympy.Expr) -> bool:
        """True if e is 0 for all sizes, as n - n//2 - (n + 1)//2 is."""
        e = self.meant(e)
        symbols, random = sorted(e.free_symbols, key=str), Random(0)
        ways = ({s: sympy.Integer(random.randint(2, 30)) for s in symbols} for _ in range(20))
        with suppress(ZeroDivisionError, ValueError):
            return all(substitute_symbols(e, way) == 0 for way in ways)
        return False

    def _rounds_again(self, symbol: sympy.Symbol) -> bool:
        """Take each rounded quotient of a symbol that became known as equal to its new value."""
        asked = [(x, own) for x, own in self.rounded.items() if symbol in x.free_symbols]
        return all(
            self.plain(own) == (new := self.plain(x)) or self.unify(own, new) for x, own in asked
        )

    def are_known(self, e: sympy.Expr) -> bool:
        """True if the expression is made of sizes alone, without a number that a tensor holds."""
        symbols = set(self.meant(self._resolved(e)).free_symbols)
        return symbols <= set(self.shapes.backed_var_to_val)

    def hint(self, e: sympy.Expr, doubled: sympy.Symbol | None = None) -> Any:
        """Return the value in the examples, or where one size is twice as large."""
        values = {s: sympy.Integer(int(v)) for s, v in self.shapes.backed_var_to_val.items()}
        if doubled in values:
            values[doubled] *= 2
        found = substitute_symbols(self.meant(e), values)
        return int(found) if found.is_integer else found

    def equal(self, a: sympy.Expr, b: sympy.Expr) -> bool:
        a, b = self.plain(a), self.plain(b)
        if a == b:
            return True
        if a.is_Atom and b.is_Atom:
            return False
        if (a, b) not in self._equal:
            # Most differ at one point; it takes much longer to see that a difference is 0.
            e = a - b
            symbols = [] if e.has(sympy.Function) else sorted(e.free_symbols, key=str)
            at = e.xreplace({s: sympy.Integer(7 + 4 * n) for n, s in enumerate(symbols)})
            differs = at.is_Rational and at != 0
            self._equal[a, b] = not differs and bool(sympy.cancel(sympy.together(e)) == 0)
        return self._equal[a, b]

    def quotient(self, a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
        """Return a/b if it is an integer for all sizes, else None."""
        if b == 0 or self.hint(b) == 0:
            return None
        made = sympy.cancel(sympy.together(self.plain(a) / self.plain(b)))
        above, below = sympy.fraction(made)
        if below == 1 and sympy.sympify(self.hint(made)).is_integer:
            return made
        whole = below.is_Integer and self.hint(a) % self.hint(b) == 0
        return made if whole or (above, below) in self.divided else None

    def make_up(self, whole: sympy.Expr, parts: Sequence[sympy.Expr]) -> bool:
        """True if the product of the parts of an axis is its size for all sizes."""
        if len(parts) == 1:
            return True
        if any(sympy.fraction(sympy.together(part))[1] != 1 for part in parts):
            return False
        return self._always_holds(whole - sympy.prod(parts))

    def refined(
        self, one: Sequence[sympy.Expr], other: Sequence[sympy.Expr]
    ) -> tuple[list[list[int]], list[list[int]], list[sympy.Expr]]:
        """Split both lists of sizes into common factors, in order.

        Returns (the factors of each entry of ``one``, those of ``other``, the factors); the first
        two by number.
        """
        found = self._refined(one, other)
        if found is None and [*map(self.hint, one)] == [*map(self.hint, other)]:
            # The products are equal, and the factors are in the examples: unify the factors.
            if all(self.unify(a, b) for a, b in zip(one, other, strict=True)):
                found = self._refined(one, other)
        if found is None and self.unify(sympy.prod(one), sympy.prod(other)):
            found = self._refined(one, other)
        if found is None:
            hints = ([self.hint(n) for n in sizes] for sizes in (one, other))
            ours, theirs = (", ".join(map(str, sizes)) for sizes in hints)
            raise SizesUnread(
                f"axes of sizes ({ours}) cannot be viewed as ({theirs}) at all sizes like these"
            )
        return found

    def _refined(
        self, one: Sequence[sympy.Expr], other: Sequence[sympy.Expr]
    ) -> tuple[list[list[int]], list[list[int]], list[sympy.Expr]] | None:
        pieces: list[sympy.Expr] = []
        ours: list[list[int]] = [[] for _ in one]
        theirs: list[list[int]] = [[] for _ in other]
        i = j = 0
        a, b = (x[0] if x else None for x in (one, other))
        while a is not None and b is not None:
            if self.equal(a, b):
                piece, a, b = a, None, None
            elif (rest := self.quotient(a, b)) is not None:
                piece, a, b = b, rest, None
            elif (rest := self.quotient(b, a)) is not None:
                piece, a, b = a, None, rest
            else:
                break
            ours[i].append(len(pieces))
            theirs[j].append(len(pieces))
            pieces.append(piece)
            if a is None:
                i += 1
                a = one[i] if i < len(one) else None
            if b is None:
                j += 1
                b = other[j] if j < len(other) else None
        if a is not None or b is not None:
            return None
        return ours, theirs, pieces


def _fixed_symbol(guard: sympy.Expr) -> sympy.Symbol | None:
    """The only symbol of an equation that holds for its value in the example and few others.

    It is s in s//2 == 4. Some numbers made of a size are fixed by torch itself, as floats.
    """
    match guard:
        case sympy.Eq(lhs=left, rhs=sympy.Float() | sympy.Integer() as right) if (
            len(guard.free_symbols) == 1
            and (right.is_Float or (isinstance(left, FloorDiv) and left.args[1].is_Integer))
            and not left.has(functions.Mod, functions.PythonMod)
        ):
            return next(iter(guard.free_symbols))
    return None


def _is_product(e: sympy.Expr) -> bool:
    """True if sizes are multiplied with each other in e."""
    return any(len(term.free_symbols) > 1 for term in sympy.Add.make_args(sympy.expand(e)))


def substitute_symbols(e: Any, values: Mapping[Any, Any]) -> sympy.Expr:
    """Substitute these values for symbols of an expression, none of which is bound.

    Raises:
        ValueError: a size would be negative.
    """
    e = sympy.sympify(e)
    try:
        return e.xreplace(dict(values)) if values else e
    except AssertionError as error:
        # The functions of torch's sizes do not take a negative one.
        raise ValueError(f"a size would be {error}") from error


def _substituted_whole(e: Any, values: Mapping[Any, Any]) -> sympy.Expr:
    """Substitute values for symbols, also in the values."""
    e, new = None, sympy.sympify(e)
    while new != e:
        e = new
        new = substitute_symbols(e, {s: values[s] for s in e.free_symbols if s in values})
    return new


def _symbol_solutions(e: sympy.Expr, symbol: sympy.Symbol) -> list[Any]:
    """Solve e = 0 for a symbol; [] if it occurs in remainders, as in s + s % 2."""
    try:
        return list(sympy.solve(e, symbol))
    except NotImplementedError:
        return []


def _plain_numbers(e: sympy.Expr) -> sympy.Expr:
    """Replace torch's float functions of sizes by arithmetic."""
    as_plain = {
        "ToFloat": lambda a: a,
        "FloatPow": lambda a, b: a ** _half(b),
        "PowByNatural": lambda a, b: a**b,
        "FloatTrueDiv": lambda a, b: a / b,
        "IntTrueDiv": lambda a, b: a / b,
        "TruncToInt": _whole_part,
        "CeilToInt": _rounded_up,
        "OpaqueUnaryFn_sqrt": sympy.sqrt,
        "OpaqueUnaryFn_exp": sympy.exp,
        "OpaqueUnaryFn_log": sympy.log,
        "OpaqueUnaryFn_log2": lambda a: sympy.log(a) / sympy.log(2),
    }
    for name, make in as_plain.items():
        kind = getattr(functions, name, None)
        if kind is not None and e.has(kind):
            e = e.replace(kind, make)
    # A logarithm was traced as one to the base 2.
    base = {sympy.Float(math.log(2)): sympy.log(2)}
    return substitute_symbols(e, base) if e.has(sympy.log) else e


def _whole_part(a: sympy.Expr) -> sympy.Expr:
    """Return trunc of a multiple of a size, 1.5*n, as floor(3*n/2), if the float is exact."""
    factor, rest = a.as_coeff_Mul()
    if not factor.is_number or not (rest.is_integer and rest.is_nonnegative) or not factor > 0:
        return TruncToInt(a)
    exact = sympy.Rational(factor)
    return FloorDiv(exact.p * rest, exact.q) if exact.q <= 64 else TruncToInt(a)


def _rounded_up(a: sympy.Expr) -> sympy.Expr:
    """Return ceil of a multiple of a size, n/2, as floor((n + 1)/2), if the float is exact."""
    factor, rest = a.as_coeff_Mul()
    exact = sympy.Rational(factor)
    if not rest.is_integer or not factor.is_number or exact.q > 64:
        return CeilToInt(a)
    return FloorDiv(exact.p * rest + exact.q - 1, exact.q)


def is_one(size: Any) -> bool:
    """True if a number that torch makes of sizes is 1 for all sizes."""
    return bool(sympy.simplify(_plain_numbers(size.node.expr)) - 1 == 0)


def _half(e: sympy.Expr) -> sympy.Expr:
    """Return a multiple of 1/2 as a rational number."""
    twice = 2 * float(e) if e.is_number else 0.5
    return sympy.Rational(int(twice), 2) if twice.is_integer() else e


# -------------------------------------------------------------------- other branches


_SMALL = (4, 5, 3, 2, 6, 7, 8, 9)
_TRIED = 5000
_OVERFLOWS = 2**62
"""No tensor has so many elements."""
_NEAR = 20
"""Maximum number of sets of sizes of which two take another branch."""
_MOST = 4_000_000
"""Maximum number of elements of a tensor that is made to take another branch."""


def other_branches(
    sizes: SymbolicSizes,
    inputs: Mapping[str, TracedValue],
    hints: Mapping[Any, int],
    fits: Callable[[Mapping[Any, int]], bool],
) -> Iterator[tuple[dict[Any, int], str, bool]]:
    """Yield (fitting sizes at which a guard is false, the guard as text, if they are spare).

    Where a guard has just become false, both branches may agree, as those of min(n, 3) do at 3:
    other sizes follow, farther away. The other branch may take only inputs whose other sizes equal
    those of the guard: these are spare.
    """
    for asked in sizes.asked():
        near = [*islice(_falsified(asked, sizes, inputs, hints, fits), _NEAR)]
        ways = near[:1] + [w for w in near if _apart(asked, w) > _apart(asked, near[0])][:1]
        text, own = guard_text(asked, sizes, inputs), sorted(asked.free_symbols, key=str)
        yield from ((way, text, False) for way in ways)
        for way, n in ((way, n) for way in ways for n in dict.fromkeys(way[s] for s in own)):
            equal = {s: way[s] if s in own else n for s in way}
            if fits(equal) and not _guard_holds(asked, equal):
                yield equal, text, True


def _apart(asked: Any, way: Mapping[Any, int]) -> Any:
    """Return how much the sides of a guard differ at these sizes."""
    sides = [substitute_symbols(side, way) for side in asked.args[:2]]
    apart = sympy.sympify(abs(sides[0] - sides[1]) if asked.is_Relational else 0)
    return apart if apart.is_comparable else 0


def _falsified(
    asked: Any,
    sizes: SymbolicSizes,
    inputs: Mapping[str, TracedValue],
    hints: Mapping[Any, int],
    fits: Callable[[Mapping[Any, int]], bool],
) -> Iterator[dict[Any, int]]:
    symbols = sorted(asked.free_symbols, key=str)
    around = {int(c) + d for c in asked.atoms(sympy.Integer) for d in (-1, 0, 1)}
    tried = [n for n in dict.fromkeys((*_SMALL, *sorted(around))) if n >= 2]
    large = found = False
    holds = _quick(asked, symbols)
    for values in islice(product(tried, repeat=len(symbols)), _TRIED):
        if holds(values):
            continue
        way = {**hints, **dict(zip(symbols, values, strict=True))}
        if not fits(way) or _guard_holds(asked, way):
            continue
        counts = (
            sympy.prod([sizes.value(sizes.plain(a.size), way) for a in v.atoms])
            for v in inputs.values()
        )
        if all(n <= _MOST for n in counts):
            found = True
            yield way
        else:
            large = True
    if large and not found:
        guard = guard_text(asked, sizes, inputs)
        if hasattr(asked, "gts"):
            is_strict = isinstance(asked, sympy.StrictLessThan | sympy.StrictGreaterThan)
            sizes.at_least(asked.gts - asked.lts - int(is_strict))
            sizes.unreached.append(guard)
            return
        raise DeriveError(
            f"the branch for sizes where {guard} cannot be checked, "
            "because its tensors would be too large; write the branch as a function of its own",
            kind="reading-differs",
        )


def _quick(asked: Any, symbols: Sequence[Any]) -> Callable[[Sequence[int]], bool]:
    """Return a function that evaluates a guard in plain Python; False if it cannot."""
    down = {"FloorDiv": lambda a, b: a // b, "CeilDiv": lambda a, b: -(-a // b)}
    try:
        compiled = sympy.lambdify(symbols, asked, modules=[down, "math"])
    except Exception:
        return lambda values: False

    def holds(values: Sequence[int]) -> bool:
        try:
            return compiled(*values) is True
        except Exception:
            return False

    return holds


def _guard_holds(asked: Any, way: Mapping[Any, int]) -> bool:
    """True if a guard holds or is undefined.

    It is undefined if it divides by 0, or if a part of an axis would be no integer.
    """
    try:
        return bool(substitute_symbols(asked, way) != sympy.false)
    except (ZeroDivisionError, ValueError):
        return True


class _WithQuotients(PythonPrinter):
    _print_Mul, _print_Pow = StrPrinter._print_Mul, StrPrinter._print_Pow


def guard_text(asked: Any, sizes: SymbolicSizes, inputs: Mapping[str, TracedValue]) -> str:
    """Return that a guard is false, in terms of the shapes of inputs, with its statement."""
    names: dict[Any, Any] = {}
    for name, value in inputs.items():
        for n, axis in enumerate(value.axes):
            for a in axis:
                size = sizes.plain(a.size)
                if size.is_Symbol:
                    names.setdefault(size, sympy.Symbol(f"{name}.shape[{n}]", integer=True))
    names |= {x: sympy.Symbol(repr(float(x))) for x in asked.atoms(sympy.Float)}
    text = _WithQuotients().doprint(substitute_symbols(asked, names))
    place = sizes.asked().get(asked)
    return f"{text} is false ({place})" if place else f"{text} is false"
