"""Find the single edit of a backward after which its gradients are right.

The edited source runs on what forward saved. An edit counts if it makes a wrong gradient right at
every point and leaves the right ones right.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from itertools import chain
from typing import Any

import torch

from derive.auditing.edits import edits, saved
from derive.auditing.forward import Context, Subject, same_draws, tensors_of
from derive.auditing.gradients import Outcome, near
from derive.auditing.isolation import isolated, may_fork
from derive.auditing.points import cast, is_float, is_tensor
from derive.auditing.structure import Kind, Path
from derive.auditing.substitution_edits import CodeScope, Edit

_SECONDS = 6.0
"""CPU seconds of the search."""
_WALL = 20.0
_POINTS = 7
_EQUAL = 1e-9
_SYNONYMS = 3


def mended(
    subject: Subject,
    outcomes: Sequence[Outcome],
    others: Sequence[Outcome],
    wrong: Sequence[int],
    tolerance: float,
    kinds: Mapping[Path, Kind] | None = None,
    seconds: float = _SECONDS,
) -> dict[int, str]:
    """Describe the mistake in each gradient that a single edit mends.

    The edit mends it at all ``outcomes`` and ``others``. The search runs in its own process, since
    edited code may do anything.
    """
    points = sorted((o for o in outcomes if not _on_device(o)), key=_elements)[:_POINTS]
    if not points or not wrong or not may_fork():
        return {}
    try:
        search = _Search(subject, points, others, tuple(wrong), tolerance, kinds or {}, seconds)
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            return isolated(lambda enter: search.found(), _WALL)[0]
    except Exception:
        return {}


def _elements(made: Outcome) -> int:
    return sum(a.numel() for a in made.args if is_tensor(a))


def _on_device(made: Outcome) -> bool:
    return any(is_tensor(a) and a.device.type != "cpu" for a in made.args)


@dataclass(frozen=True)
class _Code:
    """The syntax tree of a function, with its source and globals."""

    tree: ast.FunctionDef
    lines: Sequence[str]
    first: int
    globals: Mapping[str, Any]


def _parse_function(function: Any) -> _Code:
    function = inspect.unwrap(function)
    lines, first = inspect.getsourcelines(function)
    text = textwrap.dedent("".join(lines))
    (tree,) = ast.parse(text).body
    assert isinstance(tree, ast.FunctionDef)
    tree.decorator_list = []
    known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    if inspect.ismethod(function):  # a class method: the class is no argument
        own = tree.args.posonlyargs or tree.args.args
        known[own.pop(0).arg] = function.__self__
    return _Code(tree, text.splitlines(), first, known)


@dataclass
class _Point:
    """One call: what forward saved, and the right gradients."""

    made: Outcome
    context: Context
    cotangents: tuple[Any, ...]
    extras: dict[str, Any] = field(default_factory=dict)
    """The forward's arguments by name."""


