"""Removes guards that an enclosing choice makes redundant, in code that is not differentiated.

    where(m, f(where(m, x, 1)), 0)  =  where(m, f(x), 0)

for elementwise f: where m fails, the value is not selected. The guard only serves the derivative,
which would be the product of 0, from the outer choice, and of an infinite slope. Code that may be
differentiated decides at run time: ``rt.guarded(x, m, 1)``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from operator import and_

from derive.program.cse import NUMBER_CALLS, Line, is_size
from derive.program.dataflow import Backward
from derive.program.torch_ir import (
    Binary,
    Code,
    Conditional,
    FunctionCall,
    Literal,
    MethodCall,
    Name,
    Unary,
    operands,
)
from derive.program.torch_ops import torch_op

Masks = frozenset[Code]
"""Conditions that all hold where a value is read."""

_EVERYWHERE: Masks = frozenset()
_CHOICES = ("torch.where", "rt.where")
_ARITHMETIC = ("+", "-", "*", "/", "**")


def unguarded(
    lines: Sequence[Line],
    results: Collection[str],
    numbers: Collection[str],
    differentiable: bool = False,
) -> list[Line]:
    """Return the lines without such guards, and without dead lines.

    ``results`` are the returned names, ``numbers`` those of parameters. The guards of
    ``differentiable`` lines become conditional.
    """
    times = Counter(line.name for line in lines)
    once = {line.name: line.code for line in lines if times[line.name] == 1}
    read = _Read(once, results, numbers, differentiable)
    walked = read.walk(lines)
    made = [lines[n].having(read.without(lines[n].code, masks)) for n, masks in walked]
    return made[::-1]


class _Read(Backward[Masks]):
    """Removes guards; the use of a name are the masks under which all later lines read it."""

    def __init__(
        self,
        once: Mapping[str, Code],
        results: Collection[str],
        numbers: Collection[str],
        differentiable: bool,
    ) -> None:
        super().__init__(dict.fromkeys(results, _EVERYWHERE), and_)
        self.once, self.numbers, self.differentiable = once, numbers, differentiable

    def without(self, code: Code, masks: Masks) -> Code:
        """Return the code of a value that is read where all of the masks hold."""
        match code:
            case Name(name):
                self.note(name, masks)
                return code
            case FunctionCall(name, (test, then, other)) if name in _CHOICES:
                # A dropped tensor may contribute axes to the result.
                plain = isinstance(other, Literal) and not self._is_number(then)
                if plain and self._follows(test, masks):
                    kept = self.without(then, masks)
                    if not self.differentiable:
                        return kept
                    asked = self.without(test, _EVERYWHERE)
                    return FunctionCall("rt.guarded", (kept, asked, other))
                then = self.without(then, masks | self._parts(test))
                other = self.without(other, masks)
                return FunctionCall(name, (self.without(test, _EVERYWHERE), then, other))
            case Conditional(test, then, other):
                test = self.without(test, _EVERYWHERE)
                return Conditional(test, self.without(then, masks), self.without(other, masks))
        inside = masks if _is_elementwise_code(code) else _EVERYWHERE
        whole: Code = code.map(lambda part: self.without(part, inside))
        return whole

    def _is_number(self, code: Code, within: tuple[str, ...] = ()) -> bool:
        """True for a number of Python, to which the choice gives the axes of its test.

        A line may assign to an argument what it reads of it: ``within`` are the names met.
        """
        match code:
            case Name(name) if name in self.numbers:
                return True
            case Name(name) if name in self.once and name not in within:
                return self._is_number(self.once[name], (*within, name))
            case FunctionCall(name):
                return name.startswith(NUMBER_CALLS)
            case Conditional(_, then, other):
                return all(self._is_number(part, within) for part in (then, other))
            case Unary() | Binary():
                return all(self._is_number(part, within) for part in code.parts())
        return is_size(code)

    def _follows(self, test: Code, masks: Masks) -> bool:
        """True if the masks imply the test."""

        def known(part: Code) -> bool:
            made_of = self.once.get(part.id) if isinstance(part, Name) else None
            return part in masks or (made_of is not None and self._follows(made_of, masks))

        return all(map(known, operands(test, "&")))

    def _parts(self, test: Code) -> Masks:
        """Return the conditions that the test implies."""
        found = set()
        for part in operands(test, "&"):
            found.add(part)
            if isinstance(part, Name) and part.id in self.once:
                found |= self._parts(self.once[part.id])
        return frozenset(found)


def _is_elementwise_code(code: Code) -> bool:
    match code:
        case Binary(sign):
            return sign in _ARITHMETIC
        case Unary("-"):
            return True
        case MethodCall() | FunctionCall():
            op = torch_op(code)
            return (op.over == "_" and op.shape is None) or code.name in ("pow", "torch.pow")
    return False
