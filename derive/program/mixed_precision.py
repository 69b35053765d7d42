"""The dtypes in which a body computes, for tensors of any dtype, like torch's own operations.

    a matrix product    in the dtype ``low``, to which its tensors promote, or that of autocast
    all else            in the dtype ``wide``, which is at least float32

Sums in half precision overflow and lose digits. So they are computed in float32, and a result is
rounded once. Matrix products accumulate in float32 internally, and are fast only in half precision.
A tensor added to a product stays in ``low`` too, unless the forward has computed it in ``wide``, as
a logarithm of a sum. In float32 all of this does nothing.

A body without roundings in the dtype of its tensors (`derive.program.roundings`) is computed in
that dtype. A body with a single rounding per result is computed so in bfloat16, unless it is
differentiated: torch's derivatives of its calls may round more than once.

Autocast would interfere: a body with products runs without it, once ``low`` is determined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from derive.program.cse import Line
from derive.program.dataflow import Forward
from derive.program.roundings import Roundings, roundings
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    Conditional,
    Dim,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
    Shape,
    Subscript,
    Tuple,
    Unary,
    names_in,
    occurrences,
    replaced,
    subexpressions,
    values_in,
)
from derive.program.torch_ops import ADDED_PRODUCTS, is_float32_under_autocast, moves, torch_op
from derive.program.torch_printer import fits, is_long

LOW, WIDE, DTYPE = map(Name, ("low", "wide", "dtype"))
NAMES = frozenset(name.id for name in (LOW, WIDE, DTYPE))
"""The names of these dtypes in the code; DTYPE is that of a result without a product."""
_OF_ITSELF = ("shape", "device", "ndim")


@dataclass(frozen=True)
class Precision:
    """The dtype of each argument of a body: ``low`` (narrow) or ``wide`` (broad).

    ``listed`` means that autocast returns such a result in float32, as for a norm or a loss.
    """

    narrow: tuple[str, ...] = ()
    broad: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    """The dtype names that occur in the body."""
    listed: bool = False
    listed_where: Code | None = None
    """The test that decides it at run time, if one does."""
    returned: Mapping[str, Name] = field(default_factory=dict)
    """The dtypes to which outputs are rounded."""
    low: frozenset[str] = frozenset()
    """The names of values in ``low``."""
    multiplies_wide: bool = False
    """True if a product is in ``wide``, where autocast would use its own dtype."""
    roundings: Roundings = Roundings.MORE
    """How often results are rounded if computed in the dtype of the tensors."""

    @property
    def has_products(self) -> bool:
        """True if anything is computed in ``low``."""
        return bool(self.narrow) or LOW.id in self.names

    @property
    def has_wide(self) -> bool:
        """True if a body with products reads the wider dtype."""
        return self.has_products and bool(self.broad or WIDE.id in self.names)

    def casts_among(self, other: Precision) -> bool:
        """True if the other casts all that this casts, alike, and more."""
        alike = (self.has_products, self.roundings) == (other.has_products, other.roundings)
        return alike and {*self.narrow} <= {*other.narrow} and {*self.broad} <= {*other.broad}


def multiplies(lines: Iterable[Line]) -> bool:
    """True if the lines have a product that autocast computes in its own dtype."""
    every = (part for line in lines for part in subexpressions(line.code))
    return any(torch_op(part).contracts or getattr(part, "name", "") in _ADDED for part in every)


_ADDED = ("addmm_", "baddbmm_", "rt.addmm", "rt.accumulate_product")

PLAIN = Precision()
"""The precision of a body that takes its tensors as they are."""


def in_precision(
    lines: Sequence[Line],
    given: Sequence[str],
    outputs: Collection[str] = (),
    vectors: Collection[str] = (),
    integers: Collection[str] = (),
    differences: Collection[str] = (),
    statistics: Collection[str] = (),
) -> tuple[list[Line], Precision]:
    """Return the lines with casts to these dtypes, for the given float arguments and outputs.

    ``vectors`` are names with at most one axis: a product with one is treated as any other sum.
    ``integers`` are the integer tensors, ``differences`` those whose products cancel, and
    ``statistics`` the arguments that a forward has computed in ``wide``.
    """
    products = Products.of(lines, vectors, integers, differences)
    often = roundings(lines, given, integers)
    if often is Roundings.NONE and _reads_one(lines, given):
        return list(lines), PLAIN
    parts = {c for line in lines for c in subexpressions(line.code)}
    broad = set() if any(map(products.has, parts)) else set(given)
    while True:
        body = _PrecisionBody(products, given, broad, statistics)
        made = body.lines(lines)
        if body.read <= broad:
            break
        broad |= body.read
    sources = {name: _Sources.of(lines, name, body) for name in outputs if not body.of(Name(name))}
    returned = {name: LOW if found.is_low else DTYPE for name, found in sources.items()}
    listed = any(found.listed for found in sources.values())
    reads = {name for line in made for name in names_in(line.code)}
    reads |= {dtype.id for dtype in returned.values()}
    return made, Precision(
        narrow=tuple(name for name in given if name in reads and name not in broad),
        broad=tuple(name for name in given if name in reads and name in broad),
        names=frozenset(reads & NAMES),
        listed=listed,
        returned=returned,
        low=frozenset(line.name for line in made if body.known[line.name]),
        multiplies_wide=any(torch_op(c).contracts and not products.has(c) for c in parts),
        roundings=often,
    )


def all_wide(
    lines: Sequence[Line], given: Sequence[str], integers: Collection[str] = ()
) -> tuple[list[Line], Precision]:
    """Return the lines of a body without ``low`` values, as its forward has no product."""
    often = roundings(lines, given, integers)
    if often is Roundings.NONE and _reads_one(lines, given):
        return list(lines), PLAIN
    reads = {name for line in lines for name in names_in(line.code)}
    broad = tuple(name for name in given if name in reads)
    return list(lines), Precision(broad=broad, roundings=often)


def _reads_one(lines: Sequence[Line], given: Sequence[str]) -> bool:
    """True if the body reads at most one tensor's elements, so that all have its dtype."""
    reads = {name for line in lines for name in values_in(line.code)}
    return len(reads & set(given)) < 2


