"""Translate names and axes of the engine back to those of the user's operation."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from derive.algebra import expr as ex
from derive.algebra.factor import factor, to_tree
from derive.algebra.reductions import CONDITIONS
from derive.algebra.rules import Step
from derive.algebra.squares import in_plain_nodes
from derive.algebra.substitution import (
    fresh,
    primed,
    replace,
    replace_inside_out,
    substitute,
    substitution,
)
from derive.calculus.adjoint import Adjoint
from derive.calculus.alpha_renaming import renamed
from derive.calculus.lets import Let, Lets, is_named_sum
from derive.errors import no_recursion_leaves
from derive.notation.operation import Operation
from derive.notation.split import Given, alike, given_axes, letters_of, on_given_axes, with_letters
from derive.notation.unparse import unit_letters
from derive.reports.formula import DerivationStep, Formula
from derive.show.identities import divisors, share, without_nonzero
from derive.show.legible import value_of
from derive.show.rewrites import Power, bounded, gathered, in_names, merged, power_of, with_means


@dataclass(frozen=True)
class PresentationNames:
    """Translates canonical names and axes back to those of the user's operation."""

    display_name: Callable[[str], str]
    owners: Mapping[str, Given]
    letters: Mapping[tuple[str, ...], ex.Index]
    """One index for several adjacent ones, keyed by their extents."""
    find: Callable[[str], Let | None]
    """Returns the definition of a name."""
    alike: Mapping[tuple[str, bool], Sequence[str]]
    """The letters of each (extent, is group)."""
    divisors: frozenset[ex.Expr]
    """Divisors of the equations, which are therefore nonzero."""
    units: frozenset[str]
    """The letters of axes of size 1, which are printed as position 0."""
    integers: frozenset[str]
    """The integer tensors."""
    once: frozenset[str]
    """Sums named by the engine that have a single reader."""
    powers: tuple[Power, ...]
    """The equations that are powers with a symbolic exponent."""
    detaches: bool
    """True if an equation contains detach."""
    _said: dict[ex.Expr, ex.Expr] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, op: Operation, lets: Lets, adjoints: Sequence[Adjoint] = ()) -> PresentationNames:
        """Build it from the user's operation, its definitions, and the adjoints that read them."""
        display_name = lets.display_name
        owners = given_axes(op)
        for adjoint, tensor in lets.derived_from.items():
            if display_name(tensor) in owners:
                owners[display_name(adjoint)] = owners[display_name(tensor)]
        below = frozenset(d for e in op.equations for d in divisors(e.body) if ex.is_number(d))
        parts = (part for e in op.equations for part in ex.walk(e.body))
        detaches = any(isinstance(part, ex.Call) and part.function == "detach" for part in parts)
        whole = frozenset(t.name for t in op.inputs if t.kind == "int")
        whole |= frozenset(e.name for e in op.equations if e.kind == "int")
        found = (power_of(ex.Access(e.name, e.axes), e.body) for e in op.equations)
        powers = tuple(p for p in found if p is not None)
        read = Counter(name for a in adjoints for t in a.body.terms for name in ex.tensors(t))
        named = {a.tensor for a in adjoints}
        known = ((lets.get(t), n) for t, n in read.items() if t not in named)
        once = frozenset(
            let.name
            for let, n in known
            if let and let.internal and n == 1 and (let.kind, let.dtype) == ("sum", "float")
        )
        names = display_name, owners, letters_of(op), lets.get, alike(op)
        return cls(*names, below, unit_letters(op), whole, once, powers, detaches)

    def by_value(self, e: ex.Expr) -> ex.Expr:
        """Return e with each straight-through estimator replaced by its value."""
        return value_of(e) if self.detaches else e

    def written_out(self, e: ex.Expr) -> ex.Expr:
        """Inline the short sums that the engine named in the tree e.

        A logsumexp named by the engine is also inlined where it makes a softmax.
        """

        def opened(part: ex.Expr) -> ex.Expr | None:
            if isinstance(part, ex.Call) and part.function == "exp":
                return self._as_share(part)
            let = self.find(part.tensor) if isinstance(part, ex.Access) else None
            if let is None or not (_is_short(let) or let.name in self.once):
                return None
            assert isinstance(part, ex.Access)
            return self.written_out(factor(let.body_at(part.positions)))

        return replace(e, opened)

    def _as_share(self, e: ex.Call) -> ex.Expr | None:
        """Inline the logsumexp in e = exp(f - lse) if the result is a softmax."""

        def total(part: ex.Expr) -> ex.Expr | None:
            let = self.find(part.tensor) if isinstance(part, ex.Access) else None
            if let is None or not let.internal or (let.kind, let.condition) != ("logsumexp", None):
                return None
            assert isinstance(part, ex.Access)
            body = substitute(let.body, dict(zip(let.formals, part.positions, strict=True)))
            return ex.Reduce(let.kind, let.binders, factor(body))

        if not isinstance(e.args[0], ex.Add):
            return None
        made = ex.Call("exp", (replace(ex.as_expr(e.args[0]), total),))
        return None if made is e or share((made,)) == (made,) else made

    def _in_words(self, e: ex.Expr) -> ex.Expr:
        if e not in self._said:
            # A step ends with the expression that the next one begins with.
            self._said[e] = on_given_axes(renamed(e, self.display_name), self.owners)
        return self._said[e]

    def _apart(self, axes: Sequence[ex.Expr]) -> dict[ex.Index, ex.Expr]:
        """Rename axes whose display name a later axis has."""
        taken: set[str] = set()
        found: dict[ex.Index, ex.Expr] = {}
        for i in reversed(axes):
            new = i
            while isinstance(new, ex.Index) and self.display_name(new.name) in taken:
                new = ex.Index(f"{new.name}'", new.extent, new.group)
            if isinstance(i, ex.Index) and isinstance(new, ex.Index):
                taken.add(self.display_name(new.name))
                if new is not i:
                    found[i] = new
        return found

    def equation(
        self, name: str, axes: Sequence[ex.Expr], *bodies: ex.Expr
    ) -> tuple[str, tuple[ex.Expr, ...], tuple[ex.Expr, ...]]:
        """Return (name, axes, bodies) of name[axes] = body in the user's names."""
        whole: list[ex.Expr] = [ex.Access(name, tuple(axes)), *bodies]
        names = self._apart(axes)
        if names:
            whole = [substitute(e, names) for e in whole]
        display_names = [self._in_words(e) for e in whole]
        access, *rest = with_letters(display_names, self.letters)
        assert isinstance(access, ex.Access)
        read = frozenset[ex.Index]().union(*map(ex.free_indices, rest))
        shown = (ex.num(0) if self._is_unit(p) and p not in read else p for p in access.positions)
        return access.tensor, tuple(shown), tuple(rest)

    def _is_unit(self, position: ex.Expr) -> bool:
        return isinstance(position, ex.Index) and position.extent in self.units

    def in_own_letters(self, e: ex.Expr, axes: Sequence[ex.Expr]) -> ex.Expr:
        """Return the right side of an equation with bound indices in the operation's letters."""
        free = (i for part in (e, *axes) for i in ex.free_indices(part))
        return self._in_own(e, frozenset(i.name for i in free))

    def _in_own(self, e: ex.Expr, taken: frozenset[str]) -> ex.Expr:
        """Rename each bound index whose letter is taken to another letter of its extent.

        Σₘ s[n,m] for Σₙ′ s[n,n′], where the operation has the letters n and m for one extent.
        """
        indices = e.indices if isinstance(e, ex.Reduce) else ()
        own = {i: (i.extent if i.name.startswith("_") else i.name).rstrip("'") for i in indices}
        names: dict[ex.Index, ex.Expr] = {}
        # Indices that keep their letters go first.
        for i in sorted(indices, key=lambda i: own[i] in taken):
            letters = (own[i], *self.alike.get((i.extent, i.group), ()), primed(own[i], taken))
            letter = next(letter for letter in letters if letter not in taken)
            names[i] = ex.Index(letter, i.extent, i.group)
            taken |= {letter}
        renamed: ex.Expr = e.map(substitution(names)) if names else e
        made: ex.Expr = renamed.map(lambda part: self._in_own(part, taken))
        return made


