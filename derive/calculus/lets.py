"""Let-definitions: the engine's form of an equation.

    name[formals] = body                          (kind "sum": the body's own sums)
    name[formals] = kind over binders of body     (every other kind of reduction)

Only lets bind indices in a reduction other than a sum, so a `Poly` holds sums alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from derive.algebra import expr as ex
from derive.algebra.expr import tensors
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of
from derive.algebra.poly import (
    Poly,
    Term,
    as_atom,
    atom,
    base_and_power,
    make_term,
    mul,
    poly,
    power,
    sum_over,
)
from derive.algebra.reductions import KINDS, OTHERS, Reduction
from derive.algebra.rules import Step
from derive.algebra.substitution import fresh_numbered, numbers, substitute
from derive.calculus.reindexing import part_in_branch
from derive.notation.operation import Kind

# ------------------------------------------------------------------------------------- scaled names
# Equations that are a number times a function, so that the name gives the function's value.


def scaled_call(body: Poly) -> tuple[ex.Call, Term] | None:
    """f(u) and c if the body is c*f(u), with c a nonzero number.

    A parameter is nonzero if u is divided by it. A size is nonzero if it is a divisor, or the size
    of an axis of f(u), which would otherwise have no elements.
    """
    if len(body.terms) != 1:
        return None
    (t,) = body.terms
    calls = [f for f in t.factors if isinstance(f, ex.Call)]
    if len(calls) != 1 or t.binders:
        return None
    divisors = {f.base for f in ex.walk(calls[0]) if isinstance(f, ex.Pow) and _is_negative(f)}
    rest = tuple(f for f in t.factors if f is not calls[0])
    own = {i.extent for i in ex.free_indices(calls[0])}
    if not all(_is_not_zero(f, divisors, own) for f in rest):
        return None
    return calls[0], make_term(t.coef, (), rest)


def _is_not_zero(f: ex.Expr, divisors: Set[ex.Expr], extents: Set[str]) -> bool:
    base = base_and_power(f)[0]
    if isinstance(base, ex.Size):
        return _is_negative(f) or base.extent in extents
    return isinstance(base, ex.Const) or (base in divisors and ex.is_number(base))


def _is_negative(f: ex.Expr) -> bool:
    return isinstance(f, ex.Pow) and isinstance(f.exponent, ex.Num) and f.exponent.value < 0


# --------------------------------------------------------------------------------------------- lets


@dataclass(frozen=True)
class Let:
    """One definition; ``internal`` if the engine introduced it, not the spec.

    - ``variable``: an internal let with an adjoint, as equations of the spec have one.
    - ``compared``: an extremum that is only tested for equality with its operand.
    - ``result``: a secondary output of a kernel; nothing looks into its body.
    """

    name: str
    formals: tuple[ex.Index, ...]
    body: Poly
    kind: str = "sum"
    binders: tuple[ex.Index, ...] = ()
    condition: ex.Expr | None = None
    dtype: Kind = "float"
    internal: bool = False
    variable: bool = False
    compared: bool = False
    result: bool = False

    @property
    def is_through(self) -> bool:
        """True if derivatives pass through the let, so that it has no adjoint of its own."""
        return self.internal and not self.variable

    @property
    def reduction(self) -> Reduction:
        """The table entry of its kind of reduction."""
        return KINDS[self.kind]

    def reads(self) -> frozenset[str]:
        """The names in its body and its condition."""
        inside = tensors(self.body)
        return inside if self.condition is None else inside | tensors(self.condition)

    def body_at(self, positions: Sequence[ex.Expr]) -> Poly:
        """The body of a plain let at these positions."""
        assert self.kind == "sum"
        return _substituted_body(self.body, self.formals, tuple(positions))

    @property
    def access(self) -> ex.Access:
        """The let at its own formals."""
        return ex.Access(self.name, self.formals)


@lru_cache(maxsize=256)
def _substituted_body(
    body: Poly, formals: tuple[ex.Index, ...], positions: tuple[ex.Expr, ...]
) -> Poly:
    """The body with the formals at these positions, cached: each tensor that it reads needs it."""
    return substitute(body, dict(zip(formals, positions, strict=True)))


def is_named_sum(let: Let) -> bool:
    """True if the let is an engine-named plain sum that derivatives pass through."""
    return let.is_through and let.kind == "sum" and let.dtype == "float"


Scaled = tuple[Let, ex.Call, Term]
"""A let that is c*f(u), with f(u) and c."""

Find = Callable[[str], Let | None]
"""Look up the definition of a name; None for an input."""


@dataclass
class Lets:
    """The definitions so far, by name and in order; equal reductions share one let.

    ``display_names`` maps canonical names to shown ones; a missing name maps to itself.
    ``variables`` are names that something is differentiated by: no rewriting expands them. Every
    other name of the spec abbreviates its definition. If ``stable``, no difference is multiplied
    out.
    """

    display_names: dict[str, str]
    reserved: set[str]
    variables: frozenset[str] = frozenset()
    stable: bool = False
    bounds: Bounds = field(default_factory=Bounds)
    """The proven facts about index values."""
    partial: frozenset[str] = frozenset()
    """The extents of indices that run over a part of an axis."""
    nested: int = 0
    """The depth of reductions around the expression being flattened."""
    summed: frozenset[ex.Index] = frozenset()
    """The indices of the sums whose terms have it as a factor."""
    placing: int = 0
    """The depth of positions around it."""
    around: tuple[ex.Expr, ...] = ()
    """The conditions of the branches around it."""
    conditions: dict[Any, ex.Expr] = field(default_factory=dict)
    """Flattened conditions, memoized with their context."""
    by_name: dict[str, Let] = field(default_factory=dict)
    given: dict[str, Let] = field(default_factory=dict)
    """The lets that are equations of the spec."""
    found_totals: dict[Any, Any] = field(default_factory=dict)
    """Simplified sums of names, memoized by name and axes."""
    steps: list[Step] = field(default_factory=list)
    """Rewritten equations of the spec, with the identities applied."""
    derived_from: dict[str, str] = field(default_factory=dict)
    """The name of an adjoint -> the tensor whose axes it has."""
    distributed: dict[Poly, None] = field(default_factory=dict)
    """Sums that products were distributed over though no term has all of their axes."""
    _shared: dict[tuple[object, ...], str] = field(default_factory=dict)
    _copies: dict[str, str] = field(default_factory=dict)
    _totals: dict[tuple[str, ...], list[Let]] = field(default_factory=dict)
    _calls: dict[tuple[str, frozenset[str]], list[Scaled]] = field(default_factory=dict)
    _used: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[Let]:
        return iter(self.by_name.values())

    def __getitem__(self, name: str) -> Let:
        return self.by_name[name]

    def get(self, name: str) -> Let | None:
        """The let of that name; None for an input."""
        return self.by_name.get(name)

    def definition(self, name: str) -> Let | None:
        """The plain let that a name abbreviates."""
        let = self.by_name.get(name)
        if let is None or let.kind != "sum" or let.dtype != "float" or name in self.variables:
            return None
        return let

    def opened(self, e: ex.Expr) -> Poly | None:
        """The definition of the plain let that e reads, at its positions."""
        if not isinstance(e, ex.Access) or (let := self.definition(e.tensor)) is None:
            return None
        return let.body_at(e.positions)

    def instance(self, let: Let, binding: Mapping[ex.Index, ex.Expr]) -> ex.Access | None:
        """The let with its formals substituted; None unless the binding has all of them.

        An index that runs over a part of an axis has no value at a computed position of the axis.
        """
        if not all(i in binding and self.has_value(i, binding[i]) for i in let.formals):
            return None
        return ex.Access(let.name, tuple(binding[i] for i in let.formals))

    def has_value(self, i: ex.Index, position: ex.Expr) -> bool:
        """True if a position of the axes that the index reads is a value of the index."""
        return isinstance(position, ex.Index) or i.extent not in self.partial

    def totals(self, tensors: tuple[str, ...]) -> tuple[Let, ...]:
        """The lets of the spec that are a sum of products of these tensors, times others."""
        return tuple(self._totals.get(tensors, ()))

    def used(self, identity: str) -> None:
        """Record an identity by which an equation is rewritten."""
        if identity not in self._used:
            self._used.append(identity)

    def take_used(self) -> tuple[str, ...]:
        """Return the recorded identities and clear them."""
        taken = tuple(self._used)
        self._used.clear()
        return taken

    def define(self, let: Let) -> None:
        """Add a let of the spec, and let later reductions share it."""
        self.by_name[let.name] = let
        self.given[let.name] = let
        self._note_total(let)
        self._note_call(let)
        key, formals = _sharing_key(let.kind, let.binders, let.body, let.condition)
        if formals == let.formals:
            self._shared.setdefault(key, let.name)

    def rekey(self) -> None:
        """Rebuild the lookup tables from the current definitions, in dependency order."""
        for table in (self._shared, self._totals, self._calls):
            table.clear()
        known = self.by_name
        order = ex.inside_out(known, lambda name: sorted(known[name].reads() & {*known})[::-1])
        every = {name: known[name] for name in order}
        for let in every.values():
            if let.name in self.given:
                self.define(let)
            else:
                key, _ = _sharing_key(let.kind, let.binders, let.body, let.condition)
                self._shared.setdefault(key, let.name)
        self.by_name = every

    def _note_total(self, let: Let) -> None:
        if let.kind == "sum" and let.dtype == "float" and len(let.body.terms) == 1:
            (t,) = let.body.terms
            inside = [f for f in t.factors if ex.free_indices(f) & frozenset(t.binders)]
            outside = (f for f in t.factors if f not in inside)
            if t.binders and not any(isinstance(f, ex.Delta | ex.Iverson) for f in outside):
                self._totals.setdefault(tensors_of(inside), []).append(let)

    def _note_call(self, let: Let) -> None:
        found = scaled_call(let.body) if let.kind == "sum" else None
        if found is not None:
            call, scale = found
            known = self._calls.setdefault((call.function, tensors(call)), [])
            known.append((let, call, scale))

    def calls(self, call: ex.Call) -> Sequence[Scaled]:
        """The lets of the spec that are a number times this function of the same tensors."""
        return self._calls.get((call.function, tensors(call)), ())

    def reduction(
        self,
        kind: str,
        binders: tuple[ex.Index, ...],
        body: Poly,
        condition: ex.Expr | None = None,
        dtype: Kind = "float",
        stem: str | None = None,
        display_names: str | None = None,
    ) -> Poly:
        """Return an access to a let of that content; create one named like ``stem`` if needed.

        ``display_names`` is the stem of its shown name, if that is different. In a branch that
        restricts an index to a subrange, the let runs over that subrange.
        """
        read = ex.free_indices(body) | (ex.free_indices(condition) if condition else frozenset())
        part = part_in_branch(self.bounds, self.around, read, binders)
        if part is not None:
            test = None if condition is None else part.inside(condition)
            inner = part.inside(body)
            assert isinstance(inner, Poly)
            return part.outside(
                self.reduction(kind, binders, inner, test, dtype, stem, display_names)
            )
        key, formals = _sharing_key(kind, binders, body, condition)
        name = self._shared.get(key)
        if name is None:
            name = self.fresh_name(stem or KINDS[kind].stem)
            if display_names is not None:
                self.display_names[name] = self.fresh_name(display_names)
                self.reserved.add(self.display_names[name])
            let = Let(name, formals, body, kind, binders, condition, dtype, internal=True)
            self.by_name[name] = let
            self._shared[key] = name
        return atom(ex.Access(name, formals))

    def winner_of(self, let: Let) -> str | None:
        """The name of the arg-reduction of an extremum, if one was created."""
        if let.reduction.part != "values":
            return None
        key, _ = _sharing_key(f"arg{let.kind}", let.binders, let.body, let.condition)
        return self._shared.get(key)

    def apart(self) -> Lets:
        """A copy to which lets may be added independently."""
        made = copy(self)
        for f in fields(self):
            held = getattr(self, f.name)
            if isinstance(held, dict | set | list):
                setattr(made, f.name, copy(held))
        return made

    def is_input(self, p: Poly) -> bool:
        """True if p is an entry of an input."""
        entry = as_atom(p)
        return isinstance(entry, ex.Access) and self.get(entry.tensor) is None

    def as_variable(self, name: str) -> None:
        """Give an internal let an adjoint of its own."""
        self.by_name[name] = replace(self.by_name[name], variable=True)

    def again(self, let: Let) -> Let:
        """A second definition of an extremum, to compare with: the first may be an output."""
        name = self._copies.get(let.name)
        if name is None:
            name = self.fresh_name(let.reduction.stem)
            self.by_name[name] = replace(let, name=name, internal=True, compared=True)
            self._copies[let.name] = name
        return self.by_name[name]

    def last(self) -> Let | None:
        """The latest definition."""
        return next(reversed(self.by_name.values()), None)

    def rename(self, let: Let, name: str, formals: tuple[ex.Index, ...]) -> None:
        """Give the latest, internal let a name of the spec and the spec's order of axes."""
        self.by_name.pop(let.name, None)
        for key, shared in list(self._shared.items()):
            if shared == let.name:
                del self._shared[key]
        self.define(replace(let, name=name, formals=formals, internal=False))

    def display_name(self, name: str) -> str:
        """The name as shown to a reader; primes stay."""
        bare = name.rstrip("'")
        return self.display_names.get(bare, bare) + name[len(bare) :]

    def derived_name(self, name: str, stem: str) -> str:
        """A canonical name derived from another, shown as the stem, or stem2, ..."""
        # The @ sorts adjoints before all other names, as in a formula.
        made = fresh_numbered(f"@{name}~{stem.split('_')[0]}", self.display_names)
        display_names = self.fresh_name(stem)
        self.reserved.add(display_names)
        self.display_names[made] = display_names
        self.derived_from[made] = name
        return made

    def fresh_name(self, stem: str) -> str:
        """The first of stem, stem2, stem3, ... that is not in use, nor another reduction."""
        taken = self.reserved, self.by_name, KINDS.keys() - {stem}
        return next(name for name in numbers(stem) if not any(name in names for names in taken))