@dataclass(frozen=True)
class _Sources:
    """The sources of an output, down to values in ``low``."""

    product: bool
    """True if some source is in ``low``."""
    given: bool
    """True if another source is an argument, to whose dtype the result promotes."""
    listed: bool
    """True if autocast computes some source in float32."""

    @property
    def is_low(self) -> bool:
        """True if the output has the dtype of a product."""
        return self.product and not (self.given or self.listed)

    @classmethod
    def of(cls, lines: Sequence[Line], name: str, body: _PrecisionBody) -> _Sources:
        known: Mapping[str, Code] = {line.name: line.code for line in lines}
        pending: list[Code] = [Name(name)]
        met: set[str] = set()
        product = given = listed = False
        while pending:
            code = pending.pop()
            if body.of(code) and not (isinstance(code, Name) and code.id in body.given):
                product = True
                continue
            match code:
                case Name(read):
                    given = given or read in body.given
                    if read in known and read not in met:
                        met.add(read)
                        pending.append(known[read])
                case Attribute(_, attribute) if attribute in (*_OF_ITSELF, "dtype"):
                    pass
                case Conditional(_, then, other):
                    pending += (then, other)
                case _:
                    listed = listed or is_float32_under_autocast(code)
                    pending += code.parts()
        return cls(product, given, listed)


def rounded(lines: Sequence[Line], returned: Mapping[str, Code]) -> list[Line]:
    """Return the lines with the outputs cast to their returned dtypes."""
    made = list(lines)
    last = {line.name: n for n, line in enumerate(made)}
    for name, dtype in returned.items():
        n = last[name]
        code = MethodCall(made[n].code, "to", (dtype,))
        read = any(name in names_in(line.code) for line in made[n + 1 :])
        if read or is_long(f"{name} = ", code):
            made.append(Line(name, MethodCall(Name(name), "to", (dtype,))))
        else:
            made[n] = made[n].having(code)
    return made


