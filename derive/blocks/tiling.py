"""Split an operation into stages, each an operation: whole ones, and passes over blocks.

    whole          keys[m, d] = ...                 once
    pass 1         total_b = Sum_n' loss[start + n']     for each block b; total = Sum_b total_b
    whole          average = total/size(n)          once

A value that a pass reads from an earlier pass requires a pass of its own. Inside a pass n is start
+ n', with n' an index whose extent is the block. A tensor read only at n is passed as its rows, any
other tensor as a whole. So each stage is derived and lowered like any operation, and the chain rule
over the stages composes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from derive.algebra.expr import Access, Expr, Index, Param, Reduce, Size, accesses, inside_out, walk
from derive.algebra.substitution import fresh_numbered
from derive.blocks.index_roles import Roles, block_error, roles
from derive.notation.operation import Choice, Equation, Extent, Number, Operation, Parameter, Tensor


@dataclass(frozen=True)
class StageInput:
    """An input of a stage: a tensor, or its rows of the block along an axis.

    An input that is not ``read`` only provides its dtype and its sizes.
    """

    name: str
    tensor: str
    axis: int | None
    read: bool


@dataclass(frozen=True)
class Stage:
    """An operation, its inputs, and the use of its outputs.

    ``rows`` maps an output to the axis along which it has the rows of the block; any other output
    of a pass is accumulated over the blocks. ``sizes`` maps parameters to the extents whose sizes
    they give.
    """

    operation: Operation
    given: tuple[StageInput, ...]
    looped: bool
    rows: Mapping[str, int]
    sizes: Mapping[str, str]
    start: str
    length: str
    extent: str
    """The extent of the block."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs of the operation."""
        return self.operation.outputs

    @property
    def is_differentiable(self) -> bool:
        """True if an output has a gradient."""
        given = {g.name for g in self.given if g.read}
        floats = any(t.kind == "float" and t.name in given for t in self.operation.inputs)
        return floats and any(e.kind == "float" for e in self._made())

    @property
    def makes_a_number(self) -> bool:
        """True if its only output is a float scalar, so that gradients scale with its cotangent."""
        return [(e.axes, e.kind) for e in self._made()] == [((), "float")]

    def _made(self) -> list[Equation]:
        return [e for e in self.operation.equations if e.name in self.outputs]


@dataclass(frozen=True)
class Plan:
    """The stages of an operation in order, and the index that is processed in blocks."""

    operation: Operation
    index: Index
    stages: tuple[Stage, ...]
    axes: Mapping[str, tuple[Expr, ...]]
    kinds: Mapping[str, str]
    """The kind of every tensor and equation."""

    def leaves(self, name: str) -> tuple[str, ...]:
        """The float inputs on which a value depends."""

        def read(one: str) -> list[str]:
            given = next((s.given for s in self.stages if one in s.outputs), ())
            return [g.tensor for g in given if g.read and self.kinds[g.tensor] == "float"]

        found = set(inside_out([name], read))
        return tuple(t.name for t in self.operation.inputs if t.kind == "float" and t.name in found)


def block_plan(op: Operation, letter: str) -> Plan:
    """The stages of an operation that has no choice parameter."""
    found = roles(op, letter)
    builder = _StageBuilder(op, found)
    return Plan(
        op,
        found.index,
        tuple(builder.stages()),
        builder.axes,
        {t.name: t.kind for t in op.inputs} | {e.name: e.kind for e in found.equations},
    )


