"""Translate SymPy expressions to the syntax tree of `derive.notation.syntax`."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from fractions import Fraction
from math import isinf, isnan
from typing import Any, NoReturn

import sympy
from sympy import Idx, Indexed, Symbol
from sympy.codegen import cfunctions
from sympy.core.relational import Relational
from sympy.core.sympify import _sympify
from sympy.logic.boolalg import BooleanAtom

from derive.algebra.functions import FUNCTIONS, POWERS
from derive.errors import SpecError
from derive.notation import heads, syntax
from derive.notation.advice import ADVICE
from derive.notation.sympy_names import Names, Order, label, text_of
from derive.notation.syntax import Raw, fail

_FUNCTIONS: dict[Any, str] = {
    made: row.name
    for row in FUNCTIONS.values()
    for made in (
        getattr(cfunctions, row.name, None),
        row.sympy and getattr(sympy, row.sympy),
        row.head and getattr(heads, row.head),
    )
    if made and row.written
}
"""The SymPy class of each scalar function."""

_INSTEAD = {
    "Heaviside": "Iverson(x > 0), which defines the value at 0",
    "gamma": "exp(lgamma(x))",
    "ceiling": "-floor(-x)",
    "Derivative": "the derivative itself",
    "Integral": "Sum",
    "ImaginaryUnit": "real numbers; SymPy evaluates sqrt(-1) to I",
    "ComplexInfinity": "oo or -oo; SymPy evaluates 1/0 and log(0) to zoo",
    "NaN": "a number; SymPy evaluates 0*oo and oo - oo to nan",
}
"""Unsupported SymPy name to what to write instead."""


_ROOTS = {exponent: name for name, exponent in POWERS.items() if exponent != 2}

_LARGEST_DENOMINATOR = 100
"""Beyond it a number that is multiplied is a decimal, where it has one."""

_BITS = 1024
"""Every number of float64 has fewer before its point."""
_BEYOND = "a number is out of the range of float64 (above 1.8e308 or below 1/1.8e308)"


def number(value: Any) -> Raw:
    """Return a constant from a Python or SymPy number; floats become their shortest decimal."""
    if isinstance(value, bool):
        raise SpecError(f"{value} is not a number; give a number", kind="sympy-expression")
    if isinstance(value, int | Fraction):
        exact = Fraction(value)
        if max(abs(exact.numerator), exact.denominator).bit_length() > _BITS:
            raise SpecError(_BEYOND, kind="not-finite")
        return syntax.NumberSyntax(exact, isinstance(value, int))
    if isinstance(value, float):
        if isnan(value):
            raise SpecError("an operation cannot contain nan", kind="not-finite")
        if isinf(value):
            return number(sympy.oo if value > 0 else -sympy.oo)
        return syntax.NumberSyntax(Fraction(repr(value)), False)
    if isinstance(value, sympy.Float):
        if isinf(float(value)) or (value != 0 and float(value) == 0):
            raise SpecError(_BEYOND, kind="not-finite")
        return number(float(value))
    if isinstance(value, sympy.Rational):
        fraction = Fraction(int(value.p), int(value.q))
        return number(int(fraction) if value.is_integer else fraction)
    if value is sympy.pi:
        return syntax.NameSyntax("pi")
    if value is sympy.oo:
        return syntax.NameSyntax("inf")
    if value is -sympy.oo:
        return syntax.Negative(syntax.NameSyntax("inf"))
    raise SpecError(f"{value!r} is not a number; give a number, pi or oo", kind="sympy-expression")


class Terms:
    """Translates the expressions of one operation; ``at`` is the equation, for messages."""

    def __init__(self, names: Names, order: Order) -> None:
        self.names = names
        self.order = order
        self.at: syntax.SourcePlace | None = None

    def value(self, e: Any) -> Raw:
        """Translate a number or a condition."""
        if e is not sympy.nan and (e.is_Number or e is sympy.pi):
            return number(e)
        if e is sympy.E:
            return syntax.ApplySyntax("exp", (syntax.NumberSyntax(Fraction(1)),))
        if e is sympy.EulerGamma:  # what SymPy makes of digamma(1)
            digamma = syntax.ApplySyntax("digamma", (syntax.NumberSyntax(Fraction(1)),))
            return syntax.Negative(digamma)
        for kind, translate in _TABLE:
            if isinstance(e, kind):
                return translate(self, e)
        name = type(e).__name__
        if type(e) in _FUNCTIONS:
            return syntax.ApplySyntax(_FUNCTIONS[type(e)], tuple(map(self.value, e.args)))
        hint = f"; write {_INSTEAD[name]}" if name in _INSTEAD else ""
        hint = f"; {ADVICE[name]}" if name in ADVICE else hint
        self._refuse(f"SymPy's {name} in {e} is not supported{hint}")

    def _refuse(self, message: str) -> NoReturn:
        fail(self.at, "sympy-expression", message)

    def index(self, e: Any) -> Raw:
        """Translate an index or a group."""
        e = label(e)
        if isinstance(e, heads.Group):
            return syntax.Star(_normalised_name(e))
        if isinstance(e, Symbol):
            return syntax.NameSyntax(_normalised_name(e))
        self._refuse(f"{e} is not an index; give a symbol")

    def position(self, e: Any) -> Raw:
        """Translate a position on an axis."""
        if isinstance(e, Idx | heads.Group):
            return self.index(e)
        if isinstance(e, heads.Composite | sympy.Tuple | tuple):
            parts = e if isinstance(e, tuple) else e.args
            return syntax.CompositeSyntax(tuple(map(self.position, parts)))
        made = self.value(_sympify(e))
        return syntax.whole_quotients(made) if e.has(sympy.floor) else made

    # one method for each kind of node

    def _symbol(self, e: Any) -> Raw:
        is_size = isinstance(e, heads.SizeSymbol)
        letter = e.letter if is_size else self.names.sizes.get(e.name)
        if letter is None:
            return self.index(e)
        return syntax.ApplySyntax("size", (syntax.NameSyntax(letter),))

    def _indexed(self, e: Any) -> Raw:
        positions = tuple(self.position(index) for index in e.indices)
        return syntax.Item(_normalised_name(e.base.label), positions)

    def _add(self, e: Any) -> Raw:
        """Translate a sum: positive terms first, then negative ones."""
        terms = sorted((self._signed(t) for t in self.order.terms(e)), key=lambda t: t[0])
        return syntax.Sum(tuple(terms))

    def _signed(self, e: Any) -> tuple[bool, Raw]:
        if e.is_Number:
            return (True, self.value(-e)) if e < 0 else (False, self.value(e))
        coefficient, rest = e.as_coeff_Mul()
        if coefficient < 0:
            rest = self.value(rest)
            if coefficient == -1:
                return True, rest
            above, below = self._parts(-coefficient)
            inner = rest.factors if isinstance(rest, syntax.Product) else ((False, rest),)
            return True, syntax.Product((*above, *inner, *below))
        return False, self.value(e)

    def _parts(self, number: Any) -> tuple[list[tuple[bool, Raw]], list[tuple[bool, Raw]]]:
        """Split a number p/q: p in front of the other factors, q as the last divisor."""
        if not (isinstance(number, sympy.Rational) and 1 < number.q <= _LARGEST_DENOMINATOR):
            return [(False, self.value(number))], []
        above = [(False, self.value(sympy.Integer(number.p)))] * (number.p != 1)
        return above, [(True, self.value(sympy.Integer(number.q)))]

    def _mul(self, e: Any) -> Raw:
        factors: list[tuple[bool, Raw]] = []
        below: list[tuple[bool, Raw]] = []
        for factor in self.order.factors(e):
            if factor.is_Number:
                above, below = self._parts(factor)
                factors += above
            elif isinstance(factor, sympy.Pow) and factor.exp is sympy.S.NegativeOne:
                factors.append((True, self.value(factor.base)))
            else:
                factors.append((False, self.value(factor)))
        factors += below
        (_, first), *rest = factors
        if first == syntax.NumberSyntax(Fraction(-1)) and rest and not rest[0][0]:
            rest[0] = (False, syntax.Negative(rest[0][1]))
            factors = rest
        return syntax.Product(tuple(factors))

    def _pow(self, e: Any) -> Raw:
        if e.base is sympy.E:
            return syntax.ApplySyntax("exp", (self.value(e.exp),))
        if isinstance(e.base, heads.Iverson) and e.exp.is_positive:
            # SymPy distributes powers over products; a bracket must stay a plain factor to guard.
            return self.value(e.base)
        root = _root_of_absolute_square(e.base) if (2 * e.exp).is_odd else None
        if root is not None:
            absolute = syntax.ApplySyntax("abs", (self.value(root),))
            power = self.value(2 * e.exp)
            return absolute if 2 * e.exp == 1 else syntax.Power(absolute, power)
        if e.exp.is_Rational and Fraction(int(e.exp.p), int(e.exp.q)) in _ROOTS:
            name = _ROOTS[Fraction(int(e.exp.p), int(e.exp.q))]
            return syntax.ApplySyntax(name, (self.value(e.base),))
        if e.exp is sympy.S.NegativeOne:
            over = ((False, syntax.NumberSyntax(Fraction(1))), (True, self.value(e.base)))
            return syntax.Product(over)
        return syntax.Power(self.value(e.base), self.value(e.exp))

    def _reduction(self, e: Any) -> Raw:
        """Translate Sum and Product; limits of a partial range become conditions."""
        kind = "sum" if isinstance(e, sympy.Sum) else "prod"
        body = self.value(e.function)
        indices: list[Raw] = []
        conditions: list[Raw] = []
        for index, lower, upper in e.limits:
            new = self.index(index)
            if new in indices:
                body = self._bind(kind, indices, conditions, body)
                indices, conditions = [], []
            indices.append(new)
            conditions += self._limits(index, lower, upper)
        return self._bind(kind, indices, conditions, body)

    def _limits(self, index: Any, lower: Any, upper: Any) -> list[Raw]:
        index = label(index)
        starred = isinstance(index, heads.Group)
        name = self.index(index)
        found: list[Raw] = []
        if upper is sympy.oo:
            self._refuse(f"limits ({index}, {lower}, oo): write {index} alone for the whole axis")
        if lower != 0:
            known = {*self.names.indices, *self.names.others}
            one_based = isinstance(upper, Symbol) and upper.name not in known
            if lower == 1 and one_based and not isinstance(upper, heads.SizeSymbol):
                self._refuse(
                    f"limits ({index}, 1, {upper}): indices start at 0; write ({index}, 0, "
                    f"{upper} - 1) or {index} alone"
                )
            found.append(syntax.Compare(self.value(lower), (("<=", name),)))
        if not self.names.whole(upper) or (lower != 0 and upper.is_Integer):
            found.append(syntax.Compare(name, (("<=", self.value(upper)),)))
        if found and starred:
            self._refuse(f"group *{index} has no limits; sum over all of it")
        return found

    def _bind(self, kind: str, indices: list[Raw], conditions: list[Raw], body: Raw) -> Raw:
        condition: Raw | None = None
        if conditions:
            condition = conditions[0] if len(conditions) == 1 else syntax.Both(tuple(conditions))
        return syntax.Bind(kind, tuple(indices), condition, (body,))

    def _head(self, e: Any) -> Raw:
        function, indices, condition = e.args
        where = None if condition in (True, sympy.true) else self.value(condition)
        return syntax.Bind(e.kind, tuple(map(self.index, indices)), where, (self.value(function),))

    def _concat(self, e: Any) -> Raw:
        index, *parts = e.args
        return syntax.Bind("concat", (self.index(index),), None, tuple(map(self.value, parts)))

    def _piecewise(self, e: Any) -> Raw:
        *cases, (last, otherwise) = e.args
        if otherwise not in (True, sympy.true):
            self._refuse(f"{e} has no last case; end it with (..., True)")
        if len(cases) == 1 and cases[0][0] == 1 and last == 0:
            return syntax.Bracket(self.value(cases[0][1]))
        result = self.value(last)
        for value, condition in reversed(cases):
            args = (self.value(condition), self.value(value), result)
            result = syntax.ApplySyntax("where", args)
        return result

    def _delta(self, e: Any) -> Raw:
        a, b = map(self.value, sorted(e.args[:2], key=lambda side: bool(side.is_number)))
        return syntax.Bracket(syntax.Compare(a, (("==", b),)))

    def _relation(self, e: Any) -> Raw:
        if e.lhs.is_number or (e.rhs.has(Indexed) and not e.lhs.has(Indexed)):
            e = e.reversed  # SymPy orders the two sides; tensors read better on the left
        left, right = self.value(e.lhs), self.value(e.rhs)
        return syntax.Compare(left, ((e.rel_op, right),))

    def _logic(self, e: Any) -> Raw:
        parts = tuple(map(self.value, e.args))
        if isinstance(e, sympy.Not):
            return syntax.Negation(parts[0])
        return (syntax.Both if isinstance(e, sympy.And) else syntax.Either)(parts)

    def _if_then_else(self, e: Any) -> Raw:
        """ITE(c, a, b) = (c and a) or (not c and b), whose conditions guard in this order."""
        c, a, b = map(self.value, e.args)
        no = syntax.Negation(c)
        return syntax.Either((syntax.Both((c, a)), syntax.Both((no, b))))

    def _extreme(self, e: Any) -> Raw:
        name = "maximum" if isinstance(e, sympy.Max) else "minimum"
        first, *rest = sorted(e.args, key=lambda a: bool(a.is_Number))
        result = self.value(first)
        for arg in rest:
            result = syntax.ApplySyntax(name, (result, self.value(arg)))
        return result

    def _reciprocal(self, e: Any) -> Raw:
        """cot x = 1/tan x, and so on."""
        (x,) = e.args
        return self.value(1 / _RECIPROCALS[type(e)](x))

    def _polygamma(self, e: Any) -> Raw:
        order, x = e.args
        if order != 0:
            self._refuse(f"{e}: digamma is the only supported polygamma function")
        return syntax.ApplySyntax("digamma", (self.value(x),))

    def _tensor(self, e: Any) -> Raw:
        self._refuse(f"tensor {e} has no indices; write {e}[...], or use a Symbol for a number")


_RECIPROCALS = {
    **{sympy.cot: sympy.tan, sympy.sec: sympy.cos, sympy.csc: sympy.sin},
    **{sympy.coth: sympy.tanh, sympy.sech: sympy.cosh, sympy.csch: sympy.sinh},
}

_TABLE: tuple[tuple[Any, Callable[[Terms, Any], Raw]], ...] = (
    (Idx, Terms.index),
    (Symbol, Terms._symbol),
    (Indexed, Terms._indexed),
    (sympy.Add, Terms._add),
    (sympy.Mul, Terms._mul),
    (sympy.Pow, Terms._pow),
    (sympy.Sum | sympy.Product, Terms._reduction),
    (heads.Head, Terms._head),
    (heads.Concat, Terms._concat),
    (sympy.Piecewise, Terms._piecewise),
    (sympy.KroneckerDelta, Terms._delta),
    (Relational, Terms._relation),
    (sympy.And | sympy.Or | sympy.Not, Terms._logic),
    (sympy.ITE, Terms._if_then_else),
    (BooleanAtom, lambda _, e: syntax.ApplySyntax("true" if e else "false", ())),
    (sympy.Max | sympy.Min, Terms._extreme),
    (sympy.Mod, lambda terms, e: syntax.rest(*map(terms.value, e.args))),
    (tuple(_RECIPROCALS), Terms._reciprocal),
    (sympy.polygamma, Terms._polygamma),
    # Every tensor is real. SymPy's |exp(x)| is exp(re(x)), and |exp(sin(x))| has an im(x).
    (sympy.re | sympy.conjugate | heads.Holds, lambda terms, e: terms.value(e.args[0])),
    (sympy.im, lambda *_: syntax.NumberSyntax(Fraction(0))),
    (heads.Iverson, lambda terms, e: syntax.Bracket(terms.value(e.args[0]))),
    (sympy.IndexedBase, Terms._tensor),
)
"""Node class and its translation, the first that fits."""


def _root_of_absolute_square(e: Any) -> Any:
    """Return z if e is z*conjugate(z) expanded, as SymPy writes |z|**2; else None.

    SymPy does so if it cannot prove that an index of z, size(k) - 1 - k, is its own conjugate.
    """
    if not e.has(sympy.conjugate):
        return None
    same = e.replace(Indexed, lambda base, *at: Indexed(base, *map(_expanded, at)))
    try:
        coefficient, factors = sympy.factor_list(same.replace(sympy.conjugate, lambda z: z))
    except sympy.PolynomialError:
        return None
    if coefficient.is_negative or any(power % 2 for _, power in factors):
        return None
    return sympy.Mul(sympy.sqrt(coefficient), *(f ** (power // 2) for f, power in factors))


def _expanded(position: Any) -> Any:
    return sympy.expand(position) if isinstance(position, sympy.Add | sympy.Mul) else position


def _normalised_name(symbol: Any) -> str:
    return unicodedata.normalize("NFKC", text_of(symbol))