def _is_short(let: Let) -> bool:
    """True if the let is a sum named by the engine and short enough to be an operand."""
    bound = not is_named_sum(let) or any(t.binders for t in let.body.terms)
    return not bound and len(list(ex.walk(let.body))) <= _SHORT


_SHORT = 24


def _factored_tree(e: ex.Expr) -> ex.Expr:
    """Return e as a tree, the tensors of each product sorted (cotangents first).

    A factor common to most terms is factored out first.
    """

    def ordered(part: ex.Expr) -> ex.Expr:
        if not isinstance(part, ex.Mul):
            return part
        args = [a for p in part.args for a in (p.args if isinstance(p, ex.Mul) else (p,))]
        given = [a for a in args if isinstance(a, ex.Access)]
        read = sorted(given, key=ex.sort_key) if len(given) > 1 else given
        if read == given and len(args) == len(part.args):
            return part
        left = iter(read)
        return ex.Mul(tuple(next(left) if isinstance(a, ex.Access) else a for a in args))

    return replace_inside_out(factor(e), ordered)


def formula(adjoint: Adjoint, speech: PresentationNames) -> Formula:
    """Return the adjoint as a factored formula."""
    nested = speech.by_value(speech.written_out(_factored_tree(adjoint.body)))
    name, axes, (body,) = speech.equation(adjoint.name, adjoint.formals, nested)
    return Formula(name, axes, body, partial(_steps, adjoint, speech))