class _Search:
    """The search for a single edit."""

    def __init__(
        self,
        subject: Subject,
        outcomes: Sequence[Outcome],
        others: Sequence[Outcome],
        wrong: tuple[int, ...],
        tolerance: float,
        kinds: Mapping[Path, Kind],
        seconds: float,
    ) -> None:
        self.subject, self.kinds = subject, kinds
        self.wrong, self.tolerance, self.seconds = wrong, tolerance, seconds
        self.outcomes = outcomes
        self.backward = _parse_function(subject.function.backward)
        self.helpers = [_parse_function(f) for f in self._called(self.backward)]
        self.trees: list[ast.stmt] = [c.tree for c in (self.backward, *self.helpers)]
        self.points = [self._point(o) for o in outcomes]
        self.others = [self._point(o) for o in others]
        self.summed = set(outcomes[0].right)
        raw = self._run(self.points[0], self._compiled())
        for n, right in outcomes[0].right.items():
            if n < len(raw) and is_tensor(raw[n]) and raw[n].shape == right.shape:
                self.summed.discard(n)

    def _called(self, code: _Code) -> list[Any]:
        """Return the functions of the same module that the code calls."""
        used = {n.id for n in ast.walk(code.tree) if isinstance(n, ast.Name)}
        return [code.globals[n] for n in self._functions(code) if n in used]

    def _functions(self, code: _Code) -> list[str]:
        module = code.globals.get("__name__")
        return [
            n
            for n, f in code.globals.items()
            if isinstance(f, types.FunctionType) and f.__module__ == module
        ]

    def _point(self, made: Outcome, context: Context | None = None) -> _Point:
        subject = self.subject
        if context is None:
            context, _, outputs = subject.context(made.args)
        else:
            outputs = made.cotangents
        given = tuple(
            (torch.zeros_like(o) if is_float(o) else None) if g is None else g
            for g, o in zip(made.cotangents, outputs, strict=False)
        )
        if subject.dtype is not None:
            given = tuple(cast(g, subject.dtype) for g in given)
        known = self.backward.globals
        plain = subject.plain_names(len(made.args))
        extras = {
            n: a
            for n, a in zip(plain, made.args, strict=True)
            if n.isidentifier() and n not in known
        }
        return _Point(made, context, given, extras)

    # ------------------------------------------------------------------ runs

    def _run(self, point: _Point, code: types.CodeType) -> tuple[Any, ...]:
        """Run the edited code; return the gradients."""
        space = {**self.backward.globals, **point.extras}
        exec(code, space)
        with torch.no_grad(), same_draws():
            given = [g.clone() if is_tensor(g) else g for g in point.cotangents]
            raw = space[self.backward.tree.name](_copy_context(point.context), *given)
        return raw if isinstance(raw, tuple) else (raw,)

    def _compiled(self) -> types.CodeType:
        return compile(ast.Module(self.trees, []), "<edited>", "exec")

    def _given(self, point: _Point, raw: Sequence[Any], n: int) -> Any:
        value: Any = raw[n] if n < len(raw) else None
        right = point.made.right[n]
        # The engine's sum is intended only if the unedited code relied on it.
        if n in self.summed and is_tensor(value) and value.shape != right.shape:
            try:
                return value.sum_to_size(right.shape)
            except RuntimeError:
                return value
        return value

    def _right(self, point: _Point, raw: Sequence[Any]) -> set[int]:
        """Return the numbers of the gradients that are right."""
        return {n for n in point.made.right if self._is_right(point, raw, n)}

    def _is_right(self, point: _Point, raw: Sequence[Any], n: int) -> bool:
        given, right = self._given(point, raw, n), point.made.right[n]
        kind = self.kinds.get((n,))
        if kind is not None and kind.tangent is not None and is_tensor(given):
            # Compare along the tangent space of the kind, as in the verdict.
            if given.shape != right.shape:
                return False
            at = point.made.args[n].detach().double()
            sides = [kind.tangent(g.detach().double(), at) for g in (given, right)]
            return near(sides[0], sides[1], self.tolerance)
        return near(given, right, self.tolerance)

    def _scope(self) -> CodeScope:
        """Return the names in backward, with their values at the first point."""
        point, code = self.points[0], self._compiled()
        with _watched(self.backward.tree.name, others=True) as local:
            raw = self._run(point, code)
        for n in point.made.right:
            given = point.made.given.get(n)
            mine = self._given(point, raw, n)
            if (given is None) != (mine is None):
                return CodeScope({})
            if given is not None and not near(mine, given, self.tolerance):
                return CodeScope({})  # it behaves differently here than in the engine
        values = {**point.extras, **local, **_ctx_attributes(point.context)}
        values.pop("ctx", None)
        values |= _size_expressions(values)
        return CodeScope(values, self._functions(self.backward), _loops(self.trees))

    # ---------------------------------------------------------------- search

    def found(self) -> dict[int, str]:
        """Return a sentence for each gradient that one edit mends."""
        scope = self._scope()
        if not scope.values:
            return {}
        self.keep, self.other_keep = self._kept_right(self.points), self._kept_right(self.others)
        left = [n for n in self.wrong if n not in self.keep]
        told = dict[int, str]()
        start = time.process_time()
        for edit in edits(self.trees, scope):
            if not left or time.process_time() - start > self.seconds:
                break
            mends = self._mends(edit, left)
            if not mends or self._is_vague(edit, mends):
                continue
            edit = self._best(edit, scope, mends) if edit.stem else edit
            elsewhere = _mended(edit, mends, self._right_at(self.others), self.other_keep)
            told |= {n: self._said(edit) for n in mends if elsewhere == mends}
            left = [n for n in left if n not in told]
        left = [n for n in self.wrong if n not in self.keep and n not in told]
        if left and time.process_time() - start < self.seconds:
            told |= self._by_what_is_saved(left)
        return told

    def _kept_right(self, points: Sequence[_Point]) -> set[int]:
        """Return the gradients that are right at every point without an edit."""
        found = [*self._right_at(points)]
        return set.intersection(*found) if found else set()

    def _mends(self, edit: Edit, left: Sequence[int]) -> list[int]:
        """Return the gradients that the edit makes right; none if it breaks another."""
        return _mended(edit, left, self._right_at(self.points), self.keep)

    def _right_at(self, points: Sequence[_Point]) -> Iterator[set[int]]:
        """Yield the gradients that are right at each point, by the code as it is now."""
        code = self._compiled()
        for point in points:
            yield self._right(point, self._run(point, code))

    def _is_vague(self, edit: Edit, mends: Sequence[int]) -> bool:
        """True if a slightly scaled value also works, as for a value that is only compared."""
        return _has_value(edit) and bool(self._mends(edit.scaled(), mends))

    def _best(self, found: Edit, scope: CodeScope, mends: list[int]) -> Edit:
        """Return the same edit where it mends the most gradients: beside a product, late."""

        def order(edit: Edit, count: int) -> tuple[int, bool, int]:
            return count, isinstance(edit.before, ast.BinOp), edit.line

        best, most = found, order(found, len(mends))
        for edit in edits(self.trees, scope):
            if edit.stem == found.stem and order(edit, len(self.wrong)) > most:
                reached = order(edit, len(self._mends(edit, self.wrong)))
                if reached > most:
                    best, most = edit, reached
        return best

    def _said(self, edit: Edit) -> str:
        for code in (self.backward, *self.helpers):
            parts = list(ast.walk(code.tree))
            lists = (v for p in parts for _, v in ast.iter_fields(p))
            if any(x is edit.where for x in (*parts, *lists)):
                return _with_line(edit, code)
        return edit.text

    def _by_what_is_saved(self, left: Sequence[int]) -> dict[int, str]:
        """Search edits of what forward saves."""
        if self.subject.has_setup:
            return {}
        own = _parse_function(self.subject.function.forward)
        local = _locals(self.subject, self.points[0].made, own)
        backward, told = self._compiled(), dict[int, str]()
        scope, start = CodeScope(local, self._functions(own)), time.process_time()
        for edit in chain(saved(own.tree, scope), edits([own.tree], scope)):
            left = [n for n in left if n not in told]
            if not left or time.process_time() - start > self.seconds:
                break
            mends = self._mends_saved(edit, own, backward, left)
            if mends and _has_value(edit):
                if self._mends_saved(edit.scaled(), own, backward, mends):
                    continue
            for n in mends:
                told[n] = _with_line(edit, own)
        return told

    def _mends_saved(
        self, edit: Edit, own: _Code, backward: types.CodeType, left: Sequence[int]
    ) -> list[int]:
        """Return the gradients that an edited forward makes right, if its outputs are unchanged."""
        return _mended(edit, left, self._right_after(own, backward), self.keep)

    def _right_after(self, own: _Code, backward: types.CodeType) -> Iterator[set[int]]:
        for made in self.outcomes:
            context, outputs = _run_forward_code(self.subject, made, own)
            pairs = zip(outputs, self.subject.own(made.args), strict=False)
            same = all(near(a, b, _EQUAL) for a, b in pairs if is_float(a))
            point = self._point(made, context)
            yield self._right(point, self._run(point, backward)) if same else set()


