"""The scores of a softmax, as a variable of their own.

    f[i,k] - logsumexp_k f[i,k]      =  u[i,k] - logsumexp_k u[i,k],      u = f a contraction
    exp(f[i,k]) / Sum_k exp(f[i,k])  =  exp(u[i,k]) / Sum_k exp(u[i,k])

The gradient of a softmax in its scores is a product with a difference, P*(grad_P - Sum P*grad_P).
Without a name for them this difference is multiplied out, into one contraction more for each
tensor that the scores are made of. Nor is a mask that is added, c*(1 - m[k]), multiplied out where
it stands in a name: beside c*m[k] nothing is left of the digits of the other scores.
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
from derive.calculus.interval_analysis import is_finite_alike
from derive.notation.smart_constructors import total


def with_named_scores(e: Expr, name: Callable[[Expr], Expr]) -> Expr:
    """e with what a softmax or a logsumexp is taken of replaced by what ``name`` makes of it.

    Of a contraction and a mask that is added, that is: all else is told as it is.
    """

    def named(e: Expr) -> Expr:
        for whole, scores, bound, body in _shares(e):
            along = _along(scores, bound, body)
            if along is not None and (_is_contraction(scores) or _scales_a_sum(scores)):
                name_of_them = name(scores)
                new = {scores: name_of_them, body: substitute(name_of_them, along)}
                return replace(whole, new.get)
        return e

    def named_alone(e: Expr) -> Expr:
        if isinstance(e, Reduce) and e.kind == "logsumexp" and _scales_a_sum(e.body):
            return Reduce(e.kind, e.indices, name(e.body), e.condition)
        return e

    return replace_inside_out(replace_inside_out(e, named), named_alone)


def _shares(e: Expr) -> Iterator[tuple[Expr, Expr, Sequence[Index], Expr]]:
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


def _along(f: Expr, bound: Sequence[Index], body: Expr) -> dict[Index, Expr] | None:
    """{k: k'} where body is f at other positions."""
    alike = ([k for k in free_indices(f) if k.extent == i.extent] for i in bound)
    for free in product(*alike):
        along: dict[Index, Expr] = dict(zip(free, bound, strict=True))
        if substitute(f, along) is body:
            return along
    return None


def _is_contraction(f: Expr) -> bool:
    """Whether a sum of products of tensors stands in f, and f is finite where they are.

    What is named is made everywhere, also where a condition excludes it.
    """
    return all(map(is_finite_alike, walk(f))) and any(
        isinstance(part, Reduce) and len(set(accesses(part.body))) > 1 for part in walk(f)
    )


def _scales_a_sum(f: Expr) -> bool:
    """Whether a sum is multiplied by what may be a large number, f being finite where they are."""
    products = [part for part in walk(f) if isinstance(part, Mul)]
    return all(map(is_finite_alike, walk(f))) and any(
        any(isinstance(a, Add) for a in p.args) and any(map(_is_large, p.args)) for p in products
    )


def _is_large(e: Expr) -> bool:
    """Whether it may be a number of another order than what is computed."""
    return isinstance(e, Param) or (isinstance(e, Num) and abs(e.value) >= 1000)