class _StageBuilder:
    def __init__(self, op: Operation, roles: Roles) -> None:
        self.op = op
        self.roles = roles
        self.equations = {e.name: e for e in roles.equations}
        self.inputs = {t.name: t for t in op.inputs}
        self.axes = {t.name: t.axes for t in op.inputs}
        self.axes |= {e.name: e.axes for e in roles.equations}
        inside = (part for e in roles.equations for x in (*e.axes, e.body) for part in walk(x))
        self.taken = {*self.axes, *(x.name for x in (*op.parameters, *op.extents))}
        self.taken |= {i.name for i in inside if isinstance(i, Index)}

    # what comes when

    def stages(self) -> Iterator[Stage]:
        """The stages in order."""
        levels = self._levels()
        groups = self._passes(levels)
        made: list[tuple[list[str], list[str]]] = []
        last = max([*levels.values(), *(level for level, _ in groups)])
        for level in range(last + 1):
            made += [(self._needed(items), items) for n, items in groups if n == level]
            whole = [
                e for e in self.equations if not self.roles.is_looped(e) and levels[e] == level
            ]
            if whole:
                made.append((whole, whole))
        for n, (names, items) in enumerate(made):
            later = {*self.op.outputs, *(t for own, _ in made[n + 1 :] for t in self._reads(own))}
            yield self._stage(names, [name for name in items if name in later])

    def _levels(self) -> dict[str, int]:
        """The number of passes before each equation is available, or can be computed per block."""
        levels = dict.fromkeys(self.inputs, 0)
        for name, e in self.equations.items():
            level = max((levels[a.tensor] for a in accesses(e.body)), default=0)
            levels[name] = level + (name in self.roles.sums)
        return levels

    def _passes(self, levels: Mapping[str, int]) -> list[tuple[int, list[str]]]:
        """(level, outputs) of each pass; passes of a level that share an equation are merged."""
        groups: list[tuple[int, list[str], set[str]]] = []
        for name in self.equations:
            if name in self.roles.sums:
                level = levels[name]
            elif name in self.roles.rows and name in self.op.outputs:
                level = levels[name] + 1
            else:
                continue
            items, shared = [name], set(self._needed([name])) & set(self.roles.rows)
            rest = []
            for group in groups:
                if group[0] == level and group[2] & shared:
                    items, shared = [*group[1], *items], shared | group[2]
                else:
                    rest.append(group)
            groups = [*rest, (level, items, shared)]
        return [(level, items) for level, items, _ in groups]

    def _needed(self, items: Iterable[str]) -> list[str]:
        """The equations of a pass that computes these, in order."""

        def mapped(name: str) -> set[str]:
            return {a.tensor for a in accesses(self.equations[name].body)} & {*self.roles.rows}

        found = set(inside_out(items, mapped))
        return [name for name in self.equations if name in found]

    def _reads(self, names: Sequence[str]) -> set[str]:
        read = {a.tensor for name in names for a in accesses(self.equations[name].body)}
        return read - set(names)

    # one stage

    def _stage(self, names: Sequence[str], outputs: Sequence[str]) -> Stage:
        looped = self.roles.is_looped(names[0])
        reader = _Reader(self, names) if looped else None
        made = [self.equations[name] for name in names]
        if reader is not None:
            made = [reader.equation(e) for e in made]
            given = dict(reader.given)
        else:
            given = {(t, None): t for t in sorted(self._reads(names))}
        read = set(given)
        self._complete(given, looped)
        order = [*self.inputs, *self.equations]
        entries = sorted(given, key=lambda k: (order.index(k[0]), k[1] is not None))
        tensors = [self._tensor(given[k], *k, reader) for k in entries]
        extents, sizes = self._extents(made, tensors, {given[k]: k for k in entries}, reader)
        formulas = (*(x.body for x in made), *(x.size for x in extents if x.size is not None))
        used = {e.name for x in formulas for e in walk(x) if isinstance(e, Param)}
        parameters: list[Parameter] = [
            p for p in self.op.parameters if p.name in used and not isinstance(p, Choice)
        ]
        own = [*sizes, *((reader.start, reader.length) if reader is not None else ())]
        parameters += [Number(name, integer=True) for name in own if name in used]
        parts = tuple(tensors), tuple(parameters), tuple(made), tuple(outputs), tuple(extents)
        operation = Operation.resolved(self.op.name, *parts, self.op.stable)
        return Stage(
            operation=operation,
            given=tuple(StageInput(given[k], *k, k in read) for k in entries),
            looped=looped,
            rows={n: a for n, a in self.roles.rows.items() if n in outputs} if looped else {},
            sizes=sizes,
            start=reader.start if reader is not None else "",
            length=reader.length if reader is not None else "",
            extent=reader.local.extent if reader is not None else "",
        )

    def _complete(self, given: dict[tuple[str, int | None], str], looped: bool) -> None:
        """Add unread inputs that provide a dtype, or sizes of tensors that may be None."""
        required = [t for t in self.op.inputs if t.default is None]
        here = {tensor for tensor, _ in given}
        wanted: list[Tensor] = []
        floats = [t for t in required if t.kind == "float"]
        if not any(t.name in here for t in floats):
            made_floats = any(
                n in self.equations and self.equations[n].kind == "float" for n in here
            )
            absent = any(n in self.inputs and self.inputs[n].default is not None for n in here)
            wanted += floats[:1] if absent or not made_floats else []
        for name in here & set(self.inputs):
            if self.inputs[name].default is not None:
                for axis in self.inputs[name].axes:
                    if isinstance(axis, Index):
                        alike = [t for t in required if axis.extent in _extents_of(t)]
                        exact = [t for t in required if axis in t.axes and t.kind == "float"]
                        wanted += (exact or alike)[:1]
        for t in wanted:
            if t.name not in {tensor for tensor, _ in given}:
                axes = [n for n, i in enumerate(t.axes) if i is self.roles.index]
                given[t.name, axes[0] if looped and axes else None] = t.name

    def _tensor(self, name: str, tensor: str, axis: int | None, reader: _Reader | None) -> Tensor:
        """The input of a stage."""
        axes = self.axes[tensor]
        if not all(isinstance(i, Index) for i in axes) and tensor in self.equations:
            raise block_error(self.roles.index, f"{tensor} has an axis that is not a plain index")
        if axis is not None:
            assert reader is not None
            axes = (*axes[:axis], reader.local, *axes[axis + 1 :])
        if tensor in self.inputs:
            return replace(self.inputs[tensor], name=name, axes=axes)
        return Tensor(name, axes, self.equations[tensor].kind)

    def _extents(
        self,
        made: Sequence[Equation],
        tensors: Sequence[Tensor],
        given: Mapping[str, tuple[str, int | None]],
        reader: _Reader | None,
    ) -> tuple[list[Extent], dict[str, str]]:
        """The extents of a stage, and the parameters for sizes that no tensor provides."""
        known = {e.name: e for e in self.op.extents}
        sources: dict[str, list[tuple[str, int]]] = {}
        for t in tensors:
            tensor, _ = given[t.name]
            for n, axis in enumerate(t.axes):
                if isinstance(axis, Index):
                    sources.setdefault(axis.extent, []).append((t.name, n))
                else:
                    whole = [e.name for e in self.op.extents if (tensor, n) in e.sources]
                    for name in whole:
                        sources.setdefault(name, []).append((t.name, n))
        expressions = [e for x in made for e in (*x.axes, x.body)]
        expressions += [axis for t in tensors for axis in t.axes]
        needed: dict[str, None] = dict.fromkeys(sources)
        pending = [*expressions, *(x.size for x in map(known.get, sources) if x and x.size)]
        groups = {e.extent for x in expressions for e in walk(x) if isinstance(e, Index)}
        while pending:
            for e in walk(pending.pop()):
                if isinstance(e, Index | Size) and e.extent not in needed:
                    needed[e.extent] = None
                    size = known[e.extent].size if e.extent in known else None
                    pending += [] if size is None else [size]
        # Sizes that other sizes define come first.
        extents, sizes = [], {}
        for name in needed:
            own = known.get(name)
            told = tuple(sources.get(name, ()))
            if reader is not None and name == reader.local.extent:
                extents.append(Extent(name, False, told, None if told else Param(reader.length)))
                continue
            assert own is not None
            size = own.size
            if size is None and not told:
                parameter = fresh_numbered(f"{name}_size", self.taken)
                sizes[parameter] = name
                size = Param(parameter)
            group = own.group and (bool(told) or name in groups)
            extents.append(Extent(name, group, told, size))
        return extents, sizes