def _mended(
    edit: Edit, left: Sequence[int], right_at: Iterator[set[int]], keep: set[int]
) -> list[int]:
    """Return which of these gradients the edit makes right; none if it breaks another."""
    before = edit.swapped()
    try:
        mends = list(left)
        for right in right_at:
            mends = [n for n in mends if n in right]
            if not mends or not keep <= right:
                return []
        return mends
    except Exception:
        return []
    finally:
        edit.undone(before)


def _has_value(edit: Edit) -> bool:
    """True if the new node is computed; of a name, maybe only the shape is read."""
    return isinstance(edit.after, ast.expr) and not isinstance(edit.after, ast.Name)


def _with_line(edit: Edit, code: _Code) -> str:
    line = code.lines[edit.line - 1].strip() if edit.line <= len(code.lines) else ""
    where = f" in line {code.first + edit.line - 1}"
    return f"{edit.text}{where}: {line}" if line else edit.text + where


def _ctx_attributes(context: Context) -> dict[str, Any]:
    """Return the attributes of ctx that forward sets."""
    own = ("saved_tensors", "needs_input_grad", "dirty", "kept_for_forward", "left_out")
    return {f"ctx.{key}": value for key, value in vars(context).items() if key not in own}


def _size_expressions(values: Mapping[str, Any]) -> dict[str, int]:
    """Return expressions for each size: several, since two axes may be equal only at this point."""
    found: dict[str, int] = {}
    for name, value in values.items():
        if is_tensor(value) and name.isidentifier():
            for axis, size in enumerate(value.shape):
                if size > 1 and list(found.values()).count(size) < _SYNONYMS:
                    found[f"{name}.shape[{axis}]"] = size
    return found


