"""What the backward of the code reads of the forward: what is saved, what is computed again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from derive.algebra.expr import Access, Expr, tensors
from derive.algebra.match import match
from derive.algebra.poly import Poly, as_atom, atom
from derive.algebra.substitution import replace as rewritten
from derive.algebra.substitution import replace_inside_out
from derive.calculus.alpha_renaming import renamed
from derive.calculus.lets import Let, Lets, inline
from derive.lowering.program import Lowered
from derive.notation.operation import Operation
from derive.program.program import Program
from derive.reports.formula import Formula
from derive.reports.presentation_names import PresentationNames, definitions, unguarded_tensors


@dataclass(frozen=True)
class Reuse:
    """What a backward has of its forward.

    Attributes:
        saved: tensor -> the saved tensor that has its value, or that stands for it wherever the
            backward reads it.
        again: the equations that the backward reads and the forward does not save.
        kept: the definitions of saved tensors that no equation names.
    """

    saved: Mapping[str, str]
    again: frozenset[str]
    kept: tuple[Formula, ...]

    def under(self, display_name: Callable[[str], str]) -> Reuse:
        """Return the same under other names."""
        own = {display_name(name): display_name(other) for name, other in self.saved.items()}
        kept = ((display_name(f.name), f.axes, renamed(f.body, display_name)) for f in self.kept)
        again = frozenset(map(display_name, self.again))
        return Reuse(own, again, tuple(Formula(*parts) for parts in kept))


def reuse_of(op: Operation, lowered: Lowered, program: Program) -> Reuse:
    """Return what the backward of one option has of its forward, in the names of its code."""
    lets, backward = lowered.given.lets, lowered.given.backward
    every = (*backward.adjoints, *backward.gradients)
    found = {lets.display_name(let.name): let for let in lets}
    held = [found[s.name] for s in program.saved if s.name in found]
    same = _by_value(lets, held)
    read = _Read(lets, held, {let.name for let in held} | set(same))
    for a in every:
        read.follow(a.body)
    shorter = lets.apart()
    shorter.by_name |= read.shorter
    own = (let for let in held if let.name not in same.values())
    known = (*own, *map(lets.get, same))
    unnamed = [let for let in known if let and let.name not in lets.given]
    speech = PresentationNames.of(op, lets, every)
    names = {n: r for n, r in read.within.items() if n not in read.again}
    names |= {let.name: let.name for let in held} | same
    return Reuse(
        saved={s.name: s.name for s in program.saved if s.name not in found}
        | {lets.display_name(name): lets.display_name(other) for name, other in names.items()},
        again=frozenset(lets.display_name(name) for name in read.again if name in lets.given),
        kept=definitions(shorter, [let.access for let in unnamed], speech),
    )


@dataclass
class _Read:
    """What formulas read, down to saved values.

    ``again`` are the names that are not saved, and ``within`` those for whose reads a result of a
    kernel stands. ``shorter`` are these results, with the first expression that each stands for.
    """

    lets: Lets
    held: Sequence[Let]
    saved: set[str]
    again: set[str] = field(default_factory=set)
    within: dict[str, str] = field(default_factory=dict)
    shorter: dict[str, Let] = field(default_factory=dict)

    def follow(self, body: Expr) -> None:
        """Take in what the body reads, and what computing that reads."""
        for name in sorted(unguarded_tensors(self._in_results(body))):
            let = self.lets.get(name)
            if let is not None and name not in self.saved | self.again:
                self.again.add(name)
                for part in (let.body, *filter(None, [let.condition])):
                    self.follow(part)

    def _in_results(self, e: Expr) -> Expr:
        """Return e with a read in place of each part whose value is a result of a kernel."""
        results = [let for let in self.held if let.result]

        def read(part: Expr) -> Expr | None:
            for let in results:
                at = _position(self.lets, part, let)
                if at is not None:
                    if at == let.formals and part is not let.body:
                        body = part if isinstance(part, Poly) else atom(part)
                        self.shorter.setdefault(let.name, replace(let, body=body))
                    self.within |= dict.fromkeys(tensors(part) & set(self.lets.given), let.name)
                    return Access(let.name, at)
            return None

        return rewritten(e, read) if results else e


def _by_value(lets: Lets, held: Sequence[Let]) -> dict[str, str]:
    """Return the names whose value a result of a kernel is, each with the name of the result."""
    found = {}
    for result in (let for let in held if let.result):
        same = as_atom(result.body)
        if isinstance(same, Access) and same.positions == result.formals:
            found[same.tensor] = result.name
        for let in lets.given.values():
            if let.kind == "sum" and _position(lets, let.body, result) == let.formals:
                found[let.name] = result.name
    return found


def _position(lets: Lets, e: Expr, result: Let) -> tuple[Expr, ...] | None:
    """Return where the result has the value of e; None if it has it nowhere."""
    target = _in_inputs(lets, e)
    target = target if isinstance(target, Poly) else atom(target)
    for binding in match(result.body, target, frozenset(result.formals), {}):
        if all(i in binding for i in result.formals):
            return tuple(binding[i] for i in result.formals)
    return None


def _in_inputs(lets: Lets, e: Expr) -> Expr:
    """Return e with the sums that it reads written out."""
    plain = [let for let in reversed(lets.by_name.values()) if let.kind == "sum" and not let.result]

    def written_out(part: Expr) -> Expr:
        if isinstance(part, Poly):
            for let in plain:
                part = inline(part, let)
        return part

    before: Expr | None = None
    while e is not before:
        before, e = e, replace_inside_out(e, written_out)
    return e
