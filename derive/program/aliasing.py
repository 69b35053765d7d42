"""Results that alias nothing else, so that each may be changed in place.

    an output that is a view of a local tensor       rt.no_view(view); nothing is copied
    an output that aliases an input or an output     view.clone()
    a gradient that aliases another that is needed   view.clone()

Autograd forbids in-place changes of a view returned by a Function. It also gives a gradient the
strides of its output: those of overlapping windows would silently make it wrong.

A gradient may be the cotangent itself; autograd copies it if another holder exists. It does not
detect two views of the same memory, and ``torch.autograd.grad`` returns one tensor for two inputs
as it is, so that scaling one gradient would scale the other. All but one of them are copied if
several are needed; disjoint parts of a tensor stay views.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from derive.program import flop_rules
from derive.program.cse import Line
from derive.program.dataflow import Aliases, Forward, Owner
from derive.program.gradient_predication import any_wanted
from derive.program.program import Program
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    Conditional,
    FunctionCall,
    Literal,
    MethodCall,
    Name,
    Subscript,
    names_in,
    operands,
    subexpressions,
)
from derive.program.torch_ops import torch_op

# -------------------------------------------------------------------- outputs


def unalias_outputs(
    lines: Sequence[Line], outputs: Collection[str], inputs: Iterable[str]
) -> list[Line]:
    """Return the lines with each output, at its last line, a tensor that is not a view."""
    aliases = Aliases(inputs)
    claimed: set[Owner] = set(aliases.known)
    last = {line.name: n for n, line in enumerate(lines)}
    result = []
    for n, line in enumerate(lines):
        if line.name in outputs and last[line.name] == n:
            line = line.having(_own_tensor(line.code, aliases, claimed))
            aliases.run([line])
            claimed |= aliases.known[line.name].owners
        else:
            aliases.run([line])
        result.append(line)
    return result


def copy_aliases(
    lines: Sequence[Line], results: Mapping[str, Code], given: Collection[str]
) -> dict[str, Code]:
    """Return the results, copied if they alias each other or an argument in ``given``.

    Views of local tensors stay: outside autograd they may be changed in place.
    """
    aliases = Aliases(given)
    aliases.run(lines)
    claimed: set[Owner] = set(given)
    made = {}
    for name, code in results.items():
        owners = aliases.of(code).owners
        made[name] = MethodCall(code, "clone") if owners & claimed else code
        claimed |= owners
    return made


def is_rearrangement(
    lines: Sequence[Line], outputs: Collection[str], inputs: Iterable[str]
) -> bool:
    """True if all outputs are views of inputs, which torch's autograd tracks itself.

    A recurrence of one step is a view of its operand; one of several computes.
    """
    parts = (part for line in lines for part in subexpressions(line.code))
    if any(torch_op(part).flops is flop_rules.recurrence for part in parts):
        return False
    aliases = Aliases(inputs)
    given = set(aliases.known)
    aliases.run(lines)
    found = [aliases.known[name] for name in outputs]
    return all(value.view and value.owners <= given for value in found)


def _own_tensor(code: Code, aliases: Aliases, claimed: set[Owner]) -> Code:
    if isinstance(code, Conditional):
        branches = (_own_tensor(part, aliases, claimed) for part in (code.then, code.other))
        return Conditional(code.test, *branches)
    found = aliases.of(code)
    if found.overlaps or found.owners & claimed:
        match code:
            case MethodCall(Conditional(test, then, other), "to", given):
                branches = (MethodCall(part, "to", given) for part in (then, other))
                return _own_tensor(Conditional(test, *branches), aliases, claimed)
        return MethodCall(code, "clone")
    return FunctionCall("rt.no_view", (code,)) if found.view else code


# -------------------------------------------------------------------- gradients


def gradients_apart(program: Program, lines: Sequence[Line]) -> tuple[Line, ...]:
    """Return the lines of a backward in which no two gradients alias."""
    read = {name for x in lines for name in names_in(x.code)}
    aliases = Aliases(read)
    parts = _Parts(aliases)
    for x in lines:
        part = parts.of(x.code)
        aliases.run([x])
        parts.known[x.name] = part
    known = {t: aliases.known[g] for t, g in program.gradients.items() if g in aliases.known}
    inputs, given = list(known), {name for _, name in program.cotangents if name is not None}

    def share(t: str, u: str) -> bool:
        a, b = (parts.known.get(program.gradients[x]) for x in (t, u))
        apart = a is not None and b is not None and (a.ends_before(b) or b.ends_before(a))
        return bool(known[t].owners & known[u].owners) and not apart

    places = {name: n for n, name in enumerate(program.inputs)}
    # The cotangent itself is never copied here, so its views are.
    turn = sorted(inputs, key=lambda t: (known[t].tensor not in given, inputs.index(t)))
    result = list(lines)
    for n, t in enumerate(turn):
        others = tuple(u for u in inputs if u in turn[:n] and share(t, u))
        if others and known[t].tensor not in given:
            name = Name(program.gradients[t])
            found = [name.id in (x.name, *names_in(x.code)) for x in result]
            at = len(found) - found[::-1].index(True)
            last, whole = result[at - 1], name
            if last.name == name.id and isinstance(last.code, Name):
                whole = last.code
                del result[at - 1 : at]
                at -= 1
            overlaps = known[t].overlaps
            copy = FunctionCall("rt.copied", (whole,)) if overlaps else MethodCall(whole, "clone")
            code = Conditional(any_wanted(others, places), copy, whole)
            result.insert(at, Line(name.id, code, needs=(t,)))
    return tuple(result)


@dataclass(frozen=True)
class _Part:
    """A run of positions along an axis of a tensor."""

    tensor: Owner | None
    axis: Code
    start: Code
    length: Code

    def ends_before(self, other: _Part) -> bool:
        """True if this part provably ends at or before the start of the other."""
        if (self.tensor, self.axis) != (other.tensor, other.axis):
            return False
        gap = _counted_terms(other.start)
        gap.subtract(_counted_terms(self.start))
        gap.subtract(_counted_terms(self.length))
        return all(n >= 0 and _is_nonnegative_size(x) for x, n in gap.items() if n)


class _Parts(Forward[_Part | None]):
    """The part of a tensor that each value is a view of; None if it is none, or unknown."""

    def __init__(self, aliases: Aliases) -> None:
        super().__init__({})
        self.aliases = aliases

    def of(self, code: Code) -> _Part | None:
        while not isinstance(code, Name):
            if isinstance(code, Attribute) or not torch_op(code).view:
                return None
            match code:
                case MethodCall(Name() as whole, "narrow", (axis, start, length)):
                    return _Part(self.aliases.of(whole).tensor, axis, start, length)
                case MethodCall(Name() as whole, "select", (axis, start)):
                    return _Part(self.aliases.of(whole).tensor, axis, start, Literal("1"))
            code = code.parts()[0]
        return self.known.get(code.id)


def _counted_terms(code: Code) -> Counter[Code]:
    """Return the terms of a sum with their counts; an integer counts as a multiple of 1."""
    found: Counter[Code] = Counter()
    for term in operands(code, "+"):
        if isinstance(term, Literal) and term.text.isdigit():
            found[Literal("1")] += int(term.text)
        else:
            found[term] += 1
    return found


def _is_nonnegative_size(code: Code) -> bool:
    """True if the number is provably nonnegative."""
    match code:
        case Literal(words):
            return words.isdigit()
        case Binary("*", a, b):
            return _is_nonnegative_size(a) and _is_nonnegative_size(b)
        case Subscript(Name(name)):
            return name.endswith("_shape")
        case Subscript(Attribute(_, "shape")):
            return True
    return False