def _loops(trees: Sequence[ast.stmt]) -> list[str]:
    """Return the loop variables."""
    every = [part for tree in trees for part in ast.walk(tree)]
    return [p.target.id for p in every if isinstance(p, ast.For) and isinstance(p.target, ast.Name)]


def _copy_context(context: Context) -> Context:
    """Return a context with copied tensors, since backward may overwrite them."""
    made = Context(context.needs_input_grad)
    for key, value in vars(context).items():
        if is_tensor(value):
            value = value.clone()
        setattr(made, key, value)
    made.saved_tensors = tuple(t.clone() if is_tensor(t) else t for t in context.saved_tensors)
    return made


def _run_forward_code(
    subject: Subject, made: Outcome, code: _Code
) -> tuple[Context, tuple[Any, ...]]:
    """Run the edited forward; return what it saves, and its outputs."""
    space = dict(code.globals)
    exec(compile(ast.Module([code.tree], []), "<edited>", "exec"), space)
    context = Context([is_float(a) and n not in subject.constants for n, a in enumerate(made.args)])
    copies = [a.detach().clone() if is_tensor(a) else a for a in made.args]
    with same_draws():
        outputs = tensors_of(space[code.tree.name](context, *copies))
    return context, outputs


def _locals(subject: Subject, made: Outcome, code: _Code) -> dict[str, Any]:
    """Return the local variables of a forward."""
    with _watched(code.tree.name) as local:
        _run_forward_code(subject, made, code)
    local.pop("ctx", None)
    return local


@contextmanager
def _watched(name: str, others: bool = False) -> Iterator[dict[str, Any]]:
    """Collect the local variables of an edited function, and those of the ``others`` it calls."""
    local: dict[str, Any] = {}

    def watch(frame: Any, event: str, arg: Any) -> None:
        if event == "return" and frame.f_code.co_filename == "<edited>":
            if frame.f_code.co_name == name:
                local.update(frame.f_locals)
            elif others and not frame.f_code.co_name.startswith("<"):
                for key, value in frame.f_locals.items():
                    local.setdefault(key, value)

    sys.setprofile(watch)
    try:
        yield local
    finally:
        sys.setprofile(None)
