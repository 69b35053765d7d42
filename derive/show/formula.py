"""Print expressions and equations as Unicode, LaTeX and MathML, the way an expert writes them.

One printer walks the expression and decides order, signs, fractions and parentheses from a
table of precedence; a style holds what differs between the targets. Bound indices with machine
names (``_0``), and those that collide with a name in scope, are renamed: k, k′, k″.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Container, Mapping, Sequence
from fractions import Fraction
from itertools import count

from derive.algebra import expr as ex
from derive.algebra.affine import remainder
from derive.algebra.poly import base_and_power, raised
from derive.algebra.substitution import primed, replace, substitute, substitution
from derive.show.identities import AxisFunction
from derive.show.legible import ascending, displayed, is_interval
from derive.show.mathml import MathML
from derive.show.typeset import Latex, Style

_OR, _AND, _NOT, _REL, _ADD, _MUL, _POW, _ATOM = range(8)
"""Precedence, loosest first. A prefix operator (Σ, Π) reaches as far as a product."""

_PREFIX = {"sum", "prod"}
_LARGEST_DENOMINATOR = 100
"""A number with a larger denominator prints as a decimal, if it is one: 0.044715."""
_ZEROS = 4
"""A number below 10**-_ZEROS prints as 1e-12, not 0.000000000001."""
_DIGITS = 17
_DIGITS_OF_SINGLE = 9

STYLES: Mapping[str, Style] = {"unicode": Style(), "latex": Latex(), "mathml": MathML()}
"""The targets, by name."""


def unicode(e: ex.Expr) -> str:
    """e as text: ``Σₖ A[i,k]·B[k,j]``."""
    return _expression(e, "unicode")


def latex(e: ex.Expr) -> str:
    r"""e as LaTeX (with amsmath): ``\sum_{k} A_{i,k} \, B_{k,j}``."""
    return _expression(e, "latex")


def mathml(e: ex.Expr) -> str:
    """e as a MathML element."""
    return _expression(e, "mathml")


def equation(
    name: str, axes: Sequence[ex.Expr], body: ex.Expr, style: str | Style = "unicode"
) -> str:
    """name[axes] = body in the style ``unicode``, ``latex`` or ``mathml``, or one of its own."""
    target = STYLES[style] if isinstance(style, str) else style
    return target.whole(target.relations["=="].join(sides(name, axes, body, style)))


def sides(name: str, axes: Sequence[ex.Expr], body: ex.Expr, style: str | Style) -> tuple[str, str]:
    """Return the left and the right side of the equation name[axes] = body."""
    left, right = _display_letters(ex.Access(name, tuple(axes)), displayed(body))
    right = _in_order_of(left, right)
    printer = _Printer(STYLES[style] if isinstance(style, str) else style)
    return printer.text(left), printer.text(right)


def _expression(e: ex.Expr, style: str) -> str:
    target = STYLES[style]
    (shown,) = _display_letters(displayed(e))
    return target.whole(_Printer(target).text(shown))


def _in_order_of(left: ex.Expr, e: ex.Expr) -> ex.Expr:
    """Order the indices of each delta as the axes on the left."""
    letters = [i for i in ex.walk(left) if isinstance(i, ex.Index)]
    places: dict[ex.Expr, int] = {i: n for n, i in enumerate(letters)}

    def turned(part: ex.Expr) -> ex.Expr | None:
        if not isinstance(part, ex.Delta) or {part.axis, part.position} - places.keys():
            return None
        return ex.Delta(*sorted((part.axis, part.position), key=places.__getitem__))

    return replace(e, turned)


# Names for display


def _display_letters(*expressions: ex.Expr) -> list[ex.Expr]:
    """Rename machine names to letters, and bound indices that shadow a name in scope."""
    every = [e for expression in expressions for e in ex.walk(expression)]
    taken = {e.tensor for e in every if isinstance(e, ex.Access)}
    taken |= {e.name for e in every if isinstance(e, ex.Param)}
    free: dict[ex.Index, None] = {}
    for expression in expressions:
        outside = ex.free_indices(expression)
        free |= {i: None for i in ex.walk(expression) if isinstance(i, ex.Index) and i in outside}
    taken |= {i.name for i in free if not _is_machine(i)}
    renaming: dict[ex.Index, ex.Expr] = {}
    for index in free:
        if _is_machine(index):
            renaming[index] = new = _unused_letter(index, taken)
            taken.add(new.name)
    return [_relabel(substitute(e, renaming), frozenset(taken)) for e in expressions]


def _is_machine(index: ex.Index) -> bool:
    return index.name.startswith("_")


def _unused_letter(index: ex.Index, taken: Container[str]) -> ex.Index:
    """Rename an index to its own letter, or its extent's, with primes until it is new."""
    name = index.name.partition("#")[0].rstrip("'")
    if name.startswith("_"):
        name = index.extent.strip("_'") or "i"
    return ex.Index(primed(name, taken), index.extent, index.group)


