"""Prove inequalities of integers made of indices and sizes, for all sizes.

    0 <= i <= size(i) - 1 for every index, 0 <= size(i), and size(m) = size(k) + size(l) where the
    operation defines the size of m so

An inequality is proved by refuting its negation together with these facts: the variables of the
linear system are eliminated one after the other (Fourier and Motzkin). A product of sizes is a
variable of its own. An unproved inequality is unknown; it may still hold.

Running code rejects a negative size, so every size is at least 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import gcd, lcm

from derive.algebra import expr as ex
from derive.algebra.affine import Monomial, Polynomial, polynomial
from derive.algebra.logic import conditions_of, truth
from derive.algebra.poly import Poly, as_atom
from derive.algebra.substitution import replace
from derive.budget import tick

_MOST_CONSTRAINTS = 120
"""A larger system is given up: the answer is unknown."""

_MOST_TERMS = 12
"""A longer form is not analyzed: positions in practice are shorter."""

_ONE = Polynomial.of(1)
_ZERO = Polynomial({})

_System = list[Mapping[Monomial, Fraction]]


def decided(op: str, value: Fraction, checked: Iterable[tuple[str, Fraction]]) -> bool | None:
    """Whether p op value holds, of a number p checked as by (">", 0); None if that is unknown."""
    found = (_decided(op, value, *c) for c in checked)
    return next((truth for truth in found if truth is not None), None)


def _decided(op: str, value: Fraction, known: str, bound: Fraction) -> bool | None:
    """Whether p op value holds, of a number p for which p known bound does."""
    if known in ("<", "<="):
        return _decided(ex.MIRRORED[op], -value, ex.MIRRORED[known], -bound)
    if known == "!=":
        return op == "!=" if bound == value and op in ("==", "!=") else None
    beyond = bound > value or (bound == value and known == ">")
    certain = bound >= value if op in (">=", "<") else beyond
    return op in ("!=", ">", ">=") if certain else None


class Bounds:
    """The extents of one operation, as a store of facts.

    ``sizes`` has the expression that gives the size of an extent, or None where it is read on an
    axis; no group is among them. ``integers`` names the parameters that are integers; of their
    sign nothing is known. ``positions`` has the extents that all values of an integer tensor are
    positions of, ``least`` a number of positions that an extent has at least, and ``checked`` what
    calls check of parameters: (">", 0).

    >>> bounds = Bounds({"k": None, "l": None, "m": Size("k") + Size("l")})
    >>> bounds.holds(Rel("<", Index("j", "k"), Size("m")))
    True
    >>> bounds.holds(Rel("<", Index("j", "m"), Size("k"))) is None
    True
    """

    def __init__(
        self,
        sizes: Mapping[str, ex.Expr | None] | None = None,
        integers: Iterable[str] = (),
        positions: Mapping[str, Sequence[str]] | None = None,
        least: Mapping[str, int] | None = None,
        checked: Mapping[str, Sequence[tuple[str, Fraction]]] | None = None,
    ) -> None:
        self._given = sizes or {}
        self._integers = frozenset(integers)
        self.positions = positions or {}
        self._least = least or {}
        self._checked = checked or {}
        self._among: dict[ex.Index, Sequence[str]] = {}
        """Index for a read of such a tensor -> the other extents."""
        self._sizes: dict[str, Polynomial] = {}
        self._asked: set[Polynomial] = set()
        self._refuted: dict[tuple[Polynomial, ...], bool] = {}
        self._proved: dict[Polynomial, bool] = {}
        self._forms: dict[ex.Expr, Polynomial | None] = {}
        self._open = 0
        """The sizes whose definitions are being read: what is found meanwhile is not kept."""

    def size(self, extent: str) -> Polynomial:
        """The size of an extent, in terms of sizes that are not defined by others."""
        found = self._sizes.get(extent)
        if found is None:
            own = Polynomial.of(ex.Size(extent))
            # A cyclic definition leaves the size as an atom.
            self._sizes[extent] = own
            self._open += 1
            found = self.definition(extent)
            self._open -= 1
            if found is None or any(isinstance(a, ex.Call) for key in found.terms for a in key):
                found = own
            self._sizes[extent] = found
        return found

    def definition(self, extent: str) -> Polynomial | None:
        """The size of an extent as the operation defines it; None if it does not."""
        known = self._given.get(extent)
        return None if known is None else self.form(known)

    def extents_of(self, size: Polynomial) -> list[str]:
        """The extents that certainly have this size, in the order of the operation."""
        return [n for n in self._given if self.size(n) == size]

    def form(self, e: ex.Expr) -> Polynomial | None:
        """e as a sum of integer multiples of products of indices, sizes and integer parameters.

        None if it is no such sum.
        """
        found = self._rational_form(e)
        return found if found is not None and found.is_whole else None

    def _rational_form(self, e: ex.Expr) -> Polynomial | None:
        """e as a sum of such products with rational factors; None if it is no such sum."""
        if e in self._forms:
            return self._forms[e]
        found = polynomial(e, self._atom, _MOST_TERMS)
        if found is not None and len(found.terms) > _MOST_TERMS:
            found = None
        if not self._open:
            self._forms[e] = found
        return found

    def _atom(self, e: ex.Expr) -> Polynomial | None:
        match e:
            case ex.Size(extent):
                return self.size(extent)
            case ex.Index(_, _, False):
                return Polynomial.of(e)
            case ex.Param(name) if name in self._integers:
                return Polynomial.of(e)
            case ex.Call("floordiv" | "minimum" | "maximum") if not ex.free_indices(e):
                return Polynomial.of(e)
        return None

    def holds(self, condition: ex.Expr) -> bool | None:
        """True if the condition holds for all sizes and all values of its indices.

        False if it never holds, None if that depends or is unknown.
        """
        return truth(condition, self._comparison)

    def _comparison(self, condition: ex.Expr) -> bool | None:
        if isinstance(condition, ex.Iverson):
            return self.holds(condition.condition)
        if not isinstance(condition, ex.Rel):
            return None
        op, sides = condition.op, condition.parts()
        sides = tuple(as_atom(e) if isinstance(e, Poly) else e for e in sides)
        if isinstance(sides[0], ex.Num):
            op, sides = ex.MIRRORED[op], sides[::-1]
        match sides:
            case (ex.Param(name), ex.Num(value)) if name in self._checked:
                return decided(op, value, self._checked[name])
        a = self._rational_form(self._with_indices(condition.left))
        b = None if a is None else self._rational_form(self._with_indices(condition.right))
        if a is None or b is None:
            return None
        # Of integers: a/2 < b/3 as 3*a < 2*b.
        common = lcm(*(c.denominator for f in (a, b) for c in f.terms.values()))
        return self._relation(condition.op, *(f * Polynomial.of(common) for f in (a, b)))

    def _with_indices(self, e: ex.Expr) -> ex.Expr:
        """e with a fresh index for each read whose values are certainly positions."""

        def index(part: ex.Expr) -> ex.Expr | None:
            if isinstance(part, ex.Access) and part.tensor in self.positions:
                extent, *others = self.positions[part.tensor]
                value = ex.Index(repr(part), extent)
                self._among[value] = others
                return value
            return None

        return replace(e, index) if self.positions else e

    def _relation(self, op: str, a: Polynomial, b: Polynomial) -> bool | None:
        if op in (">", ">="):
            return self._relation(ex.MIRRORED[op], b, a)
        if op in ("==", "!="):
            if a == b:
                return op == "=="
            apart = self.at_most(a + _ONE, b) or self.at_most(b + _ONE, a)
            return op == "!=" if apart else None
        low = a + _ONE if op == "<" else a
        if self.at_most(low, b):
            return True
        return False if self.at_most(b + _ONE, low) else None

    def edge(self, condition: ex.Expr, i: ex.Index) -> tuple[bool, Polynomial] | None:
        """(True, b) if the condition is equivalent to b <= i, (False, b) if to i < b.

        None for any other condition; b does not contain i.
        """
        match condition:
            case ex.Not(arg):
                inner = self.edge(arg, i)
                return None if inner is None else (not inner[0], inner[1])
            case ex.Iverson(inside):
                return self.edge(inside, i)
            case ex.Rel("<" | "<=" | ">" | ">=" as op, left, right):
                low, high = (left, right) if op in ("<", "<=") else (right, left)
                a = self.form(low)
                b = None if a is None else self.form(high)
                if a is None or b is None:
                    return None
                # low < high is 0 <= gap.
                gap = b - a - _ONE if op in ("<", ">") else b - a
                edge = gap.solved(i)
                if edge is None:
                    return None
                return (True, edge) if gap.unit(i) == 1 else (False, edge + _ONE)
        return None

    def at_most(self, low: Polynomial, high: Polynomial) -> bool:
        """True if low <= high is certain."""
        gap = high - low
        number = gap.number
        if number is not None:
            return number >= 0
        known = self._proved.get(gap)
        if known is None:
            opposite = -gap - _ONE
            known = _contradictory([opposite.terms, *self._facts(opposite)])
            if not self._asked:
                self._proved[gap] = known
        return known

    def excludes(self, conditions: Sequence[ex.Expr]) -> bool:
        """True if comparisons certainly never hold together, as i < j and j <= i."""
        forms = [form for c in conditions for form in self._nonnegative_forms(c) or ()]
        return len(forms) > 1 and self._contradict(tuple(forms))

    def follows(self, condition: ex.Expr, others: Sequence[ex.Expr]) -> bool:
        """True if a comparison certainly holds where some others do: i < k where i < j <= k."""
        if isinstance(condition, ex.Rel) and condition.op == "!=":
            sides = condition.parts()
            apart = {ex.Rel("!=", *sides), ex.Rel("!=", *sides[::-1])}
            either = (ex.Rel(op, *sides) for op in ("<", ">"))
            return not apart.isdisjoint(others) or any(self.follows(c, others) for c in either)
        asked = self._nonnegative_forms(condition)
        given = [form for c in others for form in self._nonnegative_forms(c) or ()]
        return bool(asked and given) and all(
            self._contradict((-form - _ONE, *given)) for form in asked or ()
        )

    def _contradict(self, forms: tuple[Polynomial, ...]) -> bool:
        """True if the forms are certainly not all >= 0."""
        known = self._refuted.get(forms)
        if known is None:
            system = [*(form.terms for form in forms), *self._facts(_about(forms))]
            known = self._refuted[forms] = _contradictory(system)
        return known

    def without_indices(self, forms: Sequence[Polynomial]) -> tuple[Polynomial, ...]:
        """Forms in sizes: if all are >= 0, some positions of the indices make ``forms`` >= 0.

        Empty if no positions do, or if that is not found out.
        """
        about = _about(forms)
        if _contradictory([*(f.terms for f in forms), *self._facts(about)]):
            return ()
        for i in about.indices:
            found = self._eliminated([*forms, *self._range(i)], i)
            if found is None or len(found[0]) > _MOST_CONSTRAINTS:
                return ()
            forms = found[0]
        left: list[Polynomial] = []
        for f in dict.fromkeys(map(_of_smallest_integers, forms)):
            if self.at_most(f, -_ONE):
                return ()
            if not self.at_most(_ZERO, f) and not any(self.at_most(g, f) for g in left):
                left = [*(g for g in left if not self.at_most(f, g)), f]
        return tuple(left)

    def projected(
        self, condition: ex.Expr, indices: Sequence[ex.Index]
    ) -> tuple[ex.Expr, ...] | None:
        """Conditions on other indices, which hold where some positions of these meet ``condition``.

            k < l <= t for some k and t:  1 <= l

        None if they are not found out, or more than two. Each axis of these is taken to have a
        position.
        """
        forms: list[Polynomial] = []
        beside: list[ex.Expr] = []
        for c in conditions_of(condition):
            found = self._nonnegative_forms(c)
            if found:
                forms += found
            elif ex.free_indices(c).isdisjoint(indices):
                beside.append(c)
            else:
                return None
        facts: list[Polynomial] = []
        for i in indices:
            eliminated = self._eliminated([*forms, *self._range(i)], i)
            if eliminated is None or not eliminated[1] or len(eliminated[0]) > _MOST_CONSTRAINTS:
                return None
            forms = eliminated[0]
            facts.append(self.size(i.extent) - _ONE)
        left: list[Polynomial] = []
        known = [*(f.terms for f in facts), *self._facts(_about(forms))]
        for f in dict.fromkeys(map(_of_smallest_integers, forms)):
            if not _contradictory([(-f - _ONE).terms, *(g.terms for g in left), *known]):
                left.append(f)
        made = [*beside, *(_nonnegative(f) for f in left)]
        return tuple(made) if len(made) <= 2 else None

    def _nonnegative_forms(self, condition: ex.Expr) -> list[Polynomial] | None:
        """Forms that are all >= 0 just where the condition holds; None if there are none."""
        match condition:
            case ex.Iverson(inside):
                return self._nonnegative_forms(inside)
            case ex.Rel(op, left, right) if op != "!=":
                a = self.form(left)
                b = None if a is None else self.form(right)
                if a is None or b is None:
                    return None
                gap = b - a if op in ("<", "<=", "==") else a - b
                if op == "==":
                    return [gap, -gap]
                return [gap - _ONE if op in ("<", ">") else gap]
        return None

    def _range(self, i: ex.Index) -> tuple[Polynomial, Polynomial]:
        own = Polynomial.of(i)
        return own, self.size(i.extent) - _ONE - own

    @staticmethod
    def _eliminated(
        forms: Sequence[Polynomial], i: ex.Index
    ) -> tuple[list[Polynomial], bool] | None:
        """Forms without i: if all are >= 0, ``forms`` are for some i, and if only then.

        For a*i >= p and b*i <= q, an integer i exists if a*q - b*p >= (a - 1)*(b - 1) (the dark
        shadow of Pugh's omega test), and if a or b is 1 only then. None if i is multiplied.
        """
        if any(i in key and len(key) > 1 for f in forms for key in f.terms):
            return None
        above = [(f, f.terms[i,]) for f in forms if f.terms.get((i,), 0) > 0]
        below = [(f, -f.terms[i,]) for f in forms if f.terms.get((i,), 0) < 0]
        made = [f for f in forms if (i,) not in f.terms]
        is_exact = True
        for (p, a), (q, b) in product(above, below):
            shadow = Polynomial({(): -(a - 1) * (b - 1)})
            made.append(p * Polynomial({(): b}) + q * Polynomial({(): a}) + shadow)
            is_exact = is_exact and 1 in (a, b)
        return made, is_exact

    def _is_positive(self, form: Polynomial) -> bool:
        """True if 1 <= form is certain, without what this question itself is asked for.

        A size may be a quotient by a size that is defined by that one. What is found meanwhile is
        not kept.
        """
        if form in self._asked:
            return False
        self._asked.add(form)
        try:
            return self.at_most(_ONE, form)
        finally:
            self._asked.remove(form)

    def _facts(self, about: Polynomial) -> _System:
        """Known facts, each a form >= 0, about the variables and those the facts introduce."""
        facts: dict[Polynomial, None] = {}
        seen: set[Monomial] = set()
        pending = [key for key in about.terms if key]
        while pending and len(facts) < _MOST_CONSTRAINTS // 2:
            key = pending.pop(0)
            if key in seen:
                continue
            seen.add(key)
            is_natural = all(isinstance(part, ex.Index | ex.Size) for part in key)
            new = [Polynomial({key: Fraction(1)})] if is_natural else []
            for part in key:
                new += self._of_atom(part)
            new += [
                size - Polynomial.of(self._least.get(n, 0))
                for n in self._given
                if key in (size := self.size(n)).terms
            ]
            for fact in new:
                facts.setdefault(fact)
                pending += [k for k in fact.terms if k]
        return [fact.terms for fact in facts]

    def _of_atom(self, e: ex.Expr) -> list[Polynomial]:
        own = Polynomial.of(e)
        match e:
            case ex.Size(extent):
                given = self.definition(extent) or own
                return [given - own, own - given] if self.size(extent) == own != given else []
            case ex.Index(_, extent):
                every = (extent, *self._among.get(e, ()))
                return [self.size(x) - _ONE - own for x in every]
            case ex.Call("floordiv", (above, below)):
                a, step = self.form(above), self.form(below)
                if a is None or step is None or not self._is_positive(step):
                    return []
                multiple = own * step
                return [a - multiple, multiple + step - _ONE - a]
            case ex.Call("minimum" | "maximum" as name, args):
                forms = [f for f in map(self.form, args) if f is not None]
                if name == "minimum":
                    return [f - own for f in forms]
                bounds = [own - f for f in forms]
                if len(forms) == len(args) and all(self.at_most(_ZERO, f) for f in forms):
                    bounds.append(sum(forms, -own))
                return bounds
        return []


def relation(op: str, a: Polynomial, b: Polynomial) -> ex.Rel:
    """a op b without negative terms: 0 <= i - 2 is 2 <= i."""
    gap = (b - a).terms
    left = Polynomial({k: -c for k, c in gap.items() if c < 0})
    right = Polynomial({k: c for k, c in gap.items() if c > 0})
    return ex.Rel(op, left.poly(), right.poly())


def _nonnegative(form: Polynomial) -> ex.Rel:
    """0 <= form; i < k instead of i + 1 <= k."""
    is_strict = form.terms.get(()) == -1 and len(form.terms) > 2
    return relation("<", _ZERO, form + _ONE) if is_strict else relation("<=", _ZERO, form)


def _about(forms: Iterable[Polynomial]) -> Polynomial:
    """The sum of all variables and products of the forms."""
    return Polynomial(dict.fromkeys((key for f in forms for key in f.terms if key), Fraction(1)))


def _of_smallest_integers(form: Polynomial) -> Polynomial:
    """The form with smallest integers that is >= 0 for the same integers: 2*a - 3 gives a - 2."""
    shared = gcd(*(int(c) for key, c in form.terms.items() if key)) or 1
    return Polynomial({key: q for key, c in form.terms.items() if (q := Fraction(c // shared))})


def _contradictory(system: _System) -> bool:
    """True if the system of forms >= 0 has no solution."""
    while True:
        kept: dict[frozenset[tuple[Monomial, Fraction]], Mapping[Monomial, Fraction]] = {}
        for form in system:
            total = sum(abs(c) for k, c in form.items() if k)
            number = form.get((), Fraction(0))
            if not total:
                if number < 0:
                    return True
                continue
            # Of forms that differ by a constant, the smaller is the stronger.
            same = {k: c / total for k, c in form.items() if k}
            key = frozenset(same.items())
            if key not in kept or number / total < kept[key][()]:
                kept[key] = {**same, (): number / total}
        system = list(kept.values())
        if not system or len(system) > _MOST_CONSTRAINTS:
            return False
        system = _eliminate_variable(_cheapest(system), system)


def _cheapest(system: _System) -> Monomial:
    """The variable whose elimination leaves the smallest system."""
    above = Counter(key for form in system for key, coef in form.items() if key and coef > 0)
    below = Counter(key for form in system for key, coef in form.items() if key and coef < 0)
    return min((*above, *below), key=lambda k: above[k] * below[k])


def _eliminate_variable(key: Monomial, system: _System) -> _System:
    above = [f for f in system if f.get(key, 0) > 0]
    below = [f for f in system if f.get(key, 0) < 0]
    result = [f for f in system if not f.get(key)]
    for a, b in product(above, below):
        tick()
        joined = {k: -b[key] * c for k, c in a.items()}
        for k, c in b.items():
            joined[k] = joined.get(k, Fraction(0)) + a[key] * c
        result.append({k: c for k, c in joined.items() if c})
    return result
