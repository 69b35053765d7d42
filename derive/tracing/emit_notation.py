"""Write equations as text: letters for indices, names for sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, zip_longest
from typing import Any

import sympy

from derive.algebra.expr import Expr, Mul, Num, Size
from derive.errors import DeriveError
from derive.notation.operation import Operation
from derive.notation.smart_constructors import product
from derive.notation.specification import parse
from derive.notation.unparse import same_operation
from derive.tracing import values as tv
from derive.tracing.choices import sign_of, without_choices_of_truths
from derive.tracing.context import Context, TracedEquation
from derive.tracing.names import FloorQuotient, number_text, size_text, spelled
from derive.tracing.refusals import SizesUnread, extracted, unread
from derive.tracing.sizes import SymbolicSizes, substitute_symbols

# ------------------------------------------------------------------------------------ implied sizes
# Drop sizes from a text that follow from its equations.


@dataclass(frozen=True)
class StatedSizes:
    """A text, and the letters whose sizes it may state in terms of others."""

    text: str
    sums: tuple[str, ...]
    """Letters whose size is a sum or a rounded quotient, or that are part of no composite axis."""
    products: tuple[str, ...]
    """The other letters; their size usually follows from that of a composite axis."""
    rounded: tuple[str, ...] = ()
    """Letters in ``sums`` that are part of a composite axis too."""


def with_fewest_sizes(written: Callable[..., StatedSizes]) -> tuple[Operation, str]:
    """Return the operation, and its text with as few stated sizes as determine it.

    ``written`` returns the text without the sizes of some letters.
    """
    every: StatedSizes = written()
    parts = (*every.products, *every.rounded)
    ways = [
        every.products,
        (),
        *([parts] if every.rounded else []),
        *((*every.products, letter) for letter in every.sums),
    ]
    errors = []
    for unsaid in ways:
        text = written(unsaid=unsaid).text
        try:
            op = parse(text)
        except DeriveError as error:
            errors.append(DeriveError(f"{error.text}\nwhat was read:\n{text}", kind=error.kind))
            continue
        return _drop_implied_sizes(written, op, text, every, unsaid)
    raise errors[0]


def _drop_implied_sizes(
    written: Callable[..., StatedSizes],
    op: Operation,
    text: str,
    every: StatedSizes,
    unsaid: Sequence[str],
) -> tuple[Operation, str]:
    for letter in (*every.sums, *every.products):
        if letter in unsaid:
            continue
        less = written(unsaid=(*unsaid, letter)).text
        try:
            made = parse(less)
        except DeriveError:
            continue
        if same_operation(_canonical_extents(made), _canonical_extents(op)):
            op, text, unsaid = made, less, (*unsaid, letter)
    return op, text


def _canonical_extents(op: Operation) -> Operation:
    """Return the operation with its extents in an order that does not depend on stated sizes.

    Sizes that are numbers are substituted into the sizes of others.
    """
    numbers = {e.name: e.size for e in op.extents if isinstance(e.size, Num)}

    def plain(size: Expr) -> Expr:
        match size:
            case Size(extent):
                return numbers.get(extent) or size
            case Mul(args):
                return product(map(plain, args))
        mapped: Expr = size.map(plain)
        return mapped

    own = (e if e.size is None else replace(e, size=plain(e.size)) for e in op.extents)
    return op.replaced(extents=tuple(sorted(own, key=lambda e: e.name)))


# ------------------------------------------------------------------------------------ emit notation

_BY_RANK = {1: "c", 2: "nc", 3: "ntc", 4: "nchw", 5: "nctyx"}
_POOL = "kmdjhiopqrsuvabefgltwxyz"
_LEVELS = {"or": 1, "and": 2, "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4}
_LEVELS |= {"+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6, "**": 8}
_UNARY = 7


@dataclass
class Letters:
    """Assigns a letter to each size: that of the inputs, or the next unused one."""

    sizes: SymbolicSizes
    taken: set[str]
    known: list[tuple[sympy.Expr, str]] = field(default_factory=list)

    def of(self, size: sympy.Expr, wanted: str | None = None) -> str:
        for known, letter in self.known:
            if self.sizes.equal(known, size):
                return letter
        pool = [*(wanted or ""), *_POOL, *(f"i{n}" for n in range(1, 50))]
        made: str = next(c for c in pool if c not in self.taken)
        self.taken.add(made)
        self.known.append((self.sizes.plain(size), made))
        return made

    def another(self, letter: str, used: Collection[str]) -> str:
        """Return the letter, with a number if an index or a tensor has that name."""
        name, n = letter, 2
        while name in used or (name != letter and name in self.taken):
            name, n = f"{letter}{n}", n + 1
        return name

    def in_equation(self, axes: Iterable[tv.Axis], body: tv.TracedNode) -> dict[tv.Atom, str]:
        """Return the letters of the indices of an equation, distinct where one is inside another.

        Two sums that stand side by side may have the same letter.
        """
        free = dict.fromkeys(a for axis in axes for a in axis)
        apart: dict[tv.Atom, set[tv.Atom]] = {a: {*free} for a in free}
        left: list[tuple[tv.TracedNode, tuple[tv.Atom, ...]]] = [(body, tuple(free))]
        while left:
            node, around = left.pop()
            if isinstance(node, tv.TracedReduce):
                around = (*around, *node.atoms)
                for a in node.atoms:
                    apart.setdefault(a, set()).update(around)
                for a in around:
                    apart[a].update(node.atoms)
            elif isinstance(node, tv.Position):
                apart.setdefault(node.atom, set())
            left += [(part, around) for part in reversed(node.parts())]
        found: dict[tv.Atom, str] = {}
        for a, others in apart.items():
            used = {found[b] for b in others if b in found}
            found[a] = self.another(self.of(a.size), used)
        return found


@dataclass
class NotationWriter:
    """Writes the equations of one operation."""

    letters: Letters
    axes: Mapping[str, Sequence[tv.Axis]]
    """Axes of each tensor that have an index."""
    units: Mapping[str, tuple[bool, ...]]
    """Whether each axis of an input or output has an index; one without has size 1."""
    names: dict[tv.Atom, str] = field(default_factory=dict)
    whole: bool = False
    """True while a position, or an operand compared with one, is written."""

    def size(self, e: sympy.Expr, whole: bool = False) -> str:
        """Return a number made of sizes; if it is ``whole``, a quotient is rounded down."""
        e = self.letters.sizes.plain(e)
        if not e.is_Symbol and e.free_symbols and (form := self._letter_form(e)) is not None:
            return form
        return self._said(e, self.letters.known, whole)

    def _letter_form(self, e: sympy.Expr) -> str | None:
        """Return size(c) or sqrt(size(c)), if an axis with a letter has this size or its square.

        The root of h/2 is a formula of h; its own axis may have a letter.
        """
        for size, form in ((e, "size({})"), (sympy.expand(e**2), "sqrt(size({}))")):
            known = (c for n, c in self.letters.known if self.letters.sizes.equal(n, size))
            if (letter := next(known, None)) is not None:
                return form.format(letter)
        return None

    def given_size(self, letter: str) -> str:
        """Return the size of a letter in terms of the other letters."""
        others = [(n, c) for n, c in self.letters.known if c != letter]
        size = self.letters.sizes.plain(next(n for n, c in self.letters.known if c == letter))
        rounded = {*self.letters.sizes.rounded.values()}
        parts = [(n, c) for n, c in others if not rounded.isdisjoint(n.free_symbols)]
        for (m, a), (n, b) in combinations(parts if size.is_Add else (), 2):
            rest = self.letters.sizes.plain(size - m * n)
            if rest.is_Integer:
                more = f" {'-' if rest < 0 else '+'} {abs(rest)}" if rest else ""
                return f"size({a})*size({b}){more}"
        return self._said(size, others, whole=True)

    def _said(self, e: sympy.Expr, known: Sequence[tuple[sympy.Expr, str]], whole: bool) -> str:
        if not e.free_symbols:
            return number_text(e)
        sizes = self.letters.sizes
        parts: dict[sympy.Symbol, sympy.Symbol] = {}
        for s in e.free_symbols:
            multiples = (
                (c, s / n) for n, c in known if n.free_symbols == {s} and n.is_Mul | n.is_Symbol
            )
            letter, times = next(((c, k) for c, k in multiples if k.is_Rational), ("", 1))
            if letter:
                parts[s] = times * sympy.Symbol(f"size({letter})", integer=True, positive=True)
            elif (meant := sizes.meant(s)) != s:
                return self._said(substitute_symbols(e, {s: meant}), known, whole)
            elif not sizes.are_known(s):
                raise extracted()
            else:
                what = "a size that is not that of an axis, such as half of one"
                how = "pass it as a number, f(x, w, padding=1)"
                raise SizesUnread(f"the function computes with {what}; {how}")
        e = substitute_symbols(e, parts)
        above, below = sympy.fraction(sympy.together(e)) if whole else (e, 1)
        return size_text(above if below == 1 else FloorQuotient(above, below))

    def text(self, node: tv.TracedNode, level: int = 0) -> str:
        made, own = self._text(node)
        return f"({made})" if own < level else made

    def _text(self, node: tv.TracedNode) -> tuple[str, int]:
        match node:
            case tv.TracedNumber(value):
                return self._number(value)
            case tv.TracedParameter(name):
                return name, 9
            case tv.Position(atom):
                return self.names[atom], 9
            case tv.Joined():
                return self._joined(node), 5
            case tv.TracedRead(name, positions):
                outer, self.whole = self.whole, True
                pairs = zip(positions, self.axes[name], strict=True)
                inner = self._with_units(name, [self._position(p, axis) for p, axis in pairs])
                self.whole = outer
                return name + inner, 9
            case tv.TracedReduce(kind, atoms, body, condition):
                letters = ",".join(self.names[a] for a in atoms)
                test = "" if condition is None else f" | {self.text(condition)}"
                return f"{kind}[{letters}{test}]({self.text(body)})", 9
            case tv.TracedApply("neg", (a,)):
                return f"-{self.text(a, _UNARY)}", _UNARY
            case tv.TracedApply("not", (a,)):
                return f"not {self.text(a, 3)}", 3
            case tv.TracedApply("truth", (a,)):
                return f"[{self.text(a)}]", 9
            case tv.TracedApply("pi", ()):
                return "pi", 9
            case tv.TracedApply("unset", ()):
                text = "the function reads uninitialized memory; begin with torch.zeros"
                raise SizesUnread(text, kind="torch-state")
            case tv.TracedApply("concat", (index, *parts)):
                return f"concat[{self.text(index)}]({', '.join(map(self.text, parts))})", 9
            case tv.TracedApply(name, (a, b)) if name in _LEVELS:
                return self._binary(name, a, b)
            case tv.TracedApply(name, args):
                return f"{name}({', '.join(map(self.text, args))})", 9
        raise unread(f"no index notation for {node}")

    def _with_units(self, name: str, positions: Sequence[str]) -> str:
        """Return [i,0,j]: the positions of a tensor, 0 on its axes of size 1."""
        left = iter(positions)
        has = self.units.get(name, (True,) * len(positions))
        every = [next(left) if own else "0" for own in has]
        return f"[{','.join(every)}]" if every else ""

    def _binary(self, name: str, a: tv.TracedNode, b: tv.TracedNode) -> tuple[str, int]:
        level = _LEVELS[name]
        if level == 4 and not self.whole and not _reads_value(a) and not _reads_value(b):
            outer, self.whole = self.whole, True
            made = self._binary(name, a, b)
            self.whole = outer
            return made
        match name, b:
            case "+", tv.TracedApply("neg", (inner,)):
                return self._binary("-", a, inner)
            case "*", tv.TracedNumber(sympy.Expr() as value) if (
                value.free_symbols and self._letter_form(1 / value) is not None
            ):
                return self._binary("/", a, tv.TracedNumber(1 / value))
            case "**", tv.TracedNumber(value) if value == sympy.Rational(1, 2):
                return f"sqrt({self.text(a)})", 9
            case "+" | "-", tv.TracedNumber(value) if (
                summed := _merged_constant(a, name, value)
            ) is not None:
                return self._text(summed)
            case "-", tv.TracedNumber(value) if _is_negative_literal(value):
                return self._binary("+", a, tv.TracedNumber(-value))
            case "+", tv.TracedNumber(value) if _is_negative_literal(value):
                return self._binary("-", a, tv.TracedNumber(-value))
        left = self.text(a, level + (1 if name == "**" or level == 4 else 0))
        rest = isinstance(b, tv.TracedApply) and b.name in ("//", "%")
        right = self.text(b, level + (0 if name in ("+", "*", "and", "or") and not rest else 1))
        space = "" if name in ("*", "/", "**") else " "
        return f"{left}{space}{name}{space}{right}", level

    def _number(self, value: Any) -> tuple[str, int]:
        if isinstance(value, bool):
            return ("0 == 0" if value else "0 == 1"), 4
        if isinstance(value, float) and math.isnan(value):
            raise unread("nan is no number of the notation; use 0, and a mask of where it stands")
        if sign := sign_of(tv.TracedNumber(value)):
            return ("inf", 9) if sign > 0 else ("-inf", _UNARY)
        value = sympy.sympify(value) if not isinstance(value, float) else value
        if isinstance(value, float):
            text, level = spelled(abs(value)) or (repr(abs(value)), 9)
            if value >= 0:
                return text, level
            return f"-({text})" if level == 5 else f"-{text}", min(level, _UNARY)
        text = self.size(value, self.whole)
        calls = text.removeprefix("sqrt(").count("(")
        plain = all(c.isalnum() or c in "._()" for c in text) and calls < 2
        return text, 9 if plain else (5 if " " in text or "//" in text or text[0] == "-" else 6)

    def _position(self, node: tv.TracedNode, axis: tv.Axis) -> str:
        """Return a position on an axis; indices that make up the whole axis are (i j)."""
        if isinstance(node, tv.Joined) and all(isinstance(i, tv.Position) for i in node.items):
            if self.letters.sizes.equal(sympy.prod(node.sizes), tv.size_of(axis)):
                return f"({' '.join(map(self.text, node.items))})"
        return self.text(node)

    def _joined(self, node: tv.Joined) -> str:
        """Return a row-major position as arithmetic: i*size(j) + j."""
        found, level = self._text(node.items[0])
        for item, size in zip(node.items[1:], node.sizes[1:], strict=True):
            found = f"({found})" if level < 6 else found
            times = self.size(size, whole=True)
            times = f"({times})" if any(c in times for c in " -/%") else times
            found, level = f"{found}*{times} + {self.text(item, 6)}", 5
        return found

    def equation(self, e: TracedEquation) -> str:
        body = without_choices_of_truths(e.body, e.kind == "bool")
        self.names = self.letters.in_equation(e.axes, body)
        letters = [[self.names[a] for a in axis] for axis in e.axes if axis]
        axes = [own[0] if len(own) == 1 else f"({' '.join(own)})" for own in letters]
        return f"{e.name}{self._with_units(e.name, axes)} = {self.text(body)}"


def _reads_value(node: tv.TracedNode) -> bool:
    return any(isinstance(x, tv.TracedRead | tv.TracedParameter) for x in tv.walk(node))


def _merged_constant(a: tv.TracedNode, name: str, value: Any) -> tv.TracedNode | None:
    """Fold (x + n) + value, with either sign, to x and one number; None if a is no such sum."""
    match a:
        case tv.TracedApply("+" | "-" as own, (x, tv.TracedNumber(n))) if all(
            map(tv.is_integer, (n, value))
        ):
            left = (n if own == "+" else -n) + (value if name == "+" else -value)
            return x if left == 0 else tv.TracedApply("+", (x, tv.TracedNumber(left)))
    return None


def _is_negative_literal(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value < 0


def _without_start(
    context: Context, axes: Mapping[str, Sequence[tv.Axis]], node: tv.TracedNode
) -> tv.TracedNode:
    """Drop the parameter start of a read whose index has the size of the axis."""
    if not isinstance(node, tv.TracedRead) or not context.starts:
        return node

    def plain(part: tv.TracedNode) -> tv.TracedNode:
        match part:
            case tv.TracedApply("+", (at, tv.TracedParameter(name))) if name in context.starts:
                return at
        return part

    made: list[tv.TracedNode] = []
    for position, axis in zip(node.positions, axes[node.name], strict=True):
        bare = tv.rewritten(position, plain)
        match bare:
            case tv.Position(atom) | tv.TracedApply(
                "+" | "-", (tv.Position(atom), tv.TracedNumber())
            ) if all(context.sizes.equal(atom.size, a.size) for a in axis):
                made.append(bare)
            case _:
                made.append(position)
    return node.with_parts(made)


def operation_text(
    name: str,
    context: Context,
    inputs: Mapping[str, tv.TracedValue],
    shapes: Mapping[str, tuple[bool, ...]],
    given: Mapping[str, Sequence[str | None]],
    comments: bool = True,
    numbers: Mapping[str, float] | None = None,
    arguments: Collection[str] = (),
    unsaid: Collection[str] = (),
) -> StatedSizes:
    """Return the text of the operation, with the letters whose sizes it may state.

    ``shapes`` tells for each output which axes have an index; the others have size 1. ``given`` has
    letters of inputs. ``unsaid`` are letters whose sizes are omitted. ``arguments`` are declared
    even if no equation reads them.
    """
    outputs = list(shapes)
    names = {*inputs, *(e.name for e in context.equations), *(numbers or ()), *context.starts}
    letters = Letters(context.sizes, names)
    kept = {n: [a for a in v.axes if a] for n, v in inputs.items()}
    kept |= {e.name: [a for a in e.axes if a] for e in context.equations}
    equations = [
        replace(e, body=tv.rewritten(e.body, partial(_without_start, context, kept)))
        for e in equations_of(context.equations, outputs)
    ]
    nodes = [x for e in equations for x in tv.walk(e.body)]
    read = {x.name for x in nodes if isinstance(x, tv.TracedRead)}.union(arguments)
    declared = []
    for tensor, value in inputs.items():
        # Letters given by name are assigned before the others.
        for axis, hint in zip(value.axes, given.get(tensor, ()), strict=False):
            if axis and hint and tensor in read:
                letters.of(axis[0].size, hint)
    for tensor, value in inputs.items():
        if tensor not in read:
            continue
        usual = _BY_RANK.get(len(value.axes), "")
        axes: list[str] = []
        for axis, own, other in zip_longest(value.axes, given.get(tensor, ()), usual):
            letter = letters.of(axis[0].size, own or other) if axis else "0"
            axes.append(letters.another(letter, axes) if axis else letter)
        text = f"{tensor}[{','.join(axes)}]" if axes else tensor
        declared.append(f"{text}: {value.kind}" if value.kind != "float" else text)
    units = {n: tuple(map(bool, v.axes)) for n, v in inputs.items()} | dict(shapes)
    writer = NotationWriter(letters, kept, units)
    lines = []
    if comments:
        lines += [
            f"# {a} (assumes that the tensor is {a.holds}; the function raises an error otherwise)"
            for a in context.answers
        ]
    for e in equations:
        line = writer.equation(e)
        if comments and e.place is not None:
            lines.append(f"# line {e.place.line}: {e.place.text[:100]}")
        lines.append(line)
    fixed = [f"size({c})={n}" for n, c in letters.known if n.is_Integer]
    composed = _composite_letters(equations, letters)
    sums, products = _dependent_sizes(letters, _concatenated(equations, letters), composed)
    others = [c for c in (*sums, *products) if c not in unsaid]
    sizes = [*fixed, *(f"size({c})={writer.given_size(c)}" for c in others)]
    alike = _unimplied_indices(letters, equations, kept)
    sizes += [f"size({a})=size({b})" for a, b in alike.items() if a not in unsaid]
    read_numbers = {x.name for x in nodes if isinstance(x, tv.TracedParameter)}
    known = {**(numbers or {}), **dict.fromkeys(context.starts, 0)}
    given_numbers = [f"{k}={v!r}" for k, v in known.items() if k in read_numbers]
    sizes = [*given_numbers, *sizes]
    head = ", ".join(declared) + ("; " + ", ".join(sizes) if sizes else "")
    text = "\n".join([f"op {name}({head}) -> {', '.join(outputs)}", *lines]) + "\n"
    parts = _composite_letters(equations, letters, whole=False)
    return StatedSizes(text, (*alike, *sums), products, tuple(c for c in sums if c in parts))


def equations_of(
    equations: Sequence[TracedEquation], outputs: Sequence[str]
) -> list[TracedEquation]:
    """Return the equations that the outputs depend on."""
    wanted, kept = set(outputs), []
    for e in reversed(equations):
        if e.name in wanted:
            kept.append(e)
            wanted |= {x.name for x in tv.walk(e.body) if isinstance(x, tv.TracedRead)}
    return kept[::-1]


def _dependent_sizes(
    letters: Letters, joined: Collection[str], composed: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the letters of derived sizes: (those to state, parts of composite axes)."""
    sizes = letters.sizes
    made = [(sizes.plain(n), c) for n, c in letters.known if c not in joined]
    made = [(n, c) for n, c in made if not n.is_Integer and sizes.meant(n).is_Symbol is not True]
    sums = tuple(c for n, c in made if n.has(sympy.Add) or sizes.meant(n) != n or c not in composed)
    return sums, tuple(c for _, c in made if c not in sums)


