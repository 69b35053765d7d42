"""Reverse mode over the lets: one adjoint per equation, then one gradient per input.

    grad_X[i] = Sum over equations v that read X, Sum_j grad_v[j] * dv[j]/dX[i]

Every adjoint has a name here; `derive.calculus.inline` inlines those whose name costs more than it
saves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from derive.algebra import expr as ex
from derive.algebra.factor import to_tree
from derive.algebra.inequalities import Bounds
from derive.algebra.poly import ONE, ZERO, Poly, Term, add, atom, make_term, mul, poly, sum_over
from derive.algebra.rules import (
    DELTA_RULES,
    FUNCTION_RULES,
    Log,
    Rule,
    Rules,
    Step,
    eliminate_deltas,
    simplify,
)
from derive.algebra.substitution import rename_apart, substitute
from derive.budget import at
from derive.calculus.bracket_rules import sign_rule, without_rectified, zero_rule
from derive.calculus.chain_rule import partial_of_let, reads
from derive.calculus.fold import fold_rules, masked_fold
from derive.calculus.guards import bounds_of
from derive.calculus.lets import Let, Lets, is_named_sum
from derive.calculus.ratio_rules import quotient_rules
from derive.calculus.ring import ring_rule
from derive.calculus.symmetry import symmetry_rule
from derive.calculus.value_analysis import ValueFacts
from derive.notation.operation import Operation

# ----------------------------------------------------------------------------------------- step log
# The steps that led to a formula, concatenated lazily when they are read.
#
# A formula at the end of a long chain includes the steps of every formula before it; most are never
# shown.


@dataclass(frozen=True, eq=False)
class StepLog:
    """Steps after those of two earlier trails: of the formula, and of the one inlined into it."""

    own: tuple[Step, ...] = ()
    before: StepLog | None = None
    taken: StepLog | None = None

    def then(self, own: Sequence[Step], taken: StepLog | None = None) -> StepLog:
        """Put the steps of ``taken`` before this trail, and ``own`` after it."""
        return StepLog(tuple(own), self, taken)

    def __iter__(self) -> Iterator[Step]:
        """All steps in order, without duplicates from shared trails."""
        found: dict[StepLog, tuple[Step, ...]] = {}
        for trail in ex.inside_out([self], lambda t: filter(None, (t.before, t.taken))):
            before = () if trail.before is None else found[trail.before]
            taken = () if trail.taken is None else found[trail.taken]
            known = set(taken)
            found[trail] = (*taken, *(s for s in before if s not in known), *trail.own)
        yield from found[self]


# ------------------------------------------------------------------------------------------ adjoint


@dataclass(frozen=True)
class Adjoint:
    """The gradient of the loss in one tensor: ``name[formals] = body``, and its derivation."""

    tensor: str
    name: str
    formals: tuple[ex.Index, ...]
    body: Poly
    steps: StepLog

    def as_let(self) -> Let:
        """The adjoint as a definition."""
        return Let(self.name, self.formals, self.body)

    @property
    def masks(self) -> list[ex.Iverson]:
        """The brackets common to all terms: where one is 0, so is the adjoint."""
        factors = {f: None for t in self.body.terms for f in t.factors}
        brackets = [f for f in factors if isinstance(f, ex.Iverson)]
        return [f for f in brackets if all(f in t.factors for t in self.body.terms)]

    def rewritten(self, body: Poly, log: Log, taken: StepLog | None = None) -> Adjoint:
        """The adjoint with an equal body and the steps to it; ``taken`` led to a name inlined."""
        own = with_subject((self.name, self.formals), log)
        return replace(self, body=body, steps=self.steps.then(own, taken))


@dataclass(frozen=True)
class Backward:
    """Adjoints of equations (in the order they are computed) and gradients of inputs.

    ``wanted`` names the equations that the loss is differentiated by: their adjoints are results,
    and never inlined. Nothing looks into those of ``added``, to which cotangents are added later.
    """

    lets: Lets
    cotangents: tuple[tuple[str, str], ...]
    """(output, the name of its cotangent), in order; an output with cotangent 1 has no entry."""
    adjoints: tuple[Adjoint, ...]
    gradients: tuple[Adjoint, ...]
    wanted: frozenset[str]
    bounds: Bounds
    added: frozenset[str] = frozenset()

    def each(self, change: Callable[[Adjoint], Adjoint]) -> Backward:
        """With every adjoint and every gradient changed, in this order."""
        adjoints, gradients = (tuple(map(change, x)) for x in (self.adjoints, self.gradients))
        return replace(self, adjoints=adjoints, gradients=gradients)

    def opened(self) -> dict[str, Let]:
        """The adjoints into which the formulas of others may look."""
        return {a.name: a.as_let() for a in self.adjoints if a.tensor not in self.added}


def differentiate(
    op: Operation,
    lets: Lets,
    wrt: Sequence[str] | None = None,
    of: str | None = None,
    added: Collection[str] = (),
) -> Backward:
    """All adjoints of op, deltas eliminated, before any inlining.

    ``wrt`` names the float inputs and equations whose gradients are wanted; the default is all
    float inputs. ``of`` names the one output to differentiate. If it is a single number, it is a
    loss with cotangent 1. By default every output has a given cotangent. ``added`` names the
    equations to whose adjoints cotangents are added later.
    """
    inputs = {t.name: t.axes for t in op.inputs if t.kind == "float"}
    wanted = frozenset(wrt or ()) - set(inputs)
    moving = active_equations(lets, inputs, wanted)
    cotangents = _cotangents(op, lets, moving, of)
    raw = {name: atom(ex.Access(given, lets[name].formals)) for name, given in cotangents}
    if not cotangents and of is not None and of in moving:
        raw = {of: ONE}
    made: dict[str, Let] = {}
    rules: Rules = (
        *DELTA_RULES,
        *unit_axes(op),
        ring_rule(bounds_of(op)),
        symmetry_rule(lets, made),
        *fold_rules(lets, made),
        *FUNCTION_RULES,
        *quotient_rules(lets),
        zero_rule(lets),
        sign_rule(lets),
    )
    sweep = _Sweep(lets, inputs, moving, rules, masked_fold(lets), raw)
    given = [let for let in lets if not let.is_through]
    names = [lets.derived_name(let.name, f"grad_{lets.display_name(let.name)}") for let in given]
    for let, name in zip(reversed(given), reversed(names), strict=True):
        if let.name not in raw and let.name not in wanted:
            continue
        adjoint = sweep.finished(let.name, name, let.formals)
        is_wanted = let.name in wanted
        opened = _is_copy(adjoint) or (not is_wanted and _is_product_adjoint(lets, adjoint))
        sweep.keep([adjoint] if is_wanted or not opened else [], {} if let.name in added else made)
        for tensor in reads(lets, let):
            sweep.pull(let, adjoint, opened, tensor)
    gradients = []
    for tensor in inputs if wrt is None else [name for name in inputs if name in wrt]:
        name = lets.derived_name(tensor, f"grad_{lets.display_name(tensor)}")
        gradients.append(sweep.finished(tensor, name, _plain_indices(inputs[tensor])))
    adjoints, bounds = tuple(sweep.adjoints), bounds_of(op)
    return Backward(lets, cotangents, adjoints, tuple(gradients), wanted, bounds, frozenset(added))


@dataclass
class _Sweep:
    """The reverse sweep over the equations: the contributions collected for each tensor."""

    lets: Lets
    inputs: Mapping[str, tuple[object, ...]]
    moving: Collection[str]
    rules: Rules
    masked: Rule
    raw: dict[str, Poly]
    """The sum of the contributions, by tensor."""
    adjoints: list[Adjoint] = field(default_factory=list)
    logs: dict[str, Log] = field(default_factory=dict)
    taken: dict[str, StepLog] = field(default_factory=dict)
    """The steps to the adjoints that have no name, of which the contributions are products."""
    pulled: dict[str, list[ex.Expr]] = field(default_factory=dict)
    """The same contributions as shown to a reader: cotangent times partial derivative."""

    def __post_init__(self) -> None:
        self.pulled |= {name: [to_tree(p)] for name, p in self.raw.items()}

    def keep(self, adjoints: Sequence[Adjoint], made: dict[str, Let]) -> None:
        """Add adjoints that have a name; later folds may replace expressions by these names."""
        self.adjoints += adjoints
        made |= {a.name: a.as_let() for a in adjoints}

    def finished(self, tensor: str, name: str, formals: tuple[ex.Index, ...]) -> Adjoint:
        """The adjoint of a tensor, with its deltas eliminated."""
        at(f"the gradient of {self.lets.display_name(tensor)}")
        log = self.logs.get(tensor, [])
        total, pulled = self.raw.get(tensor, ZERO), self.pulled.get(tensor, [])
        before = to_tree(total) if not pulled else ex.sum_of(pulled)
        rule = Step("chain rule", "∂L/∂X[i] = Σⱼ ∂L/∂F[j]·∂F[j]/∂X[i]", before, total)
        body, steps = finish((name, formals), total, rule, self.rules, log)
        steps = StepLog(tuple(steps), taken=self.taken.get(tensor))
        return Adjoint(tensor, name, formals, body, steps)

    def pull(self, let: Let, adjoint: Adjoint, opened: bool, tensor: str) -> None:
        """Add the cotangent of an equation times its partial derivative to that of a tensor."""
        lets = self.lets
        if tensor not in self.moving and tensor not in self.inputs:
            return
        axes = self.inputs[tensor] if tensor in self.inputs else lets[tensor].formals
        j = rename_apart(let.formals, _plain_indices(axes))
        partial = partial_of_let(lets, let, j, tensor, _plain_indices(axes))
        log: Log = []
        folded = simplify(partial, (self.masked,), log)
        whole = adjoint.body if opened else atom(ex.Access(adjoint.name, adjoint.formals))
        cotangent = substitute(whole, dict(zip(adjoint.formals, j, strict=True)))
        product = ex.Mul((to_tree(cotangent), to_tree(folded)))
        self.pulled.setdefault(tensor, []).append(ex.Reduce("sum", j, product) if j else product)
        rule = f"partial derivative of {lets.display_name(let.name)}"
        taken = Step(rule, "∂X[j]/∂X[i] = δ(i, j)", partial, partial)
        between = (
            f"∂{lets.display_name(let.name)}/∂{lets.display_name(tensor)}",
            (*j, *_plain_indices(axes)),
        )
        self.logs.setdefault(tensor, []).extend(with_subject(between, [taken, *log]))
        if opened and not _is_copy(adjoint):
            earlier = self.taken.get(tensor, StepLog())
            self.taken[tensor] = earlier.then((), adjoint.steps)
        kept = ONE if opened else _slope_guards(lets, adjoint, j, folded)
        share = sum_over(mul(cotangent, kept, folded), j)
        self.raw[tensor] = add(self.raw.get(tensor, ZERO), share)


def _cotangents(
    op: Operation, lets: Lets, moving: set[str], of: str | None
) -> tuple[tuple[str, str], ...]:
    """(output, the name of its cotangent) for each output whose cotangent is given."""
    outputs = [name for name in op.outputs if name in moving and of in (None, name)]
    if of is not None and not lets[of].formals:
        return ()
    stems = ["G"] if len(outputs) == 1 else [f"G_{lets.display_name(name)}" for name in outputs]
    return tuple(
        (name, lets.derived_name(name, stem)) for name, stem in zip(outputs, stems, strict=True)
    )


def unit_axes(op: Operation) -> tuple[Rule, ...]:
    """Rules that replace an index with a single value by 0."""
    single = {e.name for e in op.extents if isinstance(e.size, ex.Num) and e.size.value == 1}

    def apply(t: Term) -> Poly | None:
        for f in t.factors:
            if isinstance(f, ex.Delta) and isinstance(f.position, ex.Num) and f.position.value == 0:
                if isinstance(f.axis, ex.Index) and f.axis.extent in single:
                    rest = [x for x in t.factors if x is not f]
                    return poly([make_term(t.coef, t.binders, rest)])
        return None

    if not single:
        return ()
    return (Rule("axis of size 1", "δ(i, 0) = 1 where i is always 0", "deltas", apply),)


def _plain_indices(axes: Sequence[object]) -> tuple[ex.Index, ...]:
    assert all(isinstance(i, ex.Index) for i in axes)
    return tuple(i for i in axes if isinstance(i, ex.Index))


def active_equations(lets: Lets, inputs: Collection[str], variables: frozenset[str]) -> set[str]:
    """The equations of the spec that depend smoothly on a float input, or are variables."""
    moving: set[str] = set()
    for let in lets:
        if not let.is_through and let.dtype == "float":
            read = reads(lets, let)
            if let.name in variables or any(name in inputs or name in moving for name in read):
                moving.add(let.name)
    return moving


def _slope_guards(lets: Lets, adjoint: Adjoint, positions: Sequence[ex.Index], slope: Poly) -> Poly:
    """The brackets common to all terms of an adjoint, where they must guard a slope.

    grad_r = [i < j]*f'(r) is 0 for i = j, but grad_r*(x[i] - x[j])/r is not where r is 0 there.
    """
    values = ValueFacts(lets.get)
    if not any(values.may_fail(f) for t in slope.terms for f in t.factors):
        return ONE
    inside = frozenset(adjoint.formals)
    shared = [m for m in adjoint.masks if ex.free_indices(m) <= inside]
    guard = poly([make_term(Fraction(1), (), shared)])
    return substitute(guard, dict(zip(adjoint.formals, positions, strict=True)))


def finish(
    subject: tuple[str, tuple[ex.Index, ...]],
    p: Poly,
    rule: Step,
    rules: Rules,
    before: Sequence[Step],
) -> tuple[Poly, StepLog]:
    """Eliminate the deltas of p, simplify, and fold the forward's names; return it with its steps.

    ``rule`` is the step that produced p.
    """
    log: Log = [rule]
    p = eliminate_deltas(p, [r for r in rules if r in DELTA_RULES], log)
    p = simplify(p, rules, log)
    p = without_rectified(p, log)
    return p, StepLog((*before, *with_subject(subject, log)))


def with_subject(subject: tuple[str, tuple[ex.Index, ...]], log: Log) -> list[Step]:
    """Set the subject of each step that has none."""
    return [step if step.subject[0] else replace(step, subject=subject) for step in log]


def _is_copy(adjoint: Adjoint) -> bool:
    """True if the adjoint is a number or another tensor unchanged."""
    if not adjoint.body.terms:
        return True
    if len(adjoint.body.terms) != 1:
        return False
    (t,) = adjoint.body.terms
    return len(t.factors) <= 1 and _is_tensor_product(t)


def _is_product_adjoint(lets: Lets, adjoint: Adjoint) -> bool:
    """True if the adjoint is a product of tensors, with no sum, coefficient or function."""
    if len(adjoint.body.terms) != 1:
        return False
    (t,) = adjoint.body.terms
    read = (lets.get(f.tensor) for f in t.factors if isinstance(f, ex.Access))
    return _is_tensor_product(t) and not any(let is not None and is_named_sum(let) for let in read)


def _is_tensor_product(t: Term) -> bool:
    """True if t is a product of tensors, or a number."""
    plain = not t.factors or t.coef == 1
    return plain and not t.binders and all(isinstance(f, ex.Access) for f in t.factors)
