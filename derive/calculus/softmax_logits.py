"""Name the scores of a softmax as a variable.

    f[i,k] - logsumexp_k f[i,k]      =  u[i,k] - logsumexp_k u[i,k],      u = f a contraction
    exp(f[i,k]) / Sum_k exp(f[i,k])  =  exp(u[i,k]) / Sum_k exp(u[i,k])

The gradient of a softmax in its scores is a product with a difference, P*(grad_P - Sum P*grad_P).
Without a name for the scores, this difference is multiplied out into an extra contraction per
tensor in the scores. A name also keeps an additive mask c*(1 - m[k]) from being multiplied out:
c*m[k] alone would swamp the digits of the other scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

from derive.algebra.expr import (
    Add,
    Call,
    Expr,
    Index,
    Mul,
    Num,
    Param,
    Pow,
    Reduce,
    accesses,
    free_indices,
    walk,
)
from derive.algebra.substitution import replace, replace_inside_out, substitute
from derive.calculus.value_analysis import ValueFacts
from derive.notation.smart_constructors import total


def with_named_scores(e: Expr, name: Callable[[Expr], Expr]) -> Expr:
    """e with the argument of each softmax or logsumexp replaced by ``name`` of it.

    Only contractions and additive masks are named.
    """

    def named(e: Expr) -> Expr:
        for whole, scores, bound, body in _possible_softmaxes(e):
            along = _binder_renaming(scores, bound, body)
            if along is not None and (_has_contraction(scores) or _scales_a_sum(scores)):
                name_of_them = name(scores)
                new = {scores: name_of_them, body: substitute(name_of_them, along)}
                return replace(whole, new.get)
        return e

    def named_alone(e: Expr) -> Expr:
        if isinstance(e, Reduce) and e.kind == "logsumexp" and _scales_a_sum(e.body):
            return Reduce(e.kind, e.indices, name(e.body), e.condition)
        return e

    return replace_inside_out(replace_inside_out(e, named), named_alone)


def _possible_softmaxes(e: Expr) -> Iterator[tuple[Expr, Expr, Sequence[Index], Expr]]:
    """(e, f, k', f') where e may be f - logsumexp_k' f' or exp(f)/Sum_k' exp(f')."""
    match e:
        case Add(args):
            for n, a in enumerate(args):
                match a:
                    case Mul((Num(-1), Reduce("logsumexp", bound, body))):
                        scores = total(args[:n] + args[n + 1 :])
                        yield Add((scores, a)), scores, bound, body
        case Mul(args):
            for above, below in product(args, args):
                match above, below:
                    case (
                        Call("exp", (scores,)),
                        Pow(Reduce("sum", bound, Call("exp", (body,))), Num(-1)),
                    ):
                        yield e, scores, bound, body


def _binder_renaming(f: Expr, bound: Sequence[Index], body: Expr) -> dict[Index, Expr] | None:
    """{k: k'} if body is f with k renamed to k'."""
    alike = ([k for k in free_indices(f) if k.extent == i.extent] for i in bound)
    for free in product(*alike):
        along: dict[Index, Expr] = dict(zip(free, bound, strict=True))
        if substitute(f, along) is body:
            return along
    return None


def _has_contraction(f: Expr) -> bool:
    """True if f contains a sum of products of tensors, and is finite wherever they are.

    A named value is computed everywhere, also where a condition excludes it.
    """
    return _is_finite(f) and any(
        isinstance(part, Reduce) and len(set(accesses(part.body))) > 1 for part in walk(f)
    )


def _is_finite(f: Expr) -> bool:
    """True if f is finite wherever its tensors are; an exponential counts as a score."""
    values = ValueFacts(lambda name: None)
    calls = (part for part in walk(f) if isinstance(part, Call) and part.function != "exp")
    return values.facts(f).defined and not any(map(values.may_overflow, calls))


def _scales_a_sum(f: Expr) -> bool:
    """True if f, finite wherever its tensors are, multiplies a sum by a possibly large number."""
    products = [part for part in walk(f) if isinstance(part, Mul)]
    return _is_finite(f) and any(
        any(isinstance(a, Add) for a in p.args) and any(map(_is_large, p.args)) for p in products
    )


def _is_large(e: Expr) -> bool:
    """True if e may be a number of a larger magnitude than the computed values."""
    return isinstance(e, Param) or (isinstance(e, Num) and abs(e.value) >= 1000)
