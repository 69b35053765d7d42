"""Judge a gradient that a person wrote in the notation, and say which term is wrong.

The person's formula and the derived one are evaluated at small sizes that all differ. If their
values differ, both are split into terms, and terms of equal value are partners: what is left is
wrong or missing. Nothing here needs torch, NumPy or SymPy.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, combinations, islice
from pathlib import Path
from typing import Any

from derive.algebra.expr import Access, Expr, Index, Reduce, walk
from derive.algebra.substitution import primed, replace_inside_out, substitute, substitution
from derive.algebra.substitution import replace as rewritten
from derive.api import derivation
from derive.auditing.terms import Change, changes, described, replacements, scaled, terms
from derive.budget import working
from derive.errors import DeriveWarning, SpecError
from derive.notation.operation import (
    Choice,
    KeepDim,
    Operation,
    declared_axes,
    names_with_gradient,
    options,
)
from derive.notation.specification import parse
from derive.notation.unparse import written
from derive.reports.formula import Formula, inlined
from derive.reports.result import Derivation
from derive.show.formula import mathml, unicode
from derive.site.points import Point, points, sizes_at

_POINTS = 3
_SAME = 1e-8
"""Values are equal if they differ by less than this, relative to the largest of them."""

_MOST_CHANGES = 400
_MOST_TERMS = 12
_MOST_PAIRS = 3
_TOGETHER = range(2, 5)
"""So many terms may be the partner of one."""

Values = list[list[float]]
"""The values of a formula, a list for each point."""


@dataclass(frozen=True)
class Verdict:
    """What is said of one gradient; formulas are MathML, and sentences plain text.

    ``wrong`` are the terms that have no partner in the derived gradient, and ``missing`` the
    derived ones without a partner. ``why`` compares them, and ``example`` has two values.
    """

    name: str
    right: bool
    formula: str
    wrong: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    why: str = ""
    example: str = ""


def exercises() -> dict[str, str]:
    """Return the operations to begin with: name -> text."""
    text = Path(__file__).with_name("exercises.derive").read_text(encoding="utf-8")
    parts = (part.strip() for part in text.split("\n\n"))
    return {re.findall(r"^op (\w+)", part, re.MULTILINE)[0]: part for part in parts}


def begin(d: Derivation) -> str:
    """Return the left side of the first gradient, to start from."""
    first = next(iter(d.gradients.values()), None)
    return "" if first is None else f"{str(first).partition(' = ')[0]} = "


def judge(op: Operation, attempt: str, option: str | None = None) -> list[Verdict]:
    """Return a verdict on each gradient ``grad_NAME`` that the attempt defines.

    The attempt is one or more equations. They may read the inputs, the equations of the operation,
    its cotangents, and each other.

    Raises:
        DeriveError: the attempt cannot be read, with the line and column in it; or the operation
            has no values at small sizes.
    """
    chosen = dict(options(op))[option]
    known = names_with_gradient(chosen)
    written_names = dict.fromkeys(re.findall(r"^\s*grad_(\w+?)\s*(?:\[|=)", attempt, re.MULTILINE))
    names = [name for name in written_names if name in known]
    if not names:
        wanted = " or ".join(f"grad_{t.name}" for t in chosen.inputs if t.name in known)
        raise SpecError(f"write an equation for {wanted}", kind="incomplete-operation")
    d = derivation(op, option, names)
    own = _read(chosen, d, attempt, [f"grad_{name}" for name in names])
    with working("the exercise"):
        found = points(chosen, dict(d.cotangents), _POINTS)
        comparison = _Comparison(chosen, own, d, found)
        return [comparison.of(name) for name in names]


def _read(op: Operation, d: Derivation, attempt: str, names: Sequence[str]) -> Operation:
    """Return the operation with the equations of the attempt, and the cotangents as inputs."""
    parameters = tuple(p for p in op.parameters if not isinstance(p, Choice | KeepDim))
    head, *rest = written(op.replaced(parameters=parameters)).split("\n")
    axes = declared_axes(op)
    given = [unicode(Access(name, axes[output])) for output, name in d.cotangents]
    at = _end_of_inputs(head)
    head = ", ".join([head[:at], *given]) + head[at:].rpartition(" -> ")[0]
    before = [f"{head} -> {', '.join(names)}", *rest]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeriveWarning)
            return parse("\n".join([*before, attempt]))
    except SpecError as error:
        line = (error.line or 0) - len(before)
        place = {"line": line, "column": error.column} if line > 0 else {}
        raise SpecError(error.message, **place, kind=error.kind) from None


def _end_of_inputs(head: str) -> int:
    """Return where the inputs of an op line end: at its semicolon, or the last parenthesis."""
    depth = 0
    for n, sign in enumerate(head):
        depth += (sign in "([") - (sign in ")]")
        if (sign == ";" and depth == 1) or (sign == ")" and depth == 0):
            return n
    return len(head)


@dataclass(frozen=True)
class _Side:
    """One of the two gradients: its axes and body, the formulas that it names, and its sizes.

    Its tables of named formulas stand under their names with a ``mark`` before them, since both
    sides may have a name. ``sizes`` has those of each point.
    """

    axes: tuple[Expr, ...]
    body: Expr
    named: Mapping[str, Formula]
    points: Sequence[Point]
    sizes: Sequence[Mapping[str, Any]]
    mark: str = ""

    def forms(self) -> Iterator[tuple[Expr, ...]]:
        """Yield the terms as they are written, and with the names written out."""
        yield terms(self.body)
        whole = inlined(self.body, self.named)
        if whole is not self.body:
            yield terms(whole)

    def values(self, e: Expr) -> Values:
        """Return the values of a formula over the axes."""
        found = []
        for point, sizes in zip(self.points, self.sizes, strict=True):
            self._fill(point, e, sizes)
            table = point.table(self.axes, self._marked(e), sizes)
            found.append([float(v) for v in table.values])
        return found

    def _fill(self, point: Point, e: Expr, sizes: Mapping[str, Any]) -> None:
        """Add the tables of the named formulas that e reads."""
        for part in walk(e):
            f = self.named.get(part.tensor) if isinstance(part, Access) else None
            if f is not None and self.mark + f.name not in point.tables:
                self._fill(point, f.body, sizes)
                table = point.table(f.axes, self._marked(f.body), sizes)
                point.tables[self.mark + f.name] = table

    def _marked(self, e: Expr) -> Expr:
        def called(part: Expr) -> Expr | None:
            if not isinstance(part, Access) or part.tensor not in self.named:
                return None
            return Access(self.mark + part.tensor, tuple(map(self._marked, part.positions)))

        return rewritten(e, called)


class _Comparison:
    """Compares the gradients of an attempt with the derived ones."""

    def __init__(
        self, op: Operation, own: Operation, d: Derivation, found: Sequence[Point]
    ) -> None:
        self.op, self.d, self.points = op, d, found
        self.equations = own.equations[len(op.equations) :]
        self.helpers = {e.name: Formula(e.name, e.axes, e.body) for e in self.equations}
        self.own_sizes = [sizes_at(own, point) for point in found]
        self.named = {f.name: f for f in (*d.definitions, *d.adjoints, *d.gradients.values())}

    def of(self, name: str) -> Verdict:
        """Return the verdict on the gradient of one name."""
        equation = self.helpers[f"grad_{name}"]
        right = self.d.gradients[name]
        verdict = Verdict(f"grad_{name}", False, equation.mathml())
        if clash := self._clash(name):
            return replace(verdict, why=clash)
        own = [sizes or {} for sizes in self.own_sizes]
        mine = _Side(equation.axes, equation.body, self.helpers, self.points, own, "own ")
        renamed = self._in_letters_of(equation, right)
        sizes = [point.sizes for point in self.points]
        theirs = _Side(renamed.axes, renamed.body, self.named, self.points, sizes)
        try:
            values = mine.values(mine.body)
        except (IndexError, KeyError) as error:
            return replace(verdict, why=f"it reads what is not there: {error}")
        wanted = theirs.values(theirs.body)
        if list(map(len, values)) != list(map(len, wanted)):
            return replace(verdict, why=self._axes_of(name))
        if _alike(values, wanted):
            return replace(verdict, right=True)
        return self._explained(verdict, mine, theirs, values, wanted)

    # ------------------------------------------------------------------------------ letters

    def _in_letters_of(self, equation: Formula, right: Formula) -> Formula:
        """Return the derived gradient in the letters of the attempt's left side."""
        letters: dict[Index, Expr] = {}
        if len(equation.axes) == len(right.axes):
            for mine, axis in zip(equation.axes, right.axes, strict=True):
                if isinstance(mine, Index) and isinstance(axis, Index):
                    letters[axis] = Index(mine.name, axis.extent, axis.group)
        axes = tuple(substitute(axis, letters) for axis in right.axes)
        body = substitute(right.body, letters)
        return Formula(right.name, axes, _lettered(body, {i.name for i in _letters(axes)}))

    def _axes_of(self, name: str) -> str:
        return f"its axes are those of {name}: {str(self.d.gradients[name]).partition(' = ')[0]}"

    def _clash(self, name: str) -> str:
        """Return where a letter stands for axes of different sizes, or ""."""
        axes = declared_axes(self.op)
        known: dict[str, Sequence[Expr | None]] = dict(axes)
        known |= {cotangent: axes[output] for output, cotangent in self.d.cotangents}
        known |= {f"grad_{tensor}": own for tensor, own in axes.items()}
        whole: _Used = {}
        for equation in self.equations:
            used: _Used = {}
            left = Access(equation.name, equation.axes)
            found = _clashes(left, known, used) or _clashes(equation.body, known, used)
            if found := found or next(_of_two_sizes(used, used), ""):
                return found
            if equation.name == f"grad_{name}" and len(equation.axes) != len(axes[name]):
                return self._axes_of(name)
            own = [next(iter(used.get(axis, {})), None) for axis in equation.axes]
            known.setdefault(equation.name, [None if e is None else Index("_", e) for e in own])
            for letter, sizes in used.items():
                whole.setdefault(letter, {}).update(sizes)
        for equation in self.op.equations:
            _clashes(equation.body, known, whole)
        if found := next(_of_two_sizes(whole, whole), ""):
            return f"{found}; a letter has one size in all equations"
        return self._axes_of(name) if None in self.own_sizes else ""

    # -------------------------------------------------------------------------- explanations

    def _explained(
        self, verdict: Verdict, mine: _Side, theirs: _Side, values: Values, wanted: Values
    ) -> Verdict:
        """Return the verdict on a wrong gradient, with the terms that have no partner."""
        found = (
            _without_partners(
                [(t, mine.values(t)) for t in one], [(t, theirs.values(t)) for t in other]
            )
            for one in mine.forms()
            for other in theirs.forms()
        )
        wrong, missing = min(found, key=lambda left: len(left[0]) + len(left[1]))
        why = self._times(values, wanted)
        if not why and len(wrong) == len(missing) <= _MOST_PAIRS:
            why = self._in_pairs(mine, theirs, wrong, missing)
        if not why and len(wrong) + len(missing) == 1:
            state = "too many" if wrong else "missing"
            why = f"the term {unicode((wrong or missing)[0])} is {state}"
        why = why or self._one_change(theirs, theirs.body, values)
        pairs = enumerate(zip(values[0], wanted[0], strict=True))
        place, (got, right) = max(pairs, key=lambda pair: abs(pair[1][0] - pair[1][1]))
        return replace(
            verdict,
            wrong=tuple(map(mathml, wrong)),
            missing=tuple(map(mathml, missing)),
            why=why,
            example=self._example(theirs.axes, place, got, right),
        )

    def _in_pairs(
        self, mine: _Side, theirs: _Side, wrong: Sequence[Expr], missing: Sequence[Expr]
    ) -> str:
        """Return the change of each missing term that makes a wrong one, or "" for several."""
        left, found = list(missing), []
        for term in wrong:
            got = mine.values(term)
            for other in left:
                if why := self._one_change(theirs, other, got):
                    found.append(why)
                    left.remove(other)
                    break
        return "" if left else "; ".join(dict.fromkeys(found))

    def _one_change(self, theirs: _Side, right: Expr, got: Values) -> str:
        """Return which change of the right formula or term has these values, or ""."""
        if times := self._times(got, theirs.values(right)):
            return times
        free = frozenset(_letters(theirs.axes))
        axes = declared_axes(self.op)
        others = replacements(right, axes, sorted(axes))
        tried = chain(_other_letters(right, free), others, changes(right, free))
        for change in islice(tried, _MOST_CHANGES):
            try:
                values = theirs.values(change.after)
            except (ArithmeticError, IndexError, KeyError, ValueError):
                continue
            if _alike(values, got):
                return described(change, right, unicode, "")
        return ""

    def _times(self, got: Values, wanted: Values) -> str:
        """Return the factor by which all values are wrong, a number or a size, or ""."""
        ratio = _ratio(got, wanted)
        if ratio is not None:
            return scaled(ratio, None, (), "")
        for extent in self.points[0].sizes:
            for power in (1, -1):
                sizes = [float(point.size(extent)) ** power for point in self.points]
                times = [[w * n for w in part] for part, n in zip(wanted, sizes, strict=True)]
                if _alike(got, times):
                    text = f"size({extent})" if power > 0 else f"1/size({extent})"
                    return scaled(None, text, (), "")
        return ""

    def _example(self, axes: Sequence[Expr], place: int, got: float, wanted: float) -> str:
        """Return the first place at which the values differ, with both."""
        letters = [i.name for i in _letters(axes)]
        sizes = [n for axis in axes for n in self.points[0].shape(axis)]
        at = []
        for size in reversed(sizes):
            place, position = divmod(place, size)
            at.append(position)
        where = ", ".join(f"{i} = {n}" for i, n in zip(letters, reversed(at), strict=False))
        where = f"at {where}, " if where else ""
        return f"{where}yours is {got:.6g} and the right one {wanted:.6g} on a sample"