def formula_size(p: Poly) -> int:
    """The number of factors and binders."""
    return sum(len(t.factors) + len(t.binders) for t in p.terms)


def tensors_of(factors: Sequence[ex.Expr]) -> tuple[str, ...]:
    """The tensors that a product reads, as a key: equal for a product and its instances."""
    return tuple(sorted({a.tensor for f in factors for a in ex.accesses(f)}))


def layout(body: ex.Expr, bound: Sequence[ex.Index] = ()) -> tuple[ex.Index, ...]:
    """The free indices of body that are not bound, in the order of its largest access.

    An index in no access takes the place of a number in that access: where(d == 0, -x[n,1,j],
    x[n,0,j]) has n, d, j. An index equated with a read s[e] takes the place of e: Sum_e [s[e] == g]
    x[e,c]*y[c,g] has g, c.
    """
    outside = frozenset(bound)
    return tuple(i for i in _axis_order(body) if i not in outside)


@lru_cache(maxsize=4096)
def _axis_order(body: ex.Expr) -> tuple[ex.Index, ...]:
    """The free indices of body in the order of its largest access."""
    order: list[ex.Index] = []
    hole: int | None = None
    found = [a for a in ex.walk(body) if isinstance(a, ex.Access)]
    found.sort(key=lambda a: -sum(2 if i.group else 1 for i in ex.free_indices(a)))
    for access in found:
        for position in access.positions:
            if isinstance(position, ex.Num) and hole is None:
                hole = len(order)
            for i in ex.walk(position):
                if isinstance(i, ex.Index) and i not in order:
                    order.append(i)
    free = ex.free_indices(body)
    places = {i: g for i, g in _equated_positions(body) if g in free and i not in free}
    order = list(dict.fromkeys(places.get(i, i) for i in order))
    rest = sorted((i for i in free if i not in order), key=ex.sort_key)
    at = len(order) if hole is None else hole
    order[at:at] = rest
    return tuple(i for i in order if i in free)


