"""One text of two backwards: that of first order, and that of any order.

    shared      k = exp(-gamma*squares)             k = exp(-gamma*squares)
    a fork      part = tanh_backward(G, h)          part = G*(1 - h*h)
    shared      grad_x = part.sum(0)                product = part.sum(0), renamed

Either order runs exactly the lines of its own body, in their order: nothing is run in addition,
and no line moves past another; x + a*b is one call in both if it is one in first order. So every
fact of the data flow of a body holds in the merged text too. In particular, a line of first order
that overwrites a temporary is shared as ``reuse.mul(x, y)``, which overwrites x in first order
alone; there only lines of the first body follow, none of which reads x. In any order it is x*y.

A name of one body becomes that of the other whose line computes the same. The renaming is
injective and keeps what a body is given and what it returns, so neither body changes its meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from derive.program.buffer_reuse import compared, in_place_operation, where_allowed
from derive.program.cse import Line, Needs, numbered
from derive.program.dataflow import live_in
from derive.program.torch_ir import (
    Binary,
    Code,
    FunctionCall,
    MethodCall,
    Name,
    names_in,
    replaced,
    subexpressions,
)

Body = tuple[Line, ...]


@dataclass(frozen=True)
class Segment:
    """Consecutive lines of both bodies; ``shared`` is their one text, or empty in a fork."""

    first: Body
    later: Body
    shared: Body = ()

    def joined(self, other: Segment) -> Segment:
        """Return both segments as one."""
        shared = (*self.shared, *other.shared)
        return Segment((*self.first, *other.first), (*self.later, *other.later), shared)


def merge_bodies(
    first: Body, later: Body, results: Collection[str], taken: Collection[str]
) -> list[Segment]:
    """Return the segments of both bodies, shared ones and forks in turn.

    ``results`` are the returned names. ``taken`` are the other names in use.
    """
    first, later = _Renaming(first, later, results).renamed(taken)
    segments: list[Segment] = []
    for one, two, shared in _aligned(first, later):
        new = Segment(one, two, shared)
        if segments and bool(segments[-1].shared) == bool(shared):
            segments[-1] = segments[-1].joined(new)
        elif one or two:
            segments.append(new)
    return segments


# -------------------------------------------------------------------- alignment


def _aligned(first: Body, later: Body) -> Iterator[tuple[Body, Body, Body]]:
    """Yield (first, later, shared) of a longest common subsequence, and the lines between."""
    exact = compared(later)
    table = {
        (a, b): None if x.name in exact and _rounds_once(x.code) else _shared(x, y)
        for a, x in enumerate(first)
        for b, y in enumerate(later)
    }
    most = Counter[tuple[int, int]]()
    for a in reversed(range(len(first))):
        for b in reversed(range(len(later))):
            here = most[a + 1, b + 1] + 1 if table[a, b] else 0
            most[a, b] = max(here, most[a + 1, b], most[a, b + 1])
    a = b = 0
    while a < len(first) and b < len(later):
        line = table[a, b]
        if line and most[a, b] == most[a + 1, b + 1] + 1:
            yield first[a : a + 1], later[b : b + 1], (line,)
            a, b = a + 1, b + 1
        elif most[a, b] == most[a + 1, b]:
            yield first[a : a + 1], (), ()
            a += 1
        else:
            yield (), later[b : b + 1], ()
            b += 1
    yield first[a:], later[b:], ()


def _shared(line: Line, other: Line) -> Line | None:
    """Return the line that is right in both bodies, if there is one."""
    if (line.name, line.needs) != (other.name, other.needs):
        return None
    code = _same_but_in_place(line.code, other.code)
    return None if code is None else line.having(code)


def _same_but_in_place(code: Code, other: Code) -> Code | None:
    """Return the code with its operations in place decided at run time, if the other has them not.

    x.mul_(y) and x*y, or y*x, make reuse.mul(x, y).
    """
    if code is other:
        return code
    plain = _operation(code) or code
    for way in (code,) if plain is code else _ways(plain):
        if _alike(way, other):
            pairs = zip(way.parts(), other.parts(), strict=True)
            parts = [_same_but_in_place(a, b) for a, b in pairs]
            if None not in parts:
                turned = parts if way is plain else parts[::-1]
                return _with_parts(code, turned) if plain is code else _called(code, turned)
    return None


def _rounds_once(code: Code) -> bool:
    """True if one call multiplies and adds."""
    calls = (x for x in subexpressions(code) if isinstance(x, FunctionCall | MethodCall))
    return any(x.name in ("addcmul_", "torch.addcmul") for x in calls)


def _operation(code: Code) -> Code | None:
    """Return the operation that a call in place computes, and x + a*b of one for the sum."""
    match code:
        case MethodCall(x, "addcmul_", (a, b, *how)) | FunctionCall(
            "torch.addcmul", (x, a, b, *how)
        ):
            return Binary("-" if how else "+", x, Binary("*", a, b))
    return in_place_operation(code)


def _called(code: Code, parts: Sequence[Code | None]) -> Code:
    """Return the call over these parts of its operation, in place where it may be."""
    match code, parts:
        case MethodCall(_, "addcmul_", (_, _, *how)), (Code() as x, Code() as product):
            return where_allowed(MethodCall(x, "addcmul_", (*product.parts(), *how)))
        case FunctionCall("torch.addcmul", (_, _, _, *how)), (Code() as x, Code() as product):
            return FunctionCall("torch.addcmul", (x, *product.parts(), *how))
    return where_allowed(_with_parts(code, parts))


def _ways(code: Code) -> Iterator[Code]:
    """Yield the code, and b op a of a op b if these are the same."""
    yield code
    if isinstance(code, Binary) and code.op in "+*":
        yield Binary(code.op, code.right, code.left)


def _with_parts(code: Code, parts: Iterable[Code | None]) -> Code:
    left = iter(parts)
    made: Code = code.map(lambda _: next(left))
    return made


_HOLE = Name("_")


def _alike(code: Code, other: Code) -> bool:
    """True if two codes differ in their parts alone."""
    if not code.parts() or type(code) is not type(other):
        return False
    return len(code.parts()) == len(other.parts()) and _shell(code) is _shell(other)


@lru_cache(maxsize=2**14)
def _shell(code: Code) -> Code:
    """Return the code with all of its parts left out."""
    return _with_parts(code, [_HOLE] * len(code.parts()))


class _Forms:
    """Numbers of codes: equal if names, operations in place and the order of x + y may differ."""

    def __init__(self) -> None:
        self._of: dict[Code, int] = {}
        self._numbers: dict[tuple[Code | int, ...], int] = {}

    def of(self, code: Code) -> int:
        """Return the number of a code."""
        if code not in self._of:
            plain = _operation(code) or code
            whole: Code = _HOLE if isinstance(plain, Name) else plain
            parts = [self.of(part) for part in whole.parts()]
            if isinstance(plain, Binary) and plain.op in "+*":
                parts.sort()
            shell = _shell(whole) if parts else whole
            self._of[code] = self._numbers.setdefault((shell, *parts), len(self._numbers))
        return self._of[code]


# -------------------------------------------------------------------- names


Guess = Callable[[str, str], bool]
"""Whether two names may be paired because lines that are alike read them."""


@dataclass
class _Renaming:
    """The local names of both bodies that correspond: each name has at most one partner."""

    first: Body
    later: Body
    results: Collection[str]
    partner: dict[str, str] = field(default_factory=dict)
    """A name of the first body -> one of the other."""

    def __post_init__(self) -> None:
        self.free = _local_names(self.first, self.results)
        fixed = _names(self.first) - set(self.free)
        local = _local_names(self.later, self.results)
        self.free_later = {name: kept for name, kept in local.items() if name not in fixed}
        self.known = set[str]()
        """The partners."""
        self.forms = _Forms()
        self.of_form: dict[tuple[int, Needs], list[Line]] = {}
        """The lines of the other body by the forms of their codes."""
        self.named: dict[tuple[str, Needs], list[Line]] = {}
        """These lines by their names, the last one first."""
        for line in self.later:
            self.of_form.setdefault((self.forms.of(line.code), line.needs), []).append(line)
            self.named.setdefault((line.name, line.needs), []).insert(0, line)
        for name in [n for n, kept in self.free.items() if kept and self.free_later.get(n)]:
            self._pair({name: name})
        self._find()

    def _pair(self, new: Mapping[str, str]) -> bool:
        self.partner |= new
        self.known |= set(new.values())
        return bool(new)

    def _find(self) -> None:
        """Pair names until no line tells of more: by their own code before that of readers."""
        while self._by_code() or self._by_readers() or self._by_code(self._are_unnamed):
            pass

    def _by_readers(self) -> bool:
        """Pair what lines of corresponding names read at the same places."""
        return any(
            self._pair(self._unified(line.code, other.code, self._may_pair) or {})
            for line in reversed(self.first)
            for other in self.named.get((self.partner.get(line.name, line.name), line.needs), ())
            if self._same(line.name, other.name)
        )

    def _by_code(self, guess: Guess = lambda *_: False) -> bool:
        """Pair names of lines with the same code, and of what they read as ``guess`` allows."""
        for line in self.first:
            if line.name in self.partner or line.name not in self.free:
                continue
            for other in self.of_form.get((self.forms.of(line.code), line.needs), ()):
                if not self._may_pair(line.name, other.name):
                    continue
                new = self._unified(line.code, other.code, guess)
                if new is not None and line.name not in new and other.name not in new.values():
                    return self._pair(new | {line.name: other.name})
        return False

    def _same(self, name: str, other: str) -> bool:
        if name in self.partner:
            return self.partner[name] == other
        return name == other and other not in self.known and name not in self.free

    def _may_pair(self, name: str, other: str) -> bool:
        """True if two names have no partners and may get each other."""
        if name in self.partner or other in self.known:
            return False
        if name not in self.free or other not in self.free_later:
            return False
        return name == other or not (self.free[name] and self.free_later[other])

    def _are_unnamed(self, name: str, other: str) -> bool:
        """True if two names may be paired and neither is of an equation."""
        kept = self.free.get(name) or self.free_later.get(other)
        return not kept and self._may_pair(name, other)

    def _unified(self, code: Code, other: Code, guess: Guess) -> dict[str, str] | None:
        """Return the pairs under which two codes are the same, up to operations in place."""
        new: dict[str, str] = {}
        return new if self._unify(code, other, guess, new) else None

    def _unify(self, code: Code, other: Code, guess: Guess, new: dict[str, str]) -> bool:
        if isinstance(code, Name) and isinstance(other, Name):
            if new.get(code.id) == other.id or self._same(code.id, other.id):
                return True
            if code.id in new or other.id in new.values() or not guess(code.id, other.id):
                return False
            new[code.id] = other.id
            return True
        plain = _operation(code)
        for way in (code,) if plain is None else _ways(plain):
            if way is other and not any(n in self.free for n in names_in(way)):
                return True
            if _alike(way, other):
                tried = dict(new)
                pairs = zip(way.parts(), other.parts(), strict=True)
                if all(self._unify(a, b, guess, tried) for a, b in pairs):
                    new.update(tried)
                    return True
        return False

    def renamed(self, taken: Collection[str]) -> tuple[Body, Body]:
        """Return both bodies under their common names; ``taken`` are the other names in use."""
        fixed = {*_names(self.first), *_names(self.later), *taken}
        own: dict[str, str] = {}
        others: dict[str, str] = {}
        for name, other in self.partner.items():
            named = self.free[name] and not self.free_later[other]
            if named and name != other and name not in _names(self.later):
                own[name] = others[other] = name
            else:
                own[name] = other
        kept = {n for n in _names(self.first) if n not in own} & set(own.values())
        for name in sorted(kept):
            own[name] = numbered(name.rstrip("0123456789"), fixed)
        return _under(self.first, own), _under(self.later, others)


def _local_names(body: Body, results: Collection[str]) -> dict[str, bool]:
    """Return the names that may change, and whether each is one of the user.

    What is given, what is returned and what is assigned twice keeps its name.
    """
    times = Counter(line.name for line in body)
    fixed = {*live_in(body), *results}
    return {x.name: x.kept for x in body if times[x.name] == 1 and x.name not in fixed}


def _names(body: Body) -> set[str]:
    return {name for line in body for name in (line.name, *names_in(line.code))}


def _under(body: Body, names: Mapping[str, str]) -> Body:
    new: dict[Code, Code] = {Name(old): Name(name) for old, name in names.items()}
    return tuple(
        replace(x, name=names.get(x.name, x.name), code=replaced(x.code, new)) for x in body
    )