def _letters(axes: Sequence[Expr]) -> list[Index]:
    return [i for axis in axes for i in walk(axis) if isinstance(i, Index)]


def _lettered(e: Expr, outside: Collection[str]) -> Expr:
    """Return e with letters for the bound indices that the engine named, none of ``outside``."""

    def renamed(part: Expr) -> Expr:
        if not isinstance(part, Reduce):
            return part
        taken = {i.name for i in walk(part) if isinstance(i, Index)} | set(outside)
        letters: dict[Index, Expr] = {}
        for i in part.indices:
            if i.name.startswith("_"):
                name = primed(i.extent, taken)
                taken.add(name)
                letters[i] = Index(name, i.extent, i.group)
        return part.map(substitution(letters))  # type: ignore[no-any-return]

    return replace_inside_out(e, renamed)


def _other_letters(e: Expr, known: frozenset[Index]) -> Iterator[Change]:
    """Yield e with one index of one read replaced by another one of its size."""
    if isinstance(e, Access):
        for n, p in enumerate(e.positions):
            for other in sorted(known, key=lambda i: i.name):
                if not isinstance(p, Index) or other is p:
                    continue
                if (other.extent, other.group) == (p.extent, p.group):
                    after = Access(e.tensor, (*e.positions[:n], other, *e.positions[n + 1 :]))
                    yield Change(after, "stands", (after, e))
        return
    inner = known | frozenset(e.bound())
    for part in dict.fromkeys(e.parts()):
        for change in _other_letters(part, inner):

            def put(p: Expr, old: Expr = part, new: Expr = change.after) -> Expr:
                return new if p is old else p

            yield change.inside(e.map(put))


