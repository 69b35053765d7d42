"""Which tensors, equations and parameters are integers or conditions, and which have a gradient."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from derive.algebra.expr import (
    Access,
    Add,
    And,
    Call,
    Const,
    Expr,
    Index,
    Iverson,
    Mul,
    Not,
    Num,
    Or,
    Param,
    Pow,
    Reduce,
    Rel,
    Size,
    Where,
    walk,
)
from derive.algebra.functions import OF_INTEGERS
from derive.spec.affine import affine
from derive.spec.declare import Declared, constant
from derive.spec.operation import Kind
from derive.spec.raw import fail
from derive.spec.scope import Reading

__all__ = ["Kinds"]


class Kinds:
    """``of`` has the kind of every input and equation, ``integers`` the integer parameters."""

    def __init__(
        self,
        declared: Declared,
        bodies: Mapping[str, Expr],
        readings: Sequence[Reading],
        truths: Iterable[str],
        sizes: Iterable[Expr],
    ) -> None:
        self.of: dict[str, Kind] = {}
        self.integers = {p.name for size in sizes for p in walk(size) if isinstance(p, Param)}
        self._declared = declared
        self._bodies = bodies
        self._must: dict[str, None] = {}
        truths = set(truths)
        self._positions(readings)
        self._demand()
        self._inputs(truths)
        self._compared()
        for name, body in bodies.items():
            self.of[name] = self._kind(body)
            if name in self._must and self.of[name] != "int":
                fail(
                    declared.equations[name].at,
                    f"{name} is used as an index and is not an integer; its equation must be made "
                    "of integers alone, without division",
                )

    def _positions(self, readings: Sequence[Reading]) -> None:
        for reading in readings:
            for position in reading.positions:
                found = affine(position)
                for access in found.tensors if found is not None else ():
                    self._must.setdefault(access.tensor)
                self.integers.update(p.name for p in walk(position) if isinstance(p, Param))

    def _demand(self) -> None:
        """What an integer equation is made of is an integer too."""
        for name, body in reversed(list(self._bodies.items())):
            if name in self._must:
                for part in _values(body):
                    if isinstance(part, Access):
                        self._must.setdefault(part.tensor)
                    elif isinstance(part, Param):
                        self.integers.add(part.name)

    def _inputs(self, truths: set[str]) -> None:
        for tensor in self._declared.tensors.values():
            name = tensor.name
            kind: Kind = "float"
            if name in truths:
                kind = "bool"
            elif name in self._must or tensor.kind == "int":
                kind = "int"
            if name in self._must and (tensor.kind in ("bool", "float") or kind == "bool"):
                what = tensor.kind or "bool"
                at = self._declared.as_index.get(name, tensor.at)
                fail(
                    at, f"{name} is used as an index and is a {what} tensor; declare it {name}: int"
                )
            self.of[name] = kind

    def _compared(self) -> None:
        """A parameter that is only compared with positions, sizes and integer tensors is one.

        Its default tells otherwise if it is not whole, and a number that it is compared with tells
        nothing: ``[p > 0]`` is asked of any number.
        """
        among: set[str] = set()
        others: set[str] = set()
        for body in self._bodies.values():
            for part in walk(body):
                if not isinstance(part, Rel):
                    others.update(p.name for p in part.parts() if isinstance(p, Param))
                    continue
                for one, other in ((part.left, part.right), (part.right, part.left)):
                    if isinstance(one, Param):
                        if not (_only(other, self.of) and self._kind(other) == "int"):
                            others.add(one.name)
                        elif any(isinstance(p, Index | Size | Access) for p in walk(other)):
                            among.add(one.name)
            if isinstance(body, Param):
                others.add(body.name)
        self.integers.update(name for name in among - others if self._may_be_whole(name))

    def _may_be_whole(self, parameter: str) -> bool:
        written = self._declared.parameters[parameter].value
        if written is None:
            return True
        given = constant(written, f"the default of {parameter}")
        return isinstance(given, Num) and given.value.denominator == 1

    def _kind(self, e: Expr) -> Kind:
        match e:
            case Num(value):
                return "int" if value.denominator == 1 else "float"
            case Index() | Size() | Iverson():
                return "int"
            case Param(name):
                return "int" if name in self.integers else "float"
            case Access(tensor):
                return self.of[tensor]
            case Rel() | And() | Or() | Not():
                return "bool"
            case Add(args) | Mul(args):
                return self._common(args)
            case Where(_, then, other):
                return self._common((then, other))
            case Pow(base, Num(value)) if value.denominator == 1 and value >= 0:
                return self._kind(base)
            case Call(function, args) if function in OF_INTEGERS:
                return self._common(args)
            case Reduce(kind, _, body):
                if kind in ("any", "all"):
                    return "bool"
                if kind in ("argmax", "argmin"):
                    return "int"
                return "float" if kind in ("mean", "logsumexp") else self._kind(body)
        assert isinstance(e, Const | Call | Pow)
        return "float"

    def _common(self, args: Iterable[Expr]) -> Kind:
        return "int" if all(self._kind(a) in ("int", "bool") for a in args) else "float"


def _only(e: Expr, known: Mapping[str, Kind]) -> bool:
    return all(a.tensor in known for a in walk(e) if isinstance(a, Access))


def _values(e: Expr) -> Iterator[Expr]:
    """What the value of e is made of: not its conditions, nor positions, nor what argmax ranks."""
    match e:
        case Iverson() | Rel() | And() | Or() | Not():
            return
        case Reduce(kind, _, body):
            if kind not in ("argmax", "argmin", "any", "all"):
                yield from _values(body)
        case Where(_, then, other):
            yield from _values(then)
            yield from _values(other)
        case Access() | Param():
            yield e
        case _:
            for part in e.parts():
                yield from _values(part)