def _relabel(e: ex.Expr, taken: frozenset[str]) -> ex.Expr:
    """Rename each bound index to a letter that is free in its scope."""
    if isinstance(e, ex.Reduce):
        renaming: dict[ex.Index, ex.Expr] = {}
        for index in e.indices:
            renaming[index] = new = _unused_letter(index, taken)
            taken |= {new.name}
        e = e.map(substitution(renaming))
    result: ex.Expr = e.map(lambda part: _relabel(part, taken))
    return result


class _Printer:
    """Decides order, signs, fractions and parentheses; the style puts the texts together."""

    def __init__(self, style: Style) -> None:
        self.style = style

    def text(self, e: ex.Expr, least: int = _OR) -> str:
        """e, in parentheses where it binds looser than ``least``."""
        text, precedence = self.show(e)
        return text if precedence >= least else self.style.fence(text)

    def inside(self, e: ex.Expr, least: int) -> str:
        """Return e without parentheses if the style encloses it (fractions, roots)."""
        return self.text(e, _OR if self.style.encloses else least)

    def show(self, e: ex.Expr) -> tuple[str, int]:
        """Return the text of e and its precedence."""
        style = self.style
        match e:
            case ex.Num() | ex.Mul() | ex.Pow(_, ex.Num()):
                return self.product(e)
            case ex.Add():
                return self.sum(e)
            case ex.Const(name):
                return style.constants.get(name, name), _ATOM
            case ex.Index(name) | ex.Param(name):
                return style.name(name), _ATOM
            case ex.Size(extent):
                return style.size(style.name(extent)), _ATOM
            case ex.Access(tensor, positions):
                return style.access(tensor, [self.position(p) for p in positions]), _ATOM
            case ex.Delta(axis, position):
                return style.delta([self.position(axis), self.position(position)]), _ATOM
            case ex.Composite():
                return self.position(e), _ATOM
            case ex.Pow(base, exponent) | ex.Call("pow", (base, exponent)):
                return self.power(base, exponent)
            case ex.Call("floordiv", (a, b)):
                quotient = style.fraction(self.inside(a, _MUL), self.inside(b, _POW))
                return style.call("floor", [quotient]), _ATOM
            case ex.Call(function, args):
                return style.call(function, [self.text(a) for a in args]), _ATOM
            case ex.Reduce():
                return self.reduction(e)
            case AxisFunction(kind, indices, body, condition):
                return self.operator(kind, indices, condition) + style.fence(self.text(body)), _ATOM
            case ex.Where(condition, then, other):
                return style.where(*map(self.text, (condition, then, other))), _ATOM
            case ex.Iverson(condition):
                return style.fence(self.text(condition), "[", "]"), _ATOM
            case ex.Rel(op, left, right):
                sides = self.text(left, _ADD), self.text(right, _ADD)
                return style.relations[op].join(sides), _REL
            case ex.And(args):
                return self.conjunction(args)
            case ex.Or(args):
                return style.disjunction.join(self.text(a, _AND) for a in args) or "false", _OR
            case ex.Not(arg):
                return style.negation + self.text(arg, _ATOM), _NOT
        raise TypeError(f"{type(e).__name__} cannot be printed; convert it to a tree first: {e}")

    def conjunction(self, args: Sequence[ex.Expr]) -> tuple[str, int]:
        """Print a conjunction; a ≤ x and x ≤ b becomes a chain."""
        texts: list[str] = []
        left = list(args)
        while left:
            first = left.pop(0)
            ends = [b for b in left if is_interval(first, b)]
            if not ends:
                texts.append(self.text(first, _NOT))
                continue
            left.remove(ends[0])
            text = self.text(ascending(first)[0], _ADD)
            for c in (first, ends[0]):
                assert isinstance(c, ex.Rel)
                sign = c.op if c.op in ("<", "<=") else ex.MIRRORED[c.op]
                text += self.style.relations[sign] + self.text(ascending(c)[1], _ADD)
            texts.append(text)
        precedence = _AND if len(texts) > 1 else _REL
        return self.style.conjunction.join(texts) or "true", precedence

    def position(self, e: ex.Expr) -> str:
        """Print a position of an access; groups and composites are marked."""
        if isinstance(e, ex.Composite):
            return self.style.composite([self.part(part) for part in e.args])
        if isinstance(e, ex.Index) and e.group:
            return self.style.group(self.style.name(e.name))
        return self.text(e)

    def part(self, e: ex.Expr) -> str:
        """Print a position on one part of a composite axis: ((1 − r) d)."""
        starred = isinstance(e, ex.Index | ex.Composite)
        return self.position(e) if starred else self.text(e, _ATOM)

    def sum(self, e: ex.Add) -> tuple[str, int]:
        """Print a sum: positive terms, then negative ones, then terms with a Σ.

        A constant follows a difference of tensors: a − b + eps. A positive term comes first, and
        a mean before a multiple of another. x - n*floor(x/n) is x mod n.
        """
        if found := remainder(e):
            return self.style.modulo.join(self.text(part, _POW) for part in found), _MUL
        terms = [_split_product(term) for term in ex.flat_operands(e, ex.Add)]
        mixed = len({term.coefficient < 0 for term in terms if term.varies}) == 2
        terms.sort(key=lambda t: (bool(t.prefixed), mixed and not t.varies, t.coefficient < 0))
        means = [n for n, t in enumerate(terms) if t.reduces and not t.prefixed]
        order = sorted((terms[n] for n in means), key=lambda t: (t.coefficient < 0, t.reduces))
        for n, t in zip(means, order, strict=True):
            terms[n] = t
        first = next((term for term in terms if term.coefficient > 0), None)
        terms.sort(key=lambda term: first is not None and term is not first)
        text = ""
        for n, term in enumerate(terms):
            plus, minus = (self.style.plus, self.style.minus) if n else ("", self.style.negative)
            text += (minus if term.coefficient < 0 else plus) + self.term(term)
        return (text, _ADD) if terms else (self.style.number("0"), _ATOM)

    def product(self, e: ex.Expr) -> tuple[str, int]:
        """Print coefficient*factors/divisors*sums, the sign in front."""
        parts = _split_product(e)
        if parts.coefficient < 0:
            return self.style.negative + self.term(parts), _ADD
        return self.magnitude(parts)

    def term(self, parts: _ProductParts) -> str:
        """Print the magnitude after a sign: -(a + b), a - (b + c)."""
        text, precedence = self.magnitude(parts)
        least = _MUL if parts.coefficient < 0 else _ADD
        return text if precedence >= least else self.style.fence(text)

    def magnitude(self, parts: _ProductParts) -> tuple[str, int]:
        """Print |coefficient|*factors/divisors*prefixed."""
        style = self.style
        size = abs(parts.coefficient)
        top, bottom = list(parts.factors), list(parts.divisors)
        decimal = _decimal(size)
        number = decimal or str(size.numerator)
        if decimal is None and size.denominator != 1:
            bottom.insert(0, ex.num(size.denominator))
        lone = not (top or bottom or parts.prefixed)
        texts = [style.number(number)] if number != "1" or lone else []
        pieces = len(texts) + len(top)
        if bottom:
            alone = pieces <= 1
            texts += [self.inside(f, _MUL) if alone else self.text(f, _POW) for f in top]
            above = style.times.join(texts) or style.number("1")
            if len(bottom) == 1:
                below = self.inside(bottom[0], _POW)
            else:
                below = style.times.join(self.factors(bottom))
                below = below if style.encloses else style.fence(below)
            texts = [style.fraction(above, below)]
        elif pieces == 1 and not parts.prefixed:
            return (texts[0], _ATOM) if texts else self.factor(top[0])
        else:
            texts += [self.text(factor, _POW) for factor in top]
        texts += self.factors(parts.prefixed)
        return style.times.join(texts), _MUL

    def factors(self, every: Sequence[ex.Expr]) -> list[str]:
        """Print the factors of a product, Σ and Π last; several of these are in parentheses."""
        prefixed = [factor for factor in every if _is_prefixed(factor)]
        least = _MUL if len(prefixed) == 1 else _ATOM
        texts = [self.text(factor, _POW) for factor in every if not _is_prefixed(factor)]
        return texts + [self.text(factor, least) for factor in prefixed]

    def factor(self, e: ex.Expr) -> tuple[str, int]:
        """Print a single factor that is neither a number nor a product."""
        return self.power(e.base, e.exponent) if isinstance(e, ex.Pow) else self.show(e)

    def power(self, base: ex.Expr, exponent: ex.Expr) -> tuple[str, int]:
        if exponent is ex.num(Fraction(1, 2)):
            return self.style.root(self.text(base), isinstance(base, ex.Num | ex.Const)), _ATOM
        _, precedence = self.show(exponent)
        above = self.text(exponent)
        return self.style.power(self.text(base, _ATOM), above, precedence == _ATOM), _POW

    def reduction(self, e: ex.Reduce) -> tuple[str, int]:
        operator = self.operator(e.kind, e.indices, e.condition)
        if e.kind in _PREFIX:
            return self.style.prefix(operator, self.text(e.body, _MUL)), _MUL
        return operator + self.style.fence(self.text(e.body)), _ATOM

    def operator(self, kind: str, indices: Sequence[ex.Index], condition: ex.Expr | None) -> str:
        """Print the sign of a reduction, or of a softmax, with its indices and condition."""
        letters = [self.position(index) for index in indices]
        under = None if condition is None else self.text(condition)
        return self.style.operator(kind, letters, under)