def cast_where_made(lines: Sequence[Line], results: Collection[str]) -> list[Line]:
    """Return the lines with one cast of a value where all its readers would cast it.

    x = f(a); y = g(x.to(d)); z = h(x.to(d))  ->  x = f(a).to(d); y = g(x); z = h(x)

    The value must not be computed in another line too, and its line stay short. A cast to ``low``
    for one reader stays beside the others of its product.
    """
    reads = Counter(name for line in lines for name in values_in(line.code))
    parts = Counter[Code]()
    for line in lines:
        parts.update(occurrences(line.code))
    new: dict[Code, Code] = {}
    moved: dict[str, Code] = {}
    for line in lines:
        value = Name(line.name)
        casts = [c for c in (MethodCall(value, "to", (d,)) for d in (LOW, WIDE)) if parts[c]]
        if len(casts) != 1 or parts[casts[0]] < reads[line.name] or line.name in results:
            continue
        made = MethodCall(line.code, "to", casts[0].args)
        worth = made.args == (WIDE,) or reads[line.name] > 1
        if worth and parts[line.code] == 1 and fits(f"    {line.name} = ", made):
            new[casts[0]], moved[line.name] = value, made
    return [line.having(replaced(moved.get(line.name, line.code), new)) for line in lines]


@dataclass(frozen=True)
class Products:
    """Selects the matrix products: without ``vectors``, ``positions``, or ``integers`` alone.

    Half precision cannot represent all integers, which must be exact; products of ``differences``
    cancel.
    """

    vectors: frozenset[str]
    positions: frozenset[str] = frozenset()
    integers: frozenset[str] = frozenset()
    differences: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        lines: Sequence[Line],
        vectors: Collection[str],
        integers: Collection[str] = (),
        differences: Collection[str] = (),
    ) -> Products:
        positions, whole = set[str](), set(integers)
        for line in lines:
            for known in (positions, whole):
                if _is_of_positions(line.code, known):
                    known.add(line.name)
        return cls(frozenset(vectors), *map(frozenset, (positions, whole, differences)))

    def has(self, code: Code) -> bool:
        """True if the code is such a product."""
        if not torch_op(code).contracts:
            return False
        # Optional arguments are addends, and so is the first of these calls.
        sums = isinstance(code, FunctionCall) and code.name in ADDED_PRODUCTS.values()
        added = dict(torch_op(code).absent) | ({0: 0} if sums else {})
        parts = [part for n, part in enumerate(code.parts()) if n not in added]
        exact = any(_is_of_positions(part, self.positions) for part in parts)
        exact = exact or _is_of_positions(code, self.integers)
        exact = exact or not self.differences.isdisjoint(names_in(code))
        return not exact and not any(map(self._is_vector, parts))

    def _is_vector(self, code: Code) -> bool:
        if isinstance(code, MethodCall) and code.name in ("unsqueeze", "expand"):
            return False
        if isinstance(code, Name):
            return code.id in self.vectors
        return torch_op(code).view and self._is_vector(code.parts()[0])


def _is_of_positions(code: Code, positions: Collection[str]) -> bool:
    """True if the code is a tensor of these or other positions, and of numbers."""
    found, pending = False, [code]
    while pending:
        match pending.pop():
            case FunctionCall("rt.positions" | "torch.arange"):
                found = True
            case Attribute(_, name) if name in (*_OF_ITSELF, "dtype"):
                pass
            case Name(name) if name in positions:
                found = True
            case Name(name) if name not in NAMES:
                return False
            case part:
                pending += part.parts()
    return found