# ------------------------------------------------------------------------------------- comparisons


def _alike(one: Values, other: Values) -> bool:
    """True if all values are equal, up to the rounding of the largest."""
    pairs = list(zip(chain(*one), chain(*other), strict=True))
    scale = max((abs(v) for pair in pairs for v in pair), default=0.0)
    return all(abs(a - b) <= _SAME * scale for a, b in pairs)


def _ratio(got: Values, wanted: Values) -> Fraction | None:
    """Return a simple number r with got = r*wanted, or None."""
    square = sum(w * w for w in chain(*wanted))
    if not square:
        return None
    ratio = sum(g * w for g, w in zip(chain(*got), chain(*wanted), strict=True)) / square
    if not math.isfinite(ratio):
        return None
    simple = Fraction(ratio).limit_denominator(64)
    return simple if _alike(got, [[float(simple) * w for w in part] for part in wanted]) else None


def _total(several: Sequence[Values]) -> Values:
    return [[sum(v) for v in zip(*parts, strict=True)] for parts in zip(*several, strict=True)]


def _without_partners(
    mine: Sequence[tuple[Expr, Values]], theirs: Sequence[tuple[Expr, Values]]
) -> tuple[list[Expr], list[Expr]]:
    """Return the terms of both sides that have no partner of the same value.

    One term may be the partner of several together.
    """
    left, right = [[t for t in side if any(chain(*t[1]))] for side in (mine, theirs)]
    for term in list(left):
        partner = next((other for other in right if _alike(term[1], other[1])), None)
        if partner is not None:
            left.remove(term)
            right.remove(partner)
    for some, others in ((left, right), (right, left)):
        if len(others) > _MOST_TERMS:
            continue
        for term in list(some):
            several = (s for n in _TOGETHER for s in combinations(others, n))
            for chosen in islice(several, _MOST_CHANGES):
                if _alike(term[1], _total([values for _, values in chosen])):
                    some.remove(term)
                    for c in chosen:
                        others.remove(c)
                    break
    return [t for t, _ in left], [t for t, _ in right]