def _composite_letters(
    equations: Sequence[TracedEquation], letters: Letters, whole: bool = True
) -> set[str]:
    """Return the letters of parts of composite axes and, if ``whole``, of the whole axes."""
    found = set()
    for e in equations:
        names = letters.in_equation(e.axes, e.body)
        axes = [axis for axis in e.axes if len(axis) > 1]
        for x in tv.walk(e.body):
            if isinstance(x, tv.Joined) and all(isinstance(i, tv.Position) for i in x.items):
                axes.append(tuple(i.atom for i in x.items if isinstance(i, tv.Position)))
        found |= {names[a] for axis in axes for a in axis}
        found |= {letters.of(a.size) for axis in axes for a in axis}
        if not whole:
            continue
        wholes = [tv.size_of(axis) for axis in axes]
        found |= {c for n, c in letters.known if any(letters.sizes.equal(n, w) for w in wholes)}
    return found


def _concatenated(equations: Sequence[TracedEquation], letters: Letters) -> set[str]:
    """Return the letters of concatenated axes, whose size follows from the parts."""
    found = set()
    for e in equations:
        names = letters.in_equation(e.axes, e.body)
        for x in tv.walk(e.body):
            match x:
                case tv.TracedApply("concat", (tv.Position(atom), *_)):
                    found.add(names[atom])
    return found


def _unimplied_indices(
    letters: Letters, equations: Sequence[TracedEquation], kept: Mapping[str, Sequence[tv.Axis]]
) -> dict[str, str]:
    """Map each index whose size follows from no axis to another index of that size."""

    def says(position: tv.Position, axis: tv.Axis) -> bool:
        return letters.sizes.equal(position.atom.size, tv.size_of(axis))

    found: dict[str, str] = {}
    for e in equations:
        names = letters.in_equation(e.axes, e.body)
        said = {
            p.atom
            for x in tv.walk(e.body)
            if isinstance(x, tv.TracedRead)
            for p, axis in zip(x.positions, kept[x.name], strict=True)
            if isinstance(p, tv.Position) and says(p, axis)
        }
        bound = (a for x in tv.walk(e.body) if isinstance(x, tv.TracedReduce) for a in x.atoms)
        for a in (*(a for axis in e.axes for a in axis), *bound):
            base = letters.of(a.size)
            if a not in said and names[a] != base:
                found[names[a]] = base
    return found
