"""Resolve a syntax tree to a complete `Operation`: names, sizes, kinds and guards.

The steps are `symbols` (roles of names), `elaborate` (expressions to algebra), `shapes` and `sizes`
(axes and extents), `type_inference` (float, int or bool), `guards` (conditions on accesses) and
`parameters`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from itertools import chain

from derive.algebra.affine import Polynomial, affine
from derive.algebra.expr import Access, Composite, Expr, Index, Num, Param, Reduce, Rel, Size, walk
from derive.algebra.substitution import primed
from derive.errors import DeriveWarning
from derive.notation import syntax
from derive.notation.elaborate import Bodies
from derive.notation.guards import Guards
from derive.notation.operation import Equation, Extent, Number, Operation, Parameter, Tensor
from derive.notation.parameters import check_groups, default, outputs, parameters
from derive.notation.shapes import Shapes, compared_letters, shown
from derive.notation.sizes import SizeSolver
from derive.notation.smart_constructors import product, total
from derive.notation.symbols import Declared, declare
from derive.notation.syntax import AccessSite, SourcePlace, fail, show
from derive.notation.type_inference import Kinds, lost_gradients


def resolve(written: syntax.OperationSyntax) -> Operation:
    """Return the complete operation of a syntax tree."""
    if not written.equations:
        message = f"operation {written.name} has no equation; write one for its output, y[i] = ..."
        fail(written.at, "incomplete-operation", message)
    d = declare(written)
    translated = Bodies(d)
    translated.sizes()
    left: dict[str, tuple[Expr, ...]] = {}
    bodies: dict[str, Expr] = {}
    for equation in d.equations.values():
        left[equation.name], bodies[equation.name] = translated.equation(equation)
    readings = translated.readings
    _check_unused_sizes(d, left, bodies, translated.definitions)
    if not d.tensors:
        message = f"operation {written.name} has no input; add one, op f(x[i]) -> y"
        fail(written.at, "incomplete-operation", message)
    shapes = Shapes.of(d, left, readings)
    results = outputs(d)
    sizes = SizeSolver(d, shapes, readings, translated.comparisons, translated.definitions)
    for letter, other in sizes.compared.items():
        if "#" not in other:  # a joined part
            _check_compared(d, left, bodies, sizes, letter)
    given = [size for _, size, _ in translated.definitions]
    kinds = Kinds(d, bodies, readings, translated.truths, given)
    tensors = tuple(_resolved_input(d, sizes, kinds, shapes, readings, name) for name in d.tensors)
    extents = tuple(_required_first(d, e) for e in sizes.extents())
    guards = Guards(extents, sizes.axis, kinds.of)
    _check_bounds(d, guards, extents, sizes, readings)
    equations = []
    for name, body in bodies.items():
        at = d.equations[name].at
        equations.append(
            Equation(
                name,
                tuple(sizes.named(axis) for axis in left[name]),
                guards.body(_expand_composites(sizes.named(kinds.exact(body)), shapes, sizes, at)),
                kinds.of[name],
                (at and at.line) or None,
                (at and at.column) or None,
                show(d.equations[name]),
            )
        )
    made = parameters(d, sizes, kinds.integers, tensors, equations, results)
    check_groups(d, made, tensors)
    _warn(d, readings, results, equations, made, extents)
    parts = (tensors, made, tuple(equations), results, extents)
    return Operation.resolved(written.name, *parts, stable=written.stable)


def _check_unused_sizes(
    d: Declared,
    left: Mapping[str, tuple[Expr, ...]],
    bodies: Mapping[str, Expr],
    definitions: Sequence[tuple[str, Expr, SourcePlace | None]],
) -> None:
    """Refuse a given size of an index that occurs nowhere, not even as a number."""
    seen = {e.extent for _, size, _ in definitions for e in walk(size) if isinstance(e, Size)}
    every = (*bodies.values(), *(axis for axes in left.values() for axis in axes))
    seen |= {i.extent for e in every for i in walk(e) if isinstance(i, Index | Size)}
    for tensor in d.tensors.values():
        parts = (p for axis in tensor.axes or () for p in (axis, *axis.parts()))
        seen |= {p.name for p in parts if isinstance(p, syntax.NameSyntax | syntax.Star)}
    given = {letter: fixed.at for letter, fixed in d.fixed.items()}
    written: list[syntax.Raw] = [*d.tensors.values(), *d.fixed.values(), *d.equations.values()]
    named = syntax.NameSyntax | syntax.Star | syntax.ParameterSyntax
    said = {part.name for e in written for part in syntax.walk(e) if isinstance(part, named)}
    for parameter in d.parameters.values():
        if parameter.sized is not None:
            given[parameter.sized] = parameter.at
            # The parameter is an alias of that size.
            seen -= {parameter.sized} - said
    for letter, at in given.items():
        if letter in d.letters and letter not in seen:
            fail(
                at,
                "parameter-value",
                f"index {letter} is unused: no axis has it, no reduction sums over it, and no "
                "equation uses its size",
            )


def _check_compared(
    d: Declared,
    left: Mapping[str, tuple[Expr, ...]],
    bodies: Mapping[str, Expr],
    sizes: SizeSolver,
    letter: str,
) -> None:
    """Refuse a letter that somewhere is compared only with letters of another size."""

    def binds(e: Expr) -> bool:
        return isinstance(e, Reduce) and letter in (i.extent for i in e.indices)

    def partners(e: Expr) -> set[str]:
        """Return the letters that the letter is compared with in e; a joined part has none."""
        every = walk(e, lambda e: () if binds(e) else e.parts())
        sides = ({*chain(*map(compared_letters, r.parts()))} for r in every if isinstance(r, Rel))
        return {x for pair in sides if letter in pair for x in pair - {letter} if "#" not in x}

    for name, body in bodies.items():
        indices = (i for axis in left[name] for i in walk(axis) if isinstance(i, Index))
        scopes = [e.parts() for e in walk(body) if binds(e)]
        scopes += [(body,)] if letter in (i.extent for i in indices) else []
        for scope in scopes:
            found = sorted(set().union(*map(partners, scope)))
            if found and sizes.letter(letter) not in map(sizes.letter, found):
                fail(
                    d.equations[name].at,
                    "two-sizes",
                    f"index {letter} has two sizes: it is compared with {found[0]} here, and "
                    f"with {sizes.compared[letter]} elsewhere; rename one, or give size({letter})",
                )


def _resolved_input(
    d: Declared,
    sizes: SizeSolver,
    kinds: Kinds,
    shapes: Shapes,
    readings: Sequence[AccessSite],
    name: str,
) -> Tensor:
    """Return an input with a distinct index for each axis."""
    axes: list[Expr] = []
    taken: set[str] = set()

    def distinct(index: Index) -> Index:
        label = primed(index.name, taken)
        taken.add(label)
        return Index(label, index.extent, index.group)

    for n, axis in enumerate(shapes.axes[name]):
        if name not in shapes.declared:
            axis = _observed_axis(sizes, readings, name, n)
        else:
            axis = sizes.named(axis)
        if isinstance(axis, Index):
            axis = distinct(axis)
        elif isinstance(axis, Composite):
            axis = Composite(tuple(distinct(p) for p in axis.args if isinstance(p, Index)))
        axes.append(axis)
    written = d.tensors[name]
    value = default(written.default, f"the default of {name}")
    return Tensor(name, tuple(axes), kinds.of[name], value)


def _observed_axis(sizes: SizeSolver, readings: Sequence[AccessSite], name: str, n: int) -> Expr:
    """Return the axis as equations read it: an index, a composite, or else an index of its own."""
    extent = sizes.axis(name, n)
    positions = [r.positions[n] for r in readings if r.tensor == name]
    for position in positions:
        if isinstance(position, Index) and sizes.letter(position.extent) == extent:
            letter = position.extent if "#" not in position.extent else extent
            return Index(letter, extent, position.group)
    for position in positions:
        if isinstance(position, Composite) and all(isinstance(p, Index) for p in position.args):
            return sizes.named(position)
    return Index(extent, extent)


def _required_first(d: Declared, extent: Extent) -> Extent:
    """Prefer required inputs as sources of sizes; refuse a size only an optional input has."""
    optional = {name for name, t in d.tensors.items() if t.default is not None}
    sources = sorted(extent.sources, key=lambda source: source[0] in optional)
    if sources and extent.size is None and sources[0][0] in optional:
        name, n = sources[0]
        fail(
            d.tensors[name].at,
            "optional-input",
            f"the size of {extent.name} is read only from {name}, which may be None; another "
            f"input must have axis {n} of {name}",
        )
    return Extent(extent.name, extent.group, tuple(sources), extent.size)


def _expand_composites(e: Expr, shapes: Shapes, sizes: SizeSolver, at: SourcePlace | None) -> Expr:
    """Expand each composite position to row-major form unless its parts are those of the axis.

    On an axis (t d), (t 1) is t*size(d) + 1 and (d t) is d*size(t) + t: a constant is not a part.
    """
    e = e.map(lambda part: _expand_composites(part, shapes, sizes, at))
    if isinstance(e, Access):
        made = []
        for n, position in enumerate(e.positions):
            if isinstance(position, Composite):
                parts = [p.extent for p in position.args if isinstance(p, Index)]
                axis = sizes.named(shapes.axes[e.tensor][n])
                own = [p.extent for p in walk(axis) if isinstance(p, Index)]
                apart = isinstance(axis, Composite) and parts != own
                if apart or len(parts) < len(position.args):
                    position = _row_major(position, shapes, sizes, e.tensor, n, at)
            made.append(position)
        return Access(e.tensor, tuple(made))
    return e


def _row_major(
    e: Composite, shapes: Shapes, sizes: SizeSolver, tensor: str, n: int, at: SourcePlace | None
) -> Expr:
    axis = shapes.axes[tensor][n]
    parts = axis.args if isinstance(axis, Composite) else sizes.parts(tensor, n)
    known = {i: sizes.letter(p.extent) for i, p in enumerate(parts) if isinstance(p, Index)}
    if len(parts) != len(e.args):
        known = {}
    terms: list[Expr] = []
    scale: list[Expr] = []
    for i, part in reversed(list(enumerate(e.args))):
        terms.insert(0, product((*scale, part)))
        extent = part.extent if isinstance(part, Index) else known.get(i)
        size = None if extent is None else sizes.number(extent)
        if isinstance(part, Num) and size is not None and not 0 <= part.value < size:
            values = "the value 0" if size == 1 else f"values 0 to {size - 1}"
            fail(
                at,
                "out-of-bounds",
                f"axis {n} of {tensor}: part {i} is {part.value}, but {extent} has only {values}",
            )
        if extent is None and i > 0:
            fail(
                at,
                "unknown-size",
                f"axis {n} of {tensor}: the size of part {i} is unknown; declare the axis as a "
                f"composite {sizes.declared.how.axes}",
            )
        if extent is not None:
            scale.append(Size(extent))
    return total(terms)


def _check_bounds(
    d: Declared,
    guards: Guards,
    extents: Sequence[Extent],
    sizes: SizeSolver,
    readings: Sequence[AccessSite],
) -> None:
    """Refuse an unguarded position that is out of bounds for every size."""
    for reading in readings:
        for n, position in enumerate(reading.positions):
            if isinstance(position, Index) and sizes.same(position.extent, reading.tensor, n):
                continue
            found = None if reading.guarded else affine(sizes.named(position))
            if found is None or found.tensors or isinstance(position, Num):
                continue
            least, gap = guards.margins(found, sizes.axis(reading.tensor, n))
            for margin, side in ((least, "begins before"), (gap, "runs past the end of")):
                if margin is not None and _margin_is_negative(margin, d, extents):
                    by = shown((-margin).expr(), str)
                    fail(
                        reading.at,
                        "out-of-bounds",
                        f"{reading.tensor} is read out of bounds: the position {side} axis {n} by "
                        f"{by}; add a condition, or give its index a range of its own",
                    )


def _margin_is_negative(margin: Polynomial, d: Declared, extents: Sequence[Extent]) -> bool:
    """True if the margin is negative for all sizes, except possibly sizes of at most 1."""
    varying = {key: value for key, value in margin.terms.items() if key}
    free: set[Expr] = {Size(e.name) for e in extents if e.sources}
    free |= {Param(n) for n, p in d.parameters.items() if p.sized is not None}
    falls = all(value < 0 and free.issuperset(key) for key, value in varying.items())
    return falls and sum(margin.terms.values()) < (1 if varying else 0)


def _warn(
    d: Declared,
    readings: Sequence[AccessSite],
    results: Sequence[str],
    equations: Sequence[Equation],
    made: Sequence[Parameter],
    extents: Sequence[Extent],
) -> None:
    used = {r.tensor for r in readings if r.tensor != r.equation}
    for name in d.tensors:
        if name not in used:
            _warning(d, f"input {name} is not used")
    for name in d.equations:
        if name not in used and name not in results:
            _warning(d, f"equation {name} is not used")
    for name, of in lost_gradients(d, equations):
        _warning(
            d,
            f"{name} has no gradient: {of}, an index, is computed from it, so {name} is an "
            f"integer tensor; declare {d.how.integer(name)}, or write int(floor(...))",
        )
    said = [*(e.body for e in equations), *(e.size for e in extents if e.size is not None)]
    numbers = {part.name for e in said for part in walk(e) if isinstance(part, Param)}
    for parameter in made:
        if isinstance(parameter, Number) and parameter.name not in numbers:
            _warning(d, f"parameter {parameter.name} is not used")


def _warning(d: Declared, text: str) -> None:
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("derive."):
        frame, level = frame.f_back, level + 1
    warnings.warn(f"{text} in {d.written.name}", DeriveWarning, stacklevel=level)
