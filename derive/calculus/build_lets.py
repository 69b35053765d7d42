"""Build the lets of an operation: each equation flat, with the lets the engine introduces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from derive.algebra.expr import Access, Expr, Index, Iverson, Reduce
from derive.algebra.poly import Poly, as_atom, atom
from derive.algebra.rules import Step
from derive.budget import at
from derive.calculus.flatten import FLAT, flatten, flatten_condition, reduced_body
from derive.calculus.lets import Let, Lets
from derive.calculus.outlining import with_named_parts, with_named_scores
from derive.calculus.positions import bounds_of, freely_read
from derive.calculus.reindexing import reverse_reduction
from derive.errors import LoweringError
from derive.notation.operation import Equation, Operation


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
    lets = Lets(dict(display_names), reserved, frozenset(variables), op.stable, bounds_of(op))
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
        body = with_named_parts(body, floats, _part_namer(lets, floats, "u"))
    if isinstance(body, Reduce) and body.kind not in FLAT and len(body.indices) == 1:
        body = reverse_reduction(lets.bounds, body)
        condition = None if body.condition is None else flatten_condition(lets, body.condition)
        inner = reduced_body(lets, body)
        kind = body.kind
        lets.define(
            Let(equation.name, formals, inner, kind, body.indices, condition, equation.kind)
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
    let = lets.get(t.factors[0].tensor)
    return (
        let is not None
        and let.internal
        and let.kind == "logsumexp"
        and lets.last() is let
        and set(t.factors[0].positions) == set(formals)
        and len(t.factors[0].positions) == len(formals)
    )