def _extents_of(t: Tensor) -> list[str]:
    return [i.extent for i in t.axes if isinstance(i, Index)]


class _Reader:
    """Rewrites the equations of a pass for one block."""

    def __init__(self, builder: _StageBuilder, names: Sequence[str]) -> None:
        self.builder = builder
        self.index = builder.roles.index
        self.names = set(names)
        extent = fresh_numbered(f"{self.index.extent}_block", builder.taken)
        self.local = Index(self.index.name, extent)
        self.start = fresh_numbered("start", builder.taken)
        self.length = fresh_numbered("length", builder.taken)
        self.given: dict[tuple[str, int | None], str] = {}
        keys = dict.fromkeys(map(self._key, self._accesses()))
        whole = {tensor for tensor, axis in keys if axis is None}
        taken = {*builder.taken, self.start, self.length}
        for tensor, axis in keys:
            name = tensor
            if axis is not None and (tensor in whole or self._is_twice(tensor, axis)):
                name = fresh_numbered(f"{tensor}_rows", taken)
                taken.add(name)
            self.given[tensor, axis] = name

    def _accesses(self) -> Iterator[Access]:
        """The reads of the pass's inputs."""
        equations = self.builder.equations
        for name in sorted(self.names):
            for access in accesses(equations[name].body):
                if access.tensor not in self.names:
                    yield access

    def _is_twice(self, tensor: str, axis: int) -> bool:
        keys = {self._key(e) for e in self._accesses()}
        return min(a for t, a in keys if t == tensor and a is not None) != axis

    def _key(self, e: Access) -> tuple[str, int | None]:
        at = (n for n, position in enumerate(e.positions) if position is self.index)
        return e.tensor, next(at, None)

    def equation(self, e: Equation) -> Equation:
        """The equation for one block."""
        axes = tuple(self.local if axis is self.index else axis for axis in e.axes)
        return replace(e, axes=axes, body=self._visit(e.body), text="")

    def _visit(self, e: Expr) -> Expr:
        if e is self.index:
            return self.local + Param(self.start)
        if isinstance(e, Reduce):
            condition = None if e.condition is None else self._visit(e.condition)
            indices = tuple(self.local if i is self.index else i for i in e.indices)
            return Reduce(e.kind, indices, self._visit(e.body), condition)
        if isinstance(e, Access):
            axis: int | None
            if e.tensor in self.names:
                name, axis = e.tensor, self.builder.roles.rows[e.tensor]
            else:
                axis = self._key(e)[1]
                name = self.given[e.tensor, axis]
            positions = (
                self.local if n == axis else self._visit(position)
                for n, position in enumerate(e.positions)
            )
            return Access(name, tuple(positions))
        return e.map(self._visit)  # type: ignore[no-any-return]