class _PrecisionBody(Forward[bool]):
    """A body whose arguments are in ``low``, except for those in ``wide``."""

    def __init__(
        self,
        products: Products,
        given: Iterable[str],
        broad: Collection[str],
        statistics: Collection[str],
    ) -> None:
        super().__init__({name: name not in broad for name in given})
        self._statistics = set(statistics)
        self.products = products
        self.given = frozenset(given)
        self._left = set(given)
        self.read: set[str] = set()
        """The arguments in ``low`` that are read in ``wide``."""

    def lines(self, lines: Sequence[Line]) -> list[Line]:
        """Return the lines with the casts of each part."""
        made = []
        for line in lines:
            low = self.of(line.code)
            code = self._inside(line.code) if low else self._plain(line.code)
            made.append(line.having(code))
            self.known[line.name] = low
            if low and self._is_statistic(line.code):
                self._statistics.add(line.name)
            if line.name not in names_in(line.code):
                self._left.discard(line.name)
        return made

    def of(self, code: Code) -> bool:
        """True if a value is computed in ``low``."""
        match code:
            case Name(name):
                return self.known.get(name, False)
            case Unary("-", operand):
                return self.of(operand)
            case Binary("+" | "-", left, right):
                sums = all(self.of(x) and not self._is_statistic(x) for x in (left, right))
                return sums and any(map(self._is_of_product, subexpressions(code)))
            case (
                Attribute(obj, "mT" | "T") | Subscript(obj) | MethodCall(obj, "sum" | "sum_to_size")
            ):
                return self.of(obj)
        if torch_op(code).view or moves(code):
            return self.of(code.parts()[0])
        return self.products.has(code)

    def _is_statistic(self, code: Code) -> bool:
        return not self._statistics.isdisjoint(self._roots(code))

    def _is_of_product(self, code: Code) -> bool:
        """True if the code is a matrix product, or the name of a value computed from one."""
        if isinstance(code, Name):
            return self.known.get(code.id, False) and code.id not in self.given
        return self.products.has(code)

    def _inside(self, code: Code) -> Code:
        """Return a value that is in ``low``."""
        match code:
            case Name():
                return code
            case Unary() | Binary("+" | "-"):
                return code.map(self._inside)  # type: ignore[no-any-return]
        if self.products.has(code):
            exact = [p for n, p in enumerate(code.parts()) if n in torch_op(code).exact]
            return code.map(lambda p: self._broadened(p) if p in exact else self._narrowed(p))  # type: ignore[no-any-return]
        # A view, a permutation, or a sum: the other arguments are numbers and positions.
        first, *_ = code.parts()
        return code.map(lambda part: self._inside(part) if part is first else part)  # type: ignore[no-any-return]

    def _narrowed(self, code: Code) -> Code:
        """Return an operand of a product, cast to ``low``."""
        match code:
            case Keyword() | Literal() | Tuple() | Dim() | Shape() | Conditional():
                return code
        if self.of(code):
            return self._inside(code)
        if not self._is_tensor(code):
            return code
        match plain := self._plain(code):
            case MethodCall(mask, "to", (dtype,)) if dtype is WIDE:
                # Integers and truths, made into numbers for the product alone.
                plain = mask
        return MethodCall(plain, "to", (LOW,))

    def _is_tensor(self, code: Code) -> bool:
        """True if an argument of a product is a tensor, not a shape."""
        if isinstance(code, Name):
            return code.id in self.known
        return not (isinstance(code, Attribute) and code.name in _OF_ITSELF)

    def _broadened(self, code: Code) -> Code:
        """Return a part of a value computed in ``wide``."""
        if not self.of(code):
            return self._plain(code)
        self.read |= self._left & set(self._roots(code))
        return MethodCall(self._inside(code), "to", (WIDE,))

    def _plain(self, code: Code) -> Code:
        """Return a value that is not in ``low``."""
        match code:
            case Name() | MethodCall(_, "dim" | "size") | Keyword("device"):
                return code
            case Attribute(_, name) if name in _OF_ITSELF:
                return code
            case Attribute(obj, "dtype"):
                return WIDE if self.of(obj) else code
            case MethodCall(obj, name, args) if torch_op(code).makes:
                given = any(isinstance(a, Keyword) and a.name == "dtype" for a in args)
                if self.of(obj) and not given:
                    return MethodCall(obj, name, (*args, Keyword("dtype", WIDE)))
                return code
        return code.map(self._broadened)  # type: ignore[no-any-return]

    def _roots(self, code: Code) -> Iterable[str]:
        """Yield the names from which a value in ``low`` derives without a product."""
        if isinstance(code, Name):
            yield code.id
        elif not (isinstance(code, Binary) or self.products.has(code)) and code.parts():
            yield from self._roots(code.parts()[0])