def shown(adjoint: Adjoint, speech: PresentationNames) -> Formula:
    """Return the formula in its short printed form: means, gathers, merged sums.

    A divisor of an equation is nonzero, so brackets [p ≠ 0] about it are dropped.
    """
    f = formula(adjoint, speech)
    if speech.divisors:
        bare = without_nonzero(f.body, speech.divisors)
        f = _with_step(f, "divisor", "[p ≠ 0] = 1 where 1/p has a value", bare)
    bare = in_names(f.body, speech.powers)
    f = _with_step(f, "power", "b^(n − p) = y·b^n where y = b^(−p), (b^(1/p))^p = b", bare)
    f = _with_step(f, "bound", "[x ≥ e]/x = [x ≥ e]/max(x, e)", bounded(f.body))
    if not any(isinstance(part, ex.Reduce) for part in ex.walk(f.body)):
        return f
    bare = gathered(f.body, speech.integers)
    read = _with_step(f, "gather", "Σᵥ [s = v]·f(v) = f(s), 0 where s is no v", bare)
    f = read if read is f or len(str(read)) <= len(str(f)) else f
    f = _with_step(f, "mean", "1/size(k)·Σₖ f(k) = meanₖ(f(k))", with_means(f.body))
    f = _with_step(f, "one sum", "a·Σₖ w·x + Σₖ w·y = Σₖ w·(a·x + y)", merged(f.body))
    return dataclasses.replace(f, body=speech.in_own_letters(f.body, f.axes))


def _with_step(f: Formula, rule: str, states: str, body: ex.Expr) -> Formula:
    """Return the formula with another body and one more step, or itself if nothing changed."""
    if body is f.body:
        return f
    return dataclasses.replace(f, body=body, told=partial(_appended_step, f, rule, states, body))


def _appended_step(f: Formula, rule: str, states: str, body: ex.Expr) -> tuple[DerivationStep, ...]:
    return (*f.steps, DerivationStep(f.name, f.axes, rule, states, f.body, body))


@no_recursion_leaves
def _steps(adjoint: Adjoint, speech: PresentationNames) -> tuple[DerivationStep, ...]:
    """Return the steps of an adjoint, factoring and inlining last.

    Guards that only protect positions under a bracket are not printed, nor is another order of
    factors.
    """
    nested, last = _factored_tree(adjoint.body), to_tree(adjoint.body)
    log = list(adjoint.steps)
    subject = (adjoint.name, adjoint.formals)
    own = [n for n, step in enumerate(log) if step.subject == subject]
    if own:
        log[own[-1]] = dataclasses.replace(log[own[-1]], after=adjoint.body)
    name, axes, bodies = speech.equation(*subject, last, nested)
    alike = len({DerivationStep(name, axes, "", "", e, e).text() for e in bodies}) == 1
    rule = None if alike and own else _factoring(last, nested)
    if own and rule is None:
        log[own[-1]] = dataclasses.replace(log[own[-1]], after=nested)
    elif nested is not last:
        log.append(Step(*(rule or _FACTOR), last, nested, subject))
    last, nested = nested, speech.written_out(nested)
    if nested is not last:
        log.append(Step("write out", "a name equals its definition", last, nested, subject))
    last, nested = nested, speech.by_value(nested)
    if nested is not last:
        states = "x + detach(y − x) = y in value"
        log.append(Step("straight through", states, last, nested, subject))
    return steps_of(log, speech)