# ----------------------------------------------------------------------------------------- letters

_Used = dict[Expr, dict[str, Expr]]
"""A letter -> the sizes for which it stands -> a read where it does."""


def _clashes(e: Expr, axes: Mapping[str, Sequence[Expr | None]], used: _Used) -> str:
    """Note for which sizes the free letters of e stand; return what is wrong with a bound one."""
    if isinstance(e, Access):
        for position, axis in zip(e.positions, axes.get(e.tensor, ()), strict=False):
            if isinstance(position, Index) and isinstance(axis, Index):
                used.setdefault(position, {}).setdefault(axis.extent, e)
    bound = e.bound()
    inner = {i: u for i, u in used.items() if i not in bound} if bound else used
    for part in e.parts():
        if found := _clashes(part, axes, inner):
            return found
    if bound:
        if found := next(_of_two_sizes(inner, bound), ""):
            return found
        used |= {i: u for i, u in inner.items() if i not in bound}
    return ""


def _of_two_sizes(used: _Used, letters: Mapping[Expr, object] | Sequence[Index]) -> Iterator[str]:
    """Yield a sentence for each of the letters that stands for two sizes."""
    for letter in letters:
        found = list(used.get(letter, {}).items())
        if len(found) > 1:
            (one, first), (other, second) = found[:2]
            yield (
                f"the index {unicode(letter)} has size({one}) in {unicode(first)}, and "
                f"size({other}) in {unicode(second)}"
            )
