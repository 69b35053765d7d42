"""Infer kinds: which tensors, equations and parameters are float, int or bool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from derive.algebra import expr as ex
from derive.algebra.affine import Affine, affine
from derive.algebra.functions import OF_INTEGERS, STEPS
from derive.algebra.reductions import CONDITIONS, REDUCTIONS
from derive.algebra.substitution import replace_inside_out
from derive.notation.operation import Equation, Kind
from derive.notation.smart_constructors import whole
from derive.notation.symbols import Declared, constant
from derive.notation.syntax import AccessSite, fail, show


class Kinds:
    """``of`` has the kind of every input and equation, ``integers`` the integer parameters."""

    def __init__(
        self,
        declared: Declared,
        bodies: Mapping[str, ex.Expr],
        readings: Sequence[AccessSite],
        truths: Iterable[str],
        sizes: Iterable[ex.Expr],
    ) -> None:
        self.of: dict[str, Kind] = {}
        self.integers = {p.name for size in sizes for p in ex.walk(size) if isinstance(p, ex.Param)}
        self._declared = declared
        self._bodies = bodies
        self._must: dict[str, None] = {}
        self._floors: dict[str, str] = {}
        self._truths = set(truths)
        self._positions(readings)
        self._demand()
        self._labels = self._compared_with_positions()
        self._inputs()
        self._compared()
        for name, body in bodies.items():
            self.of[name] = self._kind(body)
            if name in self._must and self.of[name] != "int":
                fail(
                    declared.equations[name].at,
                    "not-an-integer",
                    f"{name} is used as an index but is not an integer; its equation must contain "
                    "only integers, without division, or int(floor(...))",
                )
            self._check_whole(name, body)

    def _positions(self, readings: Sequence[AccessSite]) -> None:
        for reading in readings:
            for position in reading.positions:
                found = affine(position)
                for access in found.tensors if found is not None else ():
                    if isinstance(access, ex.Access):
                        self._must.setdefault(access.tensor)
                operands = (p for part in _outside(position) for p in _operands_of_position(part))
                self.integers.update(p.name for p in operands if isinstance(p, ex.Param))

    def _demand(self) -> None:
        """Require the operands of an integer equation to be integers."""
        for name, body in reversed(list(self._bodies.items())):
            if name in self._must:
                calls = (e for e in _outside(body) if isinstance(e, ex.Call))
                inside = {a.tensor for e in calls if e.function in STEPS for a in ex.accesses(e)}
                self._floors |= dict.fromkeys(sorted(inside), name)
                for part in _value_operands(body):
                    if isinstance(part, ex.Access):
                        self._must.setdefault(part.tensor)
                    elif isinstance(part, ex.Param):
                        self.integers.add(part.name)

    def _compared_with_positions(self) -> set[str]:
        """Return undeclared inputs that are only compared with positions and integers: [T[n] == c].

        They are integer tensors, unless no float tensor would be left.
        """
        inputs = self._declared.tensors
        compared, elsewhere = _comparisons(self._bodies.values())
        only = {n for n in compared if n in inputs and inputs[n].kind is None} - elsewhere
        whole = {_POSITION, *self._must, *(n for n, t in inputs.items() if t.kind == "int")}
        while other := {n for n in only if not all(map((whole | only).issuperset, compared[n]))}:
            only -= other
        found = {n for n in only if _POSITION in set().union(*compared[n])}
        while more := {n for n in only - found if found & set().union(*compared[n])}:
            found |= more
        numbers = {n for n, t in inputs.items() if t.kind in (None, "float")}
        return found if numbers - found - self._must.keys() - self._truths else set()

    def _inputs(self) -> None:
        for tensor in self._declared.tensors.values():
            name = tensor.name
            kind: Kind = "float"
            if name in self._truths:
                kind = "bool"
            elif name in self._must or name in self._labels or tensor.kind == "int":
                kind = "int"
            if name in self._must and (tensor.kind in ("bool", "float") or kind == "bool"):
                what = tensor.kind or "bool"
                at = self._declared.as_index.get(name, tensor.at)
                how = self._declared.how.integer(name)
                message = f"{name} is used as an index but is a {what} tensor; declare it {how}"
                fail(at, "not-an-integer", message)
            if kind == "int" and tensor.kind is None and name in self._floors:
                whole = self._floors[name]
                fail(
                    self._declared.equations[whole].at,
                    "not-an-integer",
                    f"{whole} is used as an index and contains the floor of {name}: if {name} is "
                    "a float, write int(floor(...)), an integer; otherwise declare "
                    f"{self._declared.how.integer(name)}",
                )
            self.of[name] = kind
        self._not_all_conditions()

    def _not_all_conditions(self) -> None:
        """Refuse an operation without a float tensor if a bool kind was inferred."""
        if "float" in self.of.values():
            return
        for name, tensor in self._declared.tensors.items():
            if self.of[name] == "bool" and tensor.kind is None:
                e = self._declared.as_condition[name]
                fail(
                    e.at,
                    "number-or-condition",
                    f"{show(e)} is a condition here, so {name} is a bool tensor, and no other "
                    f"input has a gradient; if {name} holds numbers, compare it, {show(e)} != 0",
                )

    def _compared(self) -> None:
        """Infer parameters that are only compared with positions, sizes and integer tensors as int.

        A default that is not an integer prevents this. A comparison with a number has no effect:
        ``[p > 0]`` is valid for any number.
        """
        among: set[str] = set()
        others: set[str] = set()
        for body in self._bodies.values():
            for part in ex.walk(body):
                if not isinstance(part, ex.Rel):
                    others.update(p.name for p in part.parts() if isinstance(p, ex.Param))
                    continue
                for one, other in ((part.left, part.right), (part.right, part.left)):
                    if isinstance(one, ex.Param):
                        known = all(a.tensor in self.of for a in ex.accesses(other))
                        parts = map(type, ex.walk(other))
                        if not (known and self._kind(other) == "int"):
                            others.add(one.name)
                        elif not {ex.Index, ex.Size, ex.Access}.isdisjoint(parts):
                            among.add(one.name)
            if isinstance(body, ex.Param):
                others.add(body.name)
        self.integers.update(name for name in among - others if self._may_be_whole(name))

    def _may_be_whole(self, parameter: str) -> bool:
        written = self._declared.parameters[parameter].value
        if written is None:
            return True
        given = constant(written, f"the default of {parameter}")
        return isinstance(given, ex.Num) and given.value.denominator == 1

    def _kind(self, e: ex.Expr) -> Kind:
        match e:
            case ex.Access(tensor):
                return self.of[tensor]
            case ex.Rel() | ex.And() | ex.Or() | ex.Not():
                return "bool"
            case ex.Reduce(kind) if kind in CONDITIONS:
                return "bool"
        return "int" if self._integral(e) else "float"

    def _integral(self, e: ex.Expr, whole: bool = False) -> bool:
        """True if e has an integer kind, or with ``whole`` an integer value of any kind."""
        match e:
            case ex.Num(value):
                return value.denominator == 1
            case ex.Param(name):
                return name in self.integers
            case ex.Access(tensor):
                made = self._bodies.get(tensor) if whole and self.of[tensor] == "float" else None
                return self.of[tensor] != "float" if made is None else self._integral(made, True)
            case ex.Call(function, args) if function in OF_INTEGERS:
                known = whole and function in STEPS
                finite = (a for a in args if not _is_infinite(a))
                return known or all(self._integral(a, whole) for a in finite)
            case ex.Add(args) | ex.Mul(args):
                return all(self._integral(a, whole) for a in args)
            case ex.Where(_, then, other):
                return self._integral(then, whole) and self._integral(other, whole)
            case ex.Pow(base, ex.Num(value)) if value.denominator == 1 and value >= 0:
                return self._integral(base, whole)
            case ex.Reduce(kind, _, body):
                dtype = REDUCTIONS[kind].dtype
                return dtype != "float" if dtype else self._integral(body, whole)
        always = ex.Index | ex.Size | ex.Iverson | ex.Rel | ex.And | ex.Or | ex.Not
        return isinstance(e, always) or (isinstance(e, ex.Call) and e.function == "int")

    def exact(self, body: ex.Expr) -> ex.Expr:
        """Replace functions of integers that would be computed in floating point.

        int(floor(a/b)) is integer division, since u/3 can be wrong for some multiples u of 3.
        clamp(a, b, inf) is maximum(a, b): they differ in the slope at ties, which integers lack.
        """

        def of_integers(e: ex.Expr) -> ex.Expr:
            match e:
                case ex.Call("int", (value,)):
                    made = whole(value, lambda x: not isinstance(x, ex.Num) and self._integral(x))
                    return e if made is None else ex.Call("int", (made,))
                case ex.Call("clamp", (value, low, high)) if self._integral(e):
                    if _is_infinite(high):
                        return ex.Call("maximum", (value, low))
                    return ex.Call("minimum", (value, high)) if _is_infinite(low) else e
            return e

        return replace_inside_out(body, of_integers)

    def _check_whole(self, name: str, body: ex.Expr) -> None:
        """Refuse ``int`` of a value that may not be an integer: the rounding must be explicit."""
        for part in ex.walk(body):
            if isinstance(part, ex.Call) and part.function == "int":
                if not self._integral(part.args[0], whole=True):
                    fail(
                        self._declared.equations[name].at,
                        "not-an-integer",
                        f"the argument of int(...) in {name} may not be an integer; write "
                        "int(floor(...)), int(ceil(...)) or int(round(...))",
                    )


def _is_infinite(e: ex.Expr) -> bool:
    return e in (ex.Const("inf"), -ex.Const("inf"))


def _outside(e: ex.Expr) -> Iterator[ex.Expr]:
    """Yield e and its parts, except the arguments of ``int``."""
    yield e
    if not (isinstance(e, ex.Call) and e.function == "int"):
        for part in e.parts():
            yield from _outside(part)


def _operands_of_position(e: ex.Expr) -> Iterable[ex.Expr]:
    """Return e, or the operands of ``int`` without a function like floor: they must be integers."""
    if not (isinstance(e, ex.Call) and e.function == "int"):
        return (e,)
    steps = any(isinstance(p, ex.Call) and p.function in STEPS for p in ex.walk(e))
    return () if steps else _value_operands(e.args[0])


_POSITION, _NOT_WHOLE = "a position", "not whole"


def _comparisons(bodies: Iterable[ex.Expr]) -> tuple[dict[str, list[set[str]]], set[str]]:
    """Return tensor -> contents of the sides it is compared with, and tensors read elsewhere."""
    compared: dict[str, list[set[str]]] = {}
    elsewhere: set[str] = set()
    pending = list(bodies)
    while pending:
        part = pending.pop()
        if isinstance(part, ex.Access):
            elsewhere.add(part.tensor)
        if not isinstance(part, ex.Rel):
            pending += part.parts()
            continue
        sides = [(part.left, affine(part.left)), (part.right, affine(part.right))]
        for (side, own), (_, other) in zip(sides, reversed(sides), strict=True):
            reads = [] if own is None else [a for a in own.tensors if isinstance(a, ex.Access)]
            pending += [p for a in reads for p in a.positions]
            pending += (side,) if own is None else [e for e in own.tensors if e not in reads]
            for access in reads:
                compared.setdefault(access.tensor, []).append(_made_of(other))
    return compared, elsewhere


def _made_of(e: Affine | None) -> set[str]:
    """Return the tensors in e, with markers for a position or a non-integer."""
    if e is None:
        return {_NOT_WHOLE}
    position = {_POSITION} if e.coefficients else set()
    return position | {a.tensor for part in e.tensors for a in ex.accesses(part)}


def _value_operands(e: ex.Expr) -> Iterator[ex.Expr]:
    """Yield the tensors and parameters that the value of e is computed from.

    Conditions, positions and the body of argmax are skipped.
    """
    match e:
        case ex.Iverson() | ex.Rel() | ex.And() | ex.Or() | ex.Not() | ex.Call("int"):
            return
        case ex.Reduce(kind, _, body):
            if REDUCTIONS[kind].is_smooth:
                yield from _value_operands(body)
        case ex.Where(_, then, other):
            yield from _value_operands(then)
            yield from _value_operands(other)
        case ex.Access() | ex.Param():
            yield e
        case _:
            for part in e.parts():
                yield from _value_operands(part)


def lost_gradients(declared: Declared, equations: Sequence[Equation]) -> Iterator[tuple[str, str]]:
    """Yield (tensor, integer equation) if only that equation makes an undeclared tensor an integer.

    The tensor is not an index itself, and a float equation computes with its value.
    """
    floats, others = dict[str, str](), dict[str, str]()
    for e in equations:
        read = (a for a in _value_operands(e.body) if isinstance(a, ex.Access))
        (floats if e.kind == "float" else others).update((a.tensor, e.name) for a in read)
    for name, tensor in declared.tensors.items():
        if tensor.kind is None and name not in declared.as_index and name in floats:
            if name in others:
                yield name, others[name]