class _ProductParts:
    """A product taken apart: coefficient * factors / divisors * prefixed (Σ and Π)."""

    def __init__(self) -> None:
        self.coefficient = Fraction(1)
        self.factors: list[ex.Expr] = []
        self.divisors: list[ex.Expr] = []
        self.prefixed: list[ex.Expr] = []

    @property
    def reduces(self) -> int:
        """The number of factors beside a mean or an extremum; 0 without one."""
        reduced = any(isinstance(f, ex.Reduce) for f in self.factors)
        return reduced * (len(self.factors) + len(self.divisors))

    @property
    def varies(self) -> bool:
        """True if the product contains a tensor or an index."""
        parts = (p for e in (*self.factors, *self.divisors, *self.prefixed) for p in ex.walk(e))
        return any(isinstance(p, ex.Access | ex.Index) for p in parts)


def _is_prefixed(e: ex.Expr) -> bool:
    """True of a Σ or Π, which reaches as far as the product does."""
    return isinstance(e, ex.Reduce) and e.kind in _PREFIX


def _split_product(e: ex.Expr) -> _ProductParts:
    parts = _ProductParts()
    for factor in ex.flat_operands(e, ex.Mul):
        if isinstance(factor, ex.Num):
            parts.coefficient *= factor.value
        elif _is_prefixed(factor):
            parts.prefixed.append(factor)
        elif (power := base_and_power(factor)[1]) < 0:
            parts.divisors.append(raised(base_and_power(factor)[0], -power))
        else:
            parts.factors.append(factor)
    parts.factors.sort(key=_factor_rank)
    parts.divisors.sort(key=_factor_rank)
    return parts


