"""Insert guards: evaluate each partial operand only where its condition holds.

    [c]*f(u)  =  [c]*f(Guard(c, u))        Guard(c, u) = u where c holds, 1 elsewhere

f is partial: a logarithm, a quotient, a root, or a function that overflows. This is the double
``where``. It keeps a nan or an infinity of the branch not taken out of the gradient, as 0*inf is
nan. Afterwards every factor is finite wherever the tensors are. So rewrites may split terms, pull
sums out of products and fold names without a check for infinity.

A condition guards its cofactors in a product, its branch or its reduction. It also guards the
definition of a name if all reads of that name are under it. An operand that lacks an index of the
condition is guarded by the existential condition over that index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TypeGuard

from derive.algebra import expr as ex
from derive.algebra.functions import FUNCTIONS
from derive.algebra.logic import conditions_of, conjunction, connected
from derive.algebra.poly import (
    ONE,
    ZERO,
    Poly,
    Term,
    add,
    as_atom,
    as_poly,
    atom,
    base_and_power,
    is_mask,
    make_term,
    mul,
    poly,
    rename_binders,
    sum_over,
)
from derive.algebra.substitution import replace as replaced
from derive.algebra.substitution import substitute
from derive.calculus.guards import (
    at_deltas,
    group_by_indices,
    held_conditions,
    known,
    lone_atom,
    some_meet,
)
from derive.calculus.lets import Let, Lets
from derive.calculus.softmax import NormalizedExp, recognise_under
from derive.calculus.value_analysis import ValueFacts, taken_where
from derive.notation.guards import added_conditions

_ONE = ex.num(1)
Over = tuple[ex.Expr, ...]
"""The conditions under which an expression is evaluated."""


def make_safe(lets: Lets, outputs: frozenset[str]) -> None:
    """Guard all definitions, readers before the definitions they read."""
    safe = GuardInserter(lets)
    for let in reversed(list(lets)):
        over = () if let.name in outputs else safe.around(let)
        safe.definition(let, over)
    lets.rekey()


def guarded_sum(lets: Lets, p: Poly, indices: Sequence[ex.Index]) -> Poly:
    """Sum_indices p, with operands that lack an index guarded by the existence of a summand.

    Sum_h [h > i]*x[h]/y[i] is 0 where no h is above i, whatever y[i] is there.
    """
    safe = _SummandGuards(lets)
    result = ZERO
    for t in p.terms:
        placed, left = at_deltas(t, indices)
        # A delta may decide a condition on the index that it fixes.
        decided = known(lets.bounds, placed)
        for one in (placed,) if decided is None else decided.terms:
            result = add(result, sum_over(poly([safe.summand(one, frozenset(left))]), left))
    return result


@dataclass
class GuardInserter:
    """The pass over the definitions of one operation."""

    lets: Lets

    def __post_init__(self) -> None:
        self._values = ValueFacts(self.lets.get)
        self._reads: dict[str, list[tuple[ex.Access, Over]]] = {}

    def around(self, let: Let) -> Over:
        """The conditions, in the formals of the let, that hold at all of its reads.

        A condition that others imply holds too: i != j where i < j.
        """
        found: list[Over] = []
        for access, over in self._reads.get(let.name, ()):
            if not over or len(set(access.positions)) < len(access.positions):
                return ()
            if not all(isinstance(p, ex.Index) for p in access.positions):
                return ()
            names = dict(zip(access.positions, let.formals, strict=True))
            here = frozenset[ex.Index](names)  # type: ignore[arg-type]
            # A condition on positions alone costs more than it guards if it has other indices.
            asked = tuple(c for c in over if ex.free_indices(c) <= here or ex.tensors(c))
            known = (*self._seen_from(asked, here), *self._between(over, here))
            found.append(tuple(substitute(c, names) for c in known))  # type: ignore[arg-type]
        follows = self.lets.bounds.follows
        every = dict.fromkeys(c for o in found for c in o)
        apart = (ex.Rel("!=", *c.parts()) for c in every if _is_order_of_positions(c))
        common = [c for c in (*every, *apart) if all(c in o or follows(c, o) for o in found)]
        for c in [*common]:
            rest = [o for o in common if o is not c]
            common = rest if follows(c, rest) else common
        return tuple(c for c in common if not self._leads_to(let.name, c))

    def _between(self, over: Over, at: frozenset[ex.Index]) -> Iterator[ex.Expr]:
        """Yield what conditions on positions say of several of these: i < k where i < j < k."""
        for missing, members in connected((c for c in over if not ex.tensors(c)), at):
            found = self.lets.bounds.projected(
                conjunction(members), sorted(missing, key=ex.sort_key)
            )
            yield from (c for c in found or () if len(ex.free_indices(c)) > 1)

    def _leads_to(self, name: str, e: ex.Expr) -> bool:
        """True if e reads the name, directly or through definitions."""

        def reads(tensor: str) -> Iterable[str]:
            let = self.lets.get(tensor)
            return () if let is None else let.reads()

        return name in ex.inside_out(ex.tensors(e), reads)

    def definition(self, let: Let, over: Over) -> None:
        """Guard the body of a let that is evaluated under these conditions."""
        inner = over
        if let.condition is not None:
            self._note_conditions(conditions_of(let.condition), over)
            inner = added_conditions(over, let.condition)
        if let.compared:
            # An extremum equals one of its operands exactly only if both read the same tensor.
            self._note(let.body, ())
            return
        body = self.flat(let.body, inner)
        if body is not let.body:
            self.lets.by_name[let.name] = replace(let, body=body)

    def flat(self, p: Poly, over: Over = ()) -> Poly:
        """p guarded by these conditions."""
        terms = [self._term(t, over) for t in p.terms]
        return p if terms == list(p.terms) else add(*(poly([t]) for t in terms))

    def _term(self, t: Term, over: Over) -> Term:
        outside = frozenset[ex.Index]().union(*map(ex.free_indices, over))
        binders, factors = (
            rename_binders(t, outside) if outside & set(t.binders) else (t.binders, t.factors)
        )
        own = frozenset(binders)
        masks = held_conditions(factors)
        self._note_conditions(masks, over)
        several = sum(bool(ex.tensors(f)) for f in factors if not is_mask(f)) > 1
        made = []
        for f in factors:
            # An operand that lacks a summed index was guarded when the sum was made.
            lacking = own - ex.free_indices(f)
            held = added_conditions(over, *(c for c in masks if not ex.free_indices(c) & lacking))
            if lacking and isinstance(base_and_power(f)[0], ex.Access):
                held = added_conditions(held, *self._between(masks, ex.free_indices(f)))
            made.append(self._factor(f, over, held, several))
        return t if made == list(factors) else make_term(t.coef, binders, made)

    def _factor(self, f: ex.Expr, outer: Over, over: Over, beside: bool) -> ex.Expr:
        if is_mask(f):
            if not isinstance(f, ex.Iverson):
                self._note(f, outer)
            return f
        base, power = base_and_power(f)
        inside = self._atom(base, over)
        if power == 1:
            if beside and over and not self._values.facts(base).finite:
                return self._operand(inside, over)
            return inside
        if over and self._values.may_fail(f):
            inside = self._operand(inside, over)
        return f if inside is base else ex.Pow(inside, ex.Num(power))

    def _atom(self, e: ex.Expr, over: Over) -> ex.Expr:
        if isinstance(e, Poly):
            return self.flat(e, over)
        if isinstance(e, ex.Call):
            fails = bool(over) and self._values.may_fail(e, over)
            args = []
            for a in e.args:
                assert isinstance(a, Poly)
                inside = self.flat(a, over)
                # A function of the constant tensor 1 is finite, whatever its other arguments are.
                asked = fails and ex.is_number(inside) <= ex.is_number(e)
                args.append(as_poly(self._operand(as_atom(inside), over)) if asked else inside)
            return e if tuple(args) == e.args else ex.Call(e.function, tuple(args))
        self._note(e, over)
        return e

    def _note(self, e: ex.Expr, over: Over) -> None:
        """Record the reads in e and their conditions."""
        if _is_operand(e):
            self._note_under_positions(e.position, (*over, *conditions_of(e.condition)))
            self._note_conditions(conditions_of(e.condition), over)
            return
        for a in ex.accesses(e):
            self._reads.setdefault(a.tensor, []).append((a, over if a is e else ()))

    def _note_conditions(self, conditions: Sequence[ex.Expr], over: Over) -> None:
        """Record the reads in a conjunction: of each condition, where the others hold."""
        for c in conditions:
            self._note_under_positions(c, (*over, *(o for o in conditions if o is not c)))

    def _note_under_positions(self, e: ex.Expr, over: Over) -> None:
        """Record the reads in e, and of their conditions those on their own positions alone."""
        read = dict.fromkeys(ex.accesses(e))
        inside = {b for a in read for p in a.positions for b in ex.accesses(p)}
        asked = [c for o in over for c in conditions_of(o) if not ex.tensors(c)]
        for a in read:
            own = tuple(c for c in asked if ex.free_indices(c) <= ex.free_indices(a))
            self._reads.setdefault(a.tensor, []).append((a, () if a in inside else own))

    def _operand(self, e: ex.Expr, over: Over) -> ex.Expr:
        """e where these conditions hold, 1 elsewhere; only number conditions guard a number."""
        if ex.is_number(e):
            numbers = tuple(filter(ex.is_number, over))
            return ex.Guard(conjunction(numbers), e, _ONE) if 0 < len(numbers) < len(over) else e
        inside, known = e, tuple[ex.Expr, ...]()
        if _is_operand(e):
            inside, known = e.position, conditions_of(e.condition)
        asked = added_conditions(known, *self._seen_from(over, ex.free_indices(e)))
        return ex.Guard(conjunction(asked), inside, _ONE) if asked else e

    def _seen_from(self, over: Over, at: frozenset[ex.Index]) -> Over:
        """The conditions projected to some indices: existential over all other indices."""
        if all(map(ex.is_number, over)):
            return ()
        seen = [c for c in over if ex.free_indices(c) <= at]
        for missing, members in connected(over, at):
            seen += self._some(conjunction(members), sorted(missing, key=ex.sort_key))
        return tuple(dict.fromkeys(seen))

    def _some(self, condition: ex.Expr, indices: Sequence[ex.Index]) -> Iterator[ex.Expr]:
        found = some_meet(self.lets.bounds, condition, indices)
        if found is not None:
            yield from found
            return
        if self._is_won(condition, indices):
            return
        body = atom(ex.Iverson(condition))
        yield as_atom(self.lets.reduction("any", tuple(indices), body, None, "bool"))

    def _is_won(self, condition: ex.Expr, indices: Sequence[ex.Index]) -> bool:
        """True if the condition is body == amax(body), which at least one position satisfies."""
        if not isinstance(condition, ex.Rel) or condition.op != "==":
            return False
        for side, other in permutations((condition.left, condition.right)):
            top = lone_atom(side)
            let = self.lets.get(top.tensor) if isinstance(top, ex.Access) else None
            if let is None or let.kind not in ("amax", "amin") or let.condition is not None:
                continue
            assert isinstance(top, ex.Access)
            there = dict(zip(let.formals, top.positions, strict=True))
            for chosen in permutations(indices, len(let.binders)):
                names = {**there, **dict(zip(let.binders, chosen, strict=True))}
                if substitute(let.body, names) is other:
                    return True
        return False


class _SummandGuards(GuardInserter):
    """The pass over summands, guarded by the brackets on summed indices alone."""

    lacking: frozenset[ex.Index] = frozenset()
    """The summed indices that the current factor lacks."""

    def summand(self, t: Term, indices: frozenset[ex.Index]) -> Term:
        """Guard the factors that lack some of these indices, by the brackets on them."""
        masks = held_conditions(t.factors)
        made = []
        for f in t.factors:
            lacking = indices - ex.free_indices(f)
            over = tuple(c for c in masks if ex.free_indices(c) & lacking)
            self.lacking = lacking
            base, _ = base_and_power(f)
            overflows = isinstance(base, ex.Call) and FUNCTIONS[base.function].overflows
            left = is_mask(f) or overflows or not over
            made.append(f if left else self._factor(f, over, over, True))
        return t if made == list(t.factors) else make_term(t.coef, t.binders, made)

    def _seen_from(self, over: Over, at: frozenset[ex.Index]) -> Over:
        every = frozenset[ex.Index]().union(*map(ex.free_indices, over))
        return super()._seen_from(over, every - self.lacking)


def guarded_sums(lets: Lets, p: Poly) -> Poly:
    """p, with operands that lack an index of a sum guarded by the existence of a summand.

    w*Sum_k [x[k] > 0]*d_x[k] is 0 where no x is above 0, whatever w is there.
    """
    safe = _SummandGuards(lets)
    return poly([safe.summand(t, frozenset(t.binders)) for t in p.terms])


class DerivativeGuards(GuardInserter):
    """The pass over derivatives, whose operands have the indices of their brackets.

    What is read at a guarded position is multiplied by 0 where the guard's condition fails: it is
    the adjoint of a read that is not made there. So a partial function of it is guarded too.
    """

    def _factor(self, f: ex.Expr, outer: Over, over: Over, beside: bool) -> ex.Expr:
        if not is_mask(f) and self._values.may_fail(f):
            over = added_conditions(over, *(p.condition for p in _guarded_positions(f)))
        return super()._factor(f, outer, over, beside)

    def _atom(self, e: ex.Expr, over: Over) -> ex.Expr:
        if isinstance(recognise_under(e, self.lets.get, over), NormalizedExp):
            # A softmax of the forward: its operands are guarded as those of its logsumexp are.
            return e
        return super()._atom(e, over)

    def _some(self, condition: ex.Expr, indices: Sequence[ex.Index]) -> Iterator[ex.Expr]:
        yield from ()


def _guarded_positions(e: ex.Expr) -> Iterator[ex.Guard]:
    """Yield the guarded positions of the reads in e that no bracket or branch in e excludes."""
    if isinstance(e, ex.Access):
        yield from (p for p in e.positions if isinstance(p, ex.Guard))
    elif isinstance(e, Poly):
        for t in e.terms:
            if not any(map(is_mask, t.factors)):
                for f in t.factors:
                    yield from _guarded_positions(f)
    elif not isinstance(e, ex.Where | ex.Guard):
        for part in e.parts():
            yield from _guarded_positions(part)


def safe_where_read(e: ex.Expr, conditions: Sequence[ex.Expr]) -> ex.Expr:
    """e with every partial function of a guarded read guarded by the same conditions."""
    values = ValueFacts(lambda name: None)
    condition = conjunction(conditions)

    def reads(e: ex.Expr) -> bool:
        return any(
            isinstance(p, ex.Guard) and p.condition is condition
            for a in ex.accesses(e)
            for p in a.positions
        )

    def visit(e: ex.Expr) -> ex.Expr | None:
        if isinstance(e, ex.Pow) and reads(e.base) and values.may_fail(e):
            return ex.Pow(ex.Guard(condition, e.base, _ONE), e.exponent)
        if isinstance(e, ex.Call) and any(map(reads, e.args)) and values.may_fail(e):
            # An order, as in polygamma(1, x), stays a number.
            args = (a if ex.is_number(a) else ex.Guard(condition, a, _ONE) for a in e.args)
            return ex.Call(e.function, tuple(args))
        return None

    return replaced(e, visit)


def _is_order_of_positions(e: ex.Expr) -> bool:
    return isinstance(e, ex.Rel) and e.op in ("<", ">") and not ex.tensors(e)


def _is_operand(e: ex.Expr) -> TypeGuard[ex.Guard]:
    return isinstance(e, ex.Guard) and e.elsewhere is _ONE


def exists_bracket(lets: Lets, condition: ex.Expr, indices: Sequence[ex.Index]) -> Poly:
    """[some position of the indices meets the condition], 1 if that is certain."""
    found = some_meet(lets.bounds, condition, indices)
    if found is not None:
        return mul(ONE, *(atom(ex.Iverson(c)) for c in found))
    some = lets.reduction("any", tuple(indices), atom(ex.Iverson(condition)), None, "bool")
    return atom(ex.Iverson(as_atom(some)))


def is_certain(lets: Lets, condition: ex.Expr, indices: Sequence[ex.Index]) -> bool:
    """True if some position of a nonempty axis certainly meets the condition."""
    return some_meet(lets.bounds, condition, indices) == ()


def has_positions(lets: Lets, i: ex.Index) -> bool:
    """True if the axis of i is certainly not empty."""
    return lets.bounds.holds(ex.Rel("<", ex.num(0), ex.Size(i.extent))) is True


def where_some_is_taken(lets: Lets, let: Let, mapping: Mapping[ex.Index, ex.Expr]) -> Poly:
    """[c]*[some position meets c] for a let that is infinite where no position meets c.

    ``mapping`` has the positions for its formals. The result is 1 if the adjoint is finite anyway.
    """
    taken = taken_where(let)
    if taken is None or not let.reduction.is_infinite_of_nothing:
        return ONE
    # A sum over an index that the body lacks multiplies it by a size, and n*a/n = a.
    cancels = any(set(let.binders) - ex.free_indices(t) for t in let.body.terms)
    if not cancels and not _has_nonlinear_use(lets, let.name):
        return ONE
    condition = substitute(taken, mapping)
    brackets = mul(*(atom(ex.Iverson(c)) for c in group_by_indices(condition)))
    if ex.free_indices(condition).isdisjoint(let.binders):
        # All positions meet it or none, and an adjoint is asked for at a position.
        return brackets
    return mul(brackets, exists_bracket(lets, condition, let.binders))


def _has_nonlinear_use(lets: Lets, name: str) -> bool:
    """True if an equation uses this let other than to add, scale or exponentiate it.

    Where the let is infinite, like the logsumexp of nothing, its adjoint may then be infinite too.
    """
    infinite = {name}
    for let in lets:
        for t in let.body.terms:
            reading = [f for f in t.factors if infinite & set(ex.tensors(f))]
            if not reading:
                continue
            (first, *others) = reading
            if others or let.kind != "sum" or not _is_linear_use(first, infinite):
                return True
            if isinstance(first, ex.Access):
                infinite.add(let.name)
    return False


def _is_linear_use(f: ex.Expr, names: set[str]) -> bool:
    """True if f is one of these tensors, or the exponential of a sum with one."""
    if isinstance(f, ex.Call) and f.function == "exp":
        (exponent,) = f.args
        assert isinstance(exponent, Poly)
        inside = [g for t in exponent.terms for g in t.factors if names & set(ex.tensors(g))]
        return all(isinstance(g, ex.Access) and g.tensor in names for g in inside)
    return isinstance(f, ex.Access) and f.tensor in names