def _equated_positions(body: ex.Expr) -> Iterator[tuple[ex.Index, ex.Index]]:
    """(e, g) for each bracket [s[e] == g]."""
    for part in ex.walk(body):
        if isinstance(part, ex.Rel) and part.op == "==":
            sides = [as_atom(x) if isinstance(x, Poly) else x for x in (part.left, part.right)]
            for read, g in (sides, sides[::-1]):
                if isinstance(read, ex.Access) and isinstance(g, ex.Index):
                    yield from ((i, g) for i in read.positions if isinstance(i, ex.Index))


def _sharing_key(
    kind: str, binders: tuple[ex.Index, ...], body: Poly, condition: ex.Expr | None
) -> tuple[tuple[object, ...], tuple[ex.Index, ...]]:
    """A key that is equal for lets equal up to index names, and the let's formals."""
    # others[.., k, ..] = the product over all but k: k is the axis and a formal at once.
    formals = layout(body, () if kind == OTHERS.name else binders)
    if kind == OTHERS.name:
        formals = (*formals, *(k for k in binders if k not in formals))
    if condition is not None:
        compared = () if kind == OTHERS.name else binders
        formals = _with_conditions(formals, compared, body, condition)
    ordered = dict.fromkeys((*formals, *binders))
    names: dict[ex.Index, ex.Expr] = {
        i: ex.Index(f"%{n}", i.extent, i.group) for n, i in enumerate(ordered)
    }
    whole = substitute(body, names)
    test = None if condition is None else substitute(condition, names)
    return (kind, len(formals), tuple(names[k] for k in binders), whole, test), formals


