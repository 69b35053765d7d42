"""Build the lets of an operation: each equation flat, with the lets the engine introduces."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product

from derive.algebra.expr import (
    Access,
    Add,
    Call,
    Const,
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    Mul,
    Num,
    Param,
    Pow,
    Reduce,
    Where,
    accesses,
    flat_operands,
    free_indices,
    inside_out,
    num,
    sort_key,
    walk,
)
from derive.algebra.functions import derivative_copies, derives_from_value
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conjunction
from derive.algebra.poly import Poly, as_atom, atom
from derive.algebra.reductions import REDUCTIONS
from derive.algebra.rules import Step
from derive.algebra.substitution import rename_apart, replace, replace_inside_out, substitute
from derive.budget import at
from derive.calculus.flatten import FLAT, flatten, flatten_condition, members
from derive.calculus.guards import bounds_of, freely_read, partial_extents
from derive.calculus.lets import Let, Lets
from derive.calculus.reindexing import reverse_reduction
from derive.calculus.softmax import binder_renaming, log_normalizer, log_shares
from derive.calculus.value_analysis import Facts, ValueFacts
from derive.errors import LoweringError
from derive.notation.operation import Equation, Operation
from derive.notation.smart_constructors import total

# ---------------------------------------------------------------------------------------- outlining
# Outline large parts of an equation, and the scores of a softmax, as variables of their own.
#
#     tanh(tanh(... tanh(x)))      =  tanh(tanh(u)),    u = tanh(... tanh(x))
#     a*b*c*...                    =  u*v*...,          u = a*b*c,  v = ...
#     (x - sum_r a_r*b_r)^2        =  u^2,              u = x - sum_r a_r*b_r
#     a*tanh(sum_r b_r*c_r)        =  a*tanh(u),        u = sum_r b_r*c_r
#     f[i,k] - logsumexp_k f[i,k]  =  u[i,k] - logsumexp_k u[i,k],  u = f, a contraction
#
# The derivative of f(g) repeats g, and that of a product repeats every other factor. A name
# replaces the repeated part and has an adjoint. So the formulas of a deep equation are as short as
# those of a network of short ones. A contraction inside of a function is expensive to recompute,
# and a named value may be saved. No name is needed if the derivative is a function of the
# equation's value, as for tanh(sum_r b_r*c_r).
#
# The gradient of a softmax in its scores is a product with a difference, P*(grad_P - Sum P*grad_P).
# Without a name for the scores, this difference is multiplied out into an extra contraction per
# tensor in the scores. A name also keeps an additive mask c*(1 - m[k]) from being multiplied out:
# c*m[k] alone would swamp the digits of the other scores.

_LARGEST = 24
"""An argument or an operand with more nodes than this gets a name."""

_MOST = {Mul: 12, Add: 48}
"""The most factors of a product and terms of a sum; longer ones are grouped by half as many."""


def with_named_parts(e: Expr, floats: Collection[str], name: Callable[[Expr], Access]) -> Expr:
    """Return e with its large parts replaced by ``name`` of them.

    ``floats`` are the tensors that have derivatives, new names included.
    """
    return _OutlinedParts(floats, name).of(e)


_Place = tuple[Expr, bool]
"""An expression, and whether it is evaluated only where a condition holds."""


class _OutlinedParts:
    """The rewritten parts of an expression, innermost first."""

    def __init__(self, floats: Collection[str], name: Callable[[Expr], Access]) -> None:
        self._floats = floats
        self._name = name
        self._new: dict[_Place, Expr] = {}
        self._size: dict[Expr, int] = {}
        self._values = ValueFacts(lambda name: None)
        self._told: Expr | None = None

    def of(self, e: Expr) -> Expr:
        """e with its large parts named."""
        self._told = _value_only_call(e)
        for place in inside_out([(e, False)], _numeric_operands):
            self._new[place] = self._rebuilt(*place)
        return self._new[e, False]

    def _rebuilt(self, e: Expr, held: bool) -> Expr:
        """e over its rewritten parts, the large ones named."""
        inside = {part: self._new[part, own] for part, own in _numeric_operands((e, held))}
        if isinstance(e, Call | Pow | Mul):
            own = _is_held(e, held)
            multiplied = _is_square(e) or sum(map(_is_partial_sum, inside.values())) > 1
            for part, new in inside.items():
                opaque = not isinstance(e, Mul) or isinstance(new, Add | Where)
                large = opaque and self._size_of(new) > _LARGEST
                large = large or (_is_square(e) and _is_residual(new))
                large = large or (e is not self._told and _is_of_contraction(e, new))
                large = large or (isinstance(e, Mul) and _is_multiplied(new, inside.values()))
                if large or (multiplied and _is_partial_sum(new)):
                    if self._may_be_named(new, own):
                        name = inside[part] = self._name(new)
                        if log_normalizer(new) is not None:
                            self._values.named[name.tensor] = Facts(high=0)
        made: Expr = e.map(lambda part: inside.get(part, part)) if inside else e
        return self._grouped(made, held) if isinstance(made, Add | Mul) else made

    def _grouped(self, e: Add | Mul, held: bool) -> Expr:
        """Group a long product into products over the same indices; likewise a long sum."""
        members = list(flat_operands(e, type(e)))
        own, most = _is_held(e, held), _MOST[type(e)]
        together, grouped = most // 2, False
        while len(members) > most:
            alike: dict[frozenset[Index], list[int]] = {}
            for n, f in enumerate(members):
                if _may_be_grouped(f) and self._may_be_named(f, own):
                    alike.setdefault(free_indices(f), []).append(n)
            groups = [
                places[n : n + together]
                for places in alike.values()
                for n in range(0, len(places) - together + 1, together)
            ]
            if not groups:
                break
            grouped = True
            gone = {n for group in groups for n in group}
            names = [self._name(type(e)(tuple(members[n] for n in group))) for group in groups]
            members = [*(f for n, f in enumerate(members) if n not in gone), *names]
        return type(e)(tuple(members)) if grouped else e

    def _size_of(self, e: Expr) -> int:
        """The node count of e as a tree, scaled where a derivative repeats the argument."""
        for part, _ in inside_out([(e, False)], _numeric_operands):
            if part not in self._size:
                inside = 1 + sum(self._size[child] for child, _ in _numeric_operands((part, False)))
                times = derivative_copies(part.function) if isinstance(part, Call) else 1
                self._size[part] = inside * times
        return self._size[e]

    def _may_be_named(self, e: Expr, held: bool) -> bool:
        """True if e has a derivative and, under a condition, a finite value everywhere."""
        parts = list(walk(e))
        if not any(isinstance(part, Access) and part.tensor in self._floats for part in parts):
            return False
        if not held:
            return True
        levels = set(map(log_normalizer, parts))
        return (
            self._values.facts(e).defined
            and all(part in levels or _is_whole_read(part) for part in parts)
            and not any(map(self._values.may_overflow, parts))
        )


def _is_whole_read(part: Expr) -> bool:
    """True if a node reads within its axes, and sums without a condition if it reduces."""
    match part:
        case Access(_, positions):
            return all(isinstance(p, Index) for p in positions)
        case Reduce(kind, _, _, condition):
            return kind == "sum" and condition is None
    return not isinstance(part, Guard | Delta)


def _is_square(e: Expr) -> bool:
    """True if e is an integer power of at least 2."""
    if not isinstance(e, Pow) or not isinstance(e.exponent, Num):
        return False
    power = e.exponent.value
    return power >= 2 and power.denominator == 1


def _is_residual(e: Expr) -> bool:
    """True if e is a sum with a contraction: expanding its product yields a triple contraction.

    2*(x_ij - sum_r a_ir*b_jr)*b_jr = 2*x_ij*b_jr - 2*sum_r' a_ir'*b_jr'*b_jr
    """
    if not isinstance(e, Add):
        return False
    sums = (a for term in e.args for a in flat_operands(term, Mul))
    return any(map(_sums_several_reads, sums))


def _is_of_contraction(e: Expr, argument: Expr) -> bool:
    """True if e is a function whose argument has a contraction of a product among its terms."""
    if isinstance(e, Mul):
        return False
    factors = (f for t in flat_operands(argument, Add) for f in flat_operands(t, Mul))
    return any(map(_is_matrix_product, factors))


def _is_multiplied(e: Expr, factors: Iterable[Expr]) -> bool:
    """True if a cofactor of the contraction e reads a tensor and has all indices of e."""
    if not _is_matrix_product(e):
        return False
    free = free_indices(e)
    return any(f is not e and any(accesses(f)) and free_indices(f) >= free for f in factors)


def _value_only_call(e: Expr) -> Expr | None:
    """The f(u) of c*f(u), if the derivative of f is a function of its value.

    c must be a nonzero number, such as a parameter that u is divided by; a size may be 0.
    """
    factors = list(flat_operands(e, Mul))
    (f, *more) = [f for f in factors if any(accesses(f))] or [e]
    inside = set(walk(f))
    for c in factors:
        if c is not f and not isinstance(c, Num | Const) and Pow(c, num(-1)) not in inside:
            return None
    match f:
        case Call(function) if not more and derives_from_value(function):
            return f
        case Pow(_, Num(p)) if not more and p and ((p - 1) / p).denominator == 1:
            return f
    return None


def _sums_several_reads(e: Expr) -> bool:
    """True if e is a sum whose body reads several tensors that vary with the binders."""
    if not isinstance(e, Reduce) or e.kind != "sum":
        return False
    read = {x for x in accesses(e.body) if not free_indices(x).isdisjoint(e.indices)}
    return len(read) > 1


def _is_matrix_product(e: Expr) -> bool:
    """True if e is an expensive contraction: the sum of a product of smaller tensors."""
    if not isinstance(e, Reduce) or e.kind != "sum" or not isinstance(e.body, Mul):
        return False
    read = [free_indices(f) for f in flat_operands(e.body, Mul) if any(accesses(f))]
    every = free_indices(e.body)
    return len(read) > 1 and every not in read and every.issuperset(e.indices)


def _is_partial_sum(e: Expr) -> bool:
    """True if e is a conditional sum: a product of two runs over all pairs at each position.

    (sum_s [s <= t] x_s)^2 = sum_s sum_s' [s <= t] [s' <= t] x_s x_s'
    """
    if not isinstance(e, Reduce) or e.kind not in ("sum", "mean"):
        return False
    inside = flat_operands(e.body, Mul)
    return e.condition is not None or any(isinstance(f, Iverson | Where) for f in inside)


def _numeric_operands(place: _Place) -> Iterator[_Place]:
    """The numeric operands of an expression: no positions, no conditions."""
    e, own = place[0], _is_held(*place)
    match e:
        case Add(args) | Mul(args):
            yield from ((a, own) for a in args)
        case Call(function, args) if function != "detach":
            yield from ((a, own) for a in args)
        case Pow(base, _):
            yield base, own
        case Where(_, then, other):
            yield then, own
            yield other, own
        case Reduce(kind, _, body) if REDUCTIONS[kind].is_smooth:
            yield body, own


def _is_held(e: Expr, held: bool) -> bool:
    """True if the operands of e are evaluated only where a condition holds."""
    if held or isinstance(e, Where):
        return True
    if isinstance(e, Reduce):
        return e.condition is not None
    return isinstance(e, Mul) and any(isinstance(f, Iverson | Delta) for f in flat_operands(e, Mul))


def _may_be_grouped(f: Expr) -> bool:
    """True if no pattern needs f as a separate factor, as softmax needs each exponential."""
    if isinstance(f, Pow):
        return _may_be_grouped(f.base) and isinstance(f.exponent, Num) and f.exponent.value > 0
    if isinstance(f, Mul):
        return all(isinstance(a, Num) or _may_be_grouped(a) for a in f.args)
    return isinstance(f, Access | Add) or (isinstance(f, Call) and f.function != "exp")


def with_named_scores(e: Expr, name: Callable[[Expr], Expr]) -> Expr:
    """e with the argument of each softmax or logsumexp replaced by ``name`` of it.

    Only contractions, additive masks, and what reads a tensor that lacks an axis are named. A named
    value is computed everywhere, also where a condition excludes it, and must be finite there.
    """
    anywhere = not any(_is_held(part, False) for part in walk(e))

    def is_named(f: Expr) -> bool:
        costly = _has_contraction(f) or _spreads_a_tensor(f) or _scales_a_sum(f)
        return costly and (anywhere or _is_finite(f))

    def named(e: Expr) -> Expr:
        for whole, scores, bound, body in _possible_softmaxes(e):
            along = binder_renaming(scores, bound, body)
            if along is not None and is_named(own := _without_shift(scores, along)):
                name_of_them = name(own)
                new = {scores: name_of_them, body: substitute(name_of_them, along)}
                return replace(whole, new.get)
        return e

    def named_alone(e: Expr) -> Expr:
        match e:
            case Reduce("logsumexp", bound, f, condition) if _scales_a_sum(f):
                if anywhere or _is_finite(f):
                    return Reduce("logsumexp", bound, name(f), condition)
        return e

    return replace_inside_out(replace_inside_out(e, named), named_alone)


def with_named_factors(
    e: Expr, floats: Collection[str], bounds: Bounds, name: Callable[[Expr], Expr]
) -> Expr:
    """e with the factor of a product over a part of an axis named, if it reads what lacks the axis.

    Prod[l | k < l <= t] s(l)*a: the gradient of a is the sum over l of that of the factor, which
    sums before and after l. As one sum over k, l and t it would take all pairs of two of them.
    What may overflow is 1 where no product takes it.
    """

    def named(e: Expr) -> Expr:
        match e:
            case Reduce("prod", (i,), f, condition) if condition is not None:
                reads = any(a.tensor in floats for a in accesses(f))
                if reads and _spreads_a_tensor(f) and _is_finite(f):
                    others = sorted(free_indices(condition) - {i}, key=sort_key)
                    overflows = any(map(ValueFacts(lambda name: None).may_overflow, walk(f)))
                    taken = bounds.projected(condition, others) if overflows else ()
                    if taken is not None:
                        (own,) = rename_apart((i,), free_indices(e) | {i})
                        whole = Where(conjunction(taken), f, num(1)) if taken else f
                        factor = substitute(name(substitute(whole, {i: own})), {own: i})
                        return Reduce("prod", (i,), factor, condition)
        return e

    return replace_inside_out(e, named)


def _without_shift(f: Expr, along: Collection[Index]) -> Expr:
    """f without the terms of its sum that lack every index of the softmax: they leave it."""
    parts = f.args if isinstance(f, Add) else ()
    own = [a for a in parts if not free_indices(a).isdisjoint(along)]
    return total(own) if own else f


def _possible_softmaxes(e: Expr) -> Iterator[tuple[Expr, Expr, Sequence[Index], Expr]]:
    """(e, f, k', f') where e may be f - logsumexp_k' f' or exp(f)/Sum_k' exp(f')."""
    for scores, level in log_shares(e):
        yield Add((scores, Mul((num(-1), level)))), scores, level.indices, level.body
    for above, below in product(e.args, e.args) if isinstance(e, Mul) else ():
        match above, below:
            case (Call("exp", (scores,)), Pow(Reduce("sum", bound, Call("exp", (body,))), Num(-1))):
                yield e, scores, bound, body


def _has_contraction(f: Expr) -> bool:
    """True if f contains a sum of products of tensors."""
    return any(isinstance(part, Reduce) and len(set(accesses(part.body))) > 1 for part in walk(f))


def _spreads_a_tensor(f: Expr) -> bool:
    """True if f reads a tensor that lacks an axis of f, so that its gradient is a sum."""
    return any(free_indices(a) < free_indices(f) for a in accesses(f))


def _is_finite(f: Expr) -> bool:
    """True if f is finite wherever its tensors are; an exponential counts as a score."""
    values = ValueFacts(lambda name: None)
    calls = (part for part in walk(f) if isinstance(part, Call) and part.function != "exp")
    return values.facts(f).defined and not any(map(values.may_overflow, calls))


def _scales_a_sum(f: Expr) -> bool:
    """True if f multiplies a sum by a possibly large number."""
    products = [part for part in walk(f) if isinstance(part, Mul)]
    return any(
        any(isinstance(a, Add) for a in p.args) and any(map(_is_large, p.args)) for p in products
    )


def _is_large(e: Expr) -> bool:
    """True if e may be a number of a larger magnitude than the computed values."""
    return isinstance(e, Param) or (isinstance(e, Num) and abs(e.value) >= 1000)


# --------------------------------------------------------------------------------------- build lets


def flatten_operation(
    op: Operation, display_names: Mapping[str, str] | None = None, variables: Sequence[str] = ()
) -> Lets:
    """Return all equations of op as lets, in order, with the lets the engine introduces.

    ``display_names`` maps canonical names to given ones; by default each name is its own.
    ``variables`` are names that no rewriting looks behind.
    """
    if display_names is None:
        owners = (*op.inputs, *op.parameters, *op.equations)
        display_names = {owner.name: owner.name for owner in owners}
    reserved = {op.name, *display_names.values()}
    given = dict(display_names), reserved, frozenset(variables), op.stable, bounds_of(op)
    lets = Lets(*given, partial_extents(op))
    floats = {t.name for t in op.inputs if t.kind == "float"}
    floats |= {e.name for e in op.equations if e.kind == "float"}
    for equation in freely_read(op):
        at(f"equation {display_names.get(equation.name, equation.name)}")
        _define(lets, equation, floats)
        identities = "; ".join(lets.take_used())
        let = lets[equation.name]
        if identities and let.kind == "sum":
            subject = (let.name, let.formals)
            lets.steps.append(Step("stable form", identities, equation.body, let.body, subject))
    return lets


def _define(lets: Lets, equation: Equation, floats: set[str]) -> None:
    formals = tuple(i for i in equation.axes if isinstance(i, Index))
    if len(formals) != len(equation.axes):
        raise LoweringError(f"{equation.name} has an axis that is not a plain index")

    body = with_named_scores(equation.body, _part_namer(lets, floats, "scores"))
    if equation.kind == "float":
        body = with_named_factors(body, floats, lets.bounds, _part_namer(lets, floats, "factor"))
        body = with_named_parts(body, floats, _part_namer(lets, floats, "u"))
    if isinstance(body, Reduce) and body.kind not in FLAT and len(body.indices) == 1:
        body = reverse_reduction(lets.bounds, body)
        inner, condition = members(lets, body)
        lets.define(
            Let(equation.name, formals, inner, body.kind, body.indices, condition, equation.kind)
        )
        return
    if equation.kind == "bool":
        flat = atom(Iverson(flatten_condition(lets, body)))
    else:
        flat = flatten(lets, body)
        if _is_lone_logsumexp(lets, flat, formals):
            (name,) = (f.tensor for f in flat.terms[0].factors if isinstance(f, Access))
            let = lets.by_name.pop(name)
            lets.rename(let, equation.name, formals)
            return
    lets.define(Let(equation.name, formals, flat, dtype=equation.kind))


def _part_namer(lets: Lets, floats: set[str], stem: str) -> Callable[[Expr], Access]:
    """Return a function that names a part of an equation like ``stem``, with an adjoint."""

    def named(part: Expr) -> Access:
        name = as_atom(lets.reduction("sum", (), flatten(lets, part), stem=stem))
        assert isinstance(name, Access)
        if lets[name.tensor].internal:
            lets.as_variable(name.tensor)
        floats.add(name.tensor)
        return name

    return named


def _is_lone_logsumexp(lets: Lets, flat: Poly, formals: tuple[Index, ...]) -> bool:
    """True if the equation is exactly an internal logsumexp that was made for it."""
    if len(flat.terms) != 1:
        return False
    (t,) = flat.terms
    if t.coef != 1 or t.binders or len(t.factors) != 1 or not isinstance(t.factors[0], Access):
        return False
    let, positions = lets.get(t.factors[0].tensor), t.factors[0].positions
    if let is None or not let.internal or let.kind != "logsumexp" or lets.last() is not let:
        return False
    return set(positions) == set(formals) and len(positions) == len(formals)