def _factor_rank(factor: ex.Expr) -> int:
    """Sort key: numbers before masks before everything else."""
    base, _ = base_and_power(factor)
    if isinstance(base, ex.Num | ex.Const) or isinstance(factor, ex.Size | ex.Param):
        return 0
    return 1 if isinstance(factor, ex.Iverson) else 2


def _decimal(value: Fraction) -> str | None:
    """Return the digits of a finite decimal with a large denominator, at most those of float64.

    A number with more digits is a float: return the shortest text that parses to the same float32
    (large numbers only), or else to the same float64.
    """
    if value.denominator <= _LARGEST_DENOMINATOR:
        return None if abs(value) < 10**_DIGITS else _shortest_float_text(value)
    below = value.denominator
    for prime in (2, 5):
        while below % prime == 0:
            below //= prime
    # A number with more digits was computed from decimals.
    if below != 1 and max(value.numerator, value.denominator) < 10**_DIGITS:
        return None
    if below == 1 and value * 10**_ZEROS >= 1:
        places = next(n for n in count(1) if (value * 10**n).denominator == 1)
        whole, rest = divmod((value * 10**places).numerator, 10**places)
        text = f"{whole}.{rest:0{places}d}"
        if len(text) <= _DIGITS:
            return text
    return _in_short(repr(float(value)))


def _shortest_float_text(value: Fraction) -> str | None:
    """Return the shortest digits of a large number that is a float (float32 if it is one)."""
    if value > Fraction(sys.float_info.max) or Fraction(float(value)) != value:
        return None
    texts = (f"{float(value):.{digits}e}" for digits in range(_DIGITS_OF_SINGLE))
    read = (text for text in texts if _as_single(float(text)) == value)
    return _in_short(next(read, repr(float(value))))


def _as_single(value: float) -> float | None:
    """Return the float32 nearest to a number, or None on overflow."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return None


def _in_short(text: str) -> str:
    return text.replace("e-0", "e-").replace("e+", "e").replace(".0e", "e")