def _with_conditions(
    formals: tuple[ex.Index, ...], binders: tuple[ex.Index, ...], body: Poly, condition: ex.Expr
) -> tuple[ex.Index, ...]:
    """The formals with those of the condition, each where the binder it is compared with stands.

    The greatest x[k,d] with s[k] = n has the formals [n,d].
    """
    extra = [i for i in layout(condition, binders) if i not in formals]
    order: list[ex.Index] = []
    for i in layout(body):
        beside = [c for c in conditions_of(condition) if i in binders and i in ex.free_indices(c)]
        order += [
            e for e in extra if any(e in ex.free_indices(c) for c in beside) and e not in order
        ]
        order += [i] if i in formals else []
    return (*order, *(i for i in (*formals, *extra) if i not in order))


def inline(p: Poly, let: Let) -> Poly:
    """p with every factor that is let[...] replaced by its body."""
    terms: list[Term] = []
    for t in p.terms:
        if let.name not in tensors(t):
            terms.append(t)
            continue
        rest = []
        bodies = []
        for f in t.factors:
            base, exponent = base_and_power(f)
            if isinstance(base, ex.Access) and base.tensor == let.name:
                bodies.append(power(let.body_at(base.positions), exponent))
            else:
                rest.append(f)
        # The binders of the term are free indices of the summand.
        outside = poly([make_term(t.coef, (), rest)])
        terms += sum_over(mul(outside, *bodies), t.binders).terms if bodies else [t]
    return poly(terms)