_FACTOR = "factor", "a·b + a·c = a·(b + c)"


def _factoring(e: ex.Expr, nested: ex.Expr) -> tuple[str, str] | None:
    """Return the rule that took factors of e out, and its identity; None for another order."""

    def products_of_sums(tree: ex.Expr) -> int:
        products = (part for part in ex.walk(tree) if isinstance(part, ex.Mul))
        return sum(isinstance(a, ex.Add) for part in products for a in part.args)

    def summands(tree: ex.Expr) -> set[frozenset[ex.Expr]]:
        sums = (part for part in ex.walk(tree) if isinstance(part, ex.Reduce))
        return {frozenset(ex.flat_operands(part.body, ex.Mul)) for part in sums}

    if products_of_sums(e) != products_of_sums(nested):
        return _FACTOR
    if summands(e) != summands(nested):
        return "constant factor", "Σₖ a·f(k) = a·Σₖ f(k)"
    return None


def steps_of(log: Sequence[Step], speech: PresentationNames) -> tuple[DerivationStep, ...]:
    """Return the steps; all steps of one subject use the same letters."""
    about: dict[tuple[str, tuple[ex.Index, ...]], list[Step]] = {}
    for step in log:
        about.setdefault(step.subject, []).append(step)
    told: dict[Step, DerivationStep] = {}
    for subject, steps in about.items():
        bodies = [to_tree(e) for step in steps for e in (step.before, step.after)]
        name, axes, display_names = speech.equation(*subject, *bodies)
        for step, before, after in zip(steps, display_names[::2], display_names[1::2], strict=True):
            told[step] = DerivationStep(name, axes, step.rule, step.states, before, after)
    return tuple(told[step] for step in log)


def _let_formula(let: Let, speech: PresentationNames) -> Formula:
    """Return a definition of the engine as an equation."""
    body = factor(let.body)
    condition = None if let.condition is None else factor(let.condition)
    if let.kind == "others":
        (k,) = let.binders
        other = fresh(k, let.formals)
        body = substitute(body, {k: other})
        apart: ex.Expr = ex.Rel("!=", other, k)
        if condition is not None:
            apart = ex.And((substitute(condition, {k: other}), apart))
        body = ex.Reduce("prod", (other,), body, apart)
    elif let.kind != "sum":
        if let.kind in CONDITIONS and isinstance(body, ex.Iverson):
            body = body.condition
        body = ex.Reduce(let.kind, let.binders, body, condition)
    name, axes, (body,) = speech.equation(let.name, let.formals, in_plain_nodes(body))
    return Formula(name, axes, body)


def unguarded_tensors(e: ex.Expr) -> set[str]:
    """Return the tensors read inside e, except in conditions that only guard positions."""

    def bare(part: ex.Expr) -> tuple[ex.Expr, ...]:
        return (part.position,) if isinstance(part, ex.Guard) else part.parts()

    return {part.tensor for part in ex.walk(e, bare) if isinstance(part, ex.Access)}


def definitions(
    lets: Lets, expressions: Sequence[ex.Expr], speech: PresentationNames
) -> tuple[Formula, ...]:
    """Return the engine's definitions that the expressions read, in order of definition."""
    wanted: set[str] = set()
    pending = list(expressions)
    while pending:
        for tensor in unguarded_tensors(pending.pop()):
            let = lets.get(tensor)
            if let is not None and let.internal and let.name not in wanted:
                wanted.add(let.name)
                pending += [let.body, *filter(None, [let.condition])]
    return tuple(_let_formula(let, speech) for let in lets if let.name in wanted)
