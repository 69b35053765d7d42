"""Names of values that the formulas do not name: each says how the value is computed.

    exp_x, G_weight, x_minus_mu, sum_of_G, F_at_target, G_by_source, safe_norm, x_nonzero

A product is named by its factors, as in a formula. In a name, a long name is its first tensor.
Two values get different words before they get numbers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from keyword import iskeyword

from derive.algebra.expr import MIRRORED
from derive.program.cse import VALUE, Line
from derive.program.program import Program, Tangent
from derive.program.torch_ir import (
    NONE,
    Attribute,
    Binary,
    Code,
    Conditional,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
    Subscript,
    Tuple,
    Unary,
    names_in,
    operands,
    replaced,
    subexpressions,
    text,
)
from derive.program.torch_ops import SAID, torch_op

_MOST = 25
"""Maximum letters of a name."""
_MOST_OF_OPERAND = 15
"""Maximum letters of an operation in the name of another."""
_SHORT = 14
"""Maximum letters of a generated name in another one."""
_VAGUE = frozenset("u product top bottom mean some every others".split())
"""Stems of the names of the engine that say what is done, but not to what."""


@dataclass(frozen=True)
class Names:
    """Names values: the formulas have the ``shown`` names, no value gets a ``taken`` one."""

    shown: Collection[str] = ()
    taken: Collection[str] = ()
    remarks: Mapping[str, str] = field(default_factory=dict)
    """What is written beside the line of a name."""

    def in_program(self, program: Program) -> Program:
        """Return the program with names for the values of its bodies."""
        fixed = [*program.inputs, *program.outputs, *program.statistics]
        fixed += [name for _, name in program.cotangents if name is not None]
        numbers = program.parameters
        return program.in_bodies(lambda body: self.in_lines(body, fixed, numbers))

    def in_tangent(self, tangent: Tangent | None, program: Program) -> Tangent | None:
        """Return the tangents with names for their values."""
        if tangent is None:
            return None
        fixed = [*program.inputs, *program.outputs, *tangent.results.values()]
        return replace(tangent, lines=self.in_lines(tangent.lines, fixed, program.parameters))

    def in_lines(
        self, lines: Sequence[Line], fixed: Iterable[str] = (), numbers: Collection[str] = ()
    ) -> tuple[Line, ...]:
        """Return the lines with a name for each value that has none that says what it is.

        No value gets a name in ``fixed``, or of one of the parameters, the ``numbers``.
        """
        made = self._renamed(lines, fixed, numbers)
        return tuple(line for line in made if line.code is not Name(line.name))

    def _renamed(
        self, lines: Sequence[Line], fixed: Iterable[str], numbers: Collection[str]
    ) -> list[Line]:
        """Return the lines; one that only repeats another name is x = x."""
        lines = self._as_results(lines, {*fixed, *(x.name for x in lines if x.kept)})
        used = {*self.taken, *fixed, *numbers, *(line.name for line in lines)}
        used.update(n for line in lines for n in names_in(line.code))
        new: dict[Code, Code] = {}
        words, result = _Words(set(numbers)), []
        varying = _varying(lines)
        for line in lines:
            code, name = replaced(line.code, new), line.name
            if Name(name) in new:
                (name,) = names_in(new[Name(name)])
            elif not line.kept and isinstance(code, Name) and code.id not in varying:
                name = code.id
            elif not line.kept and self._is_vague(name):
                name = next(n for n in words.candidates(code) if not (n in used or iskeyword(n)))
                words.add(name, code)
            if name != line.name:
                used.add(name)
                new[Name(line.name)] = Name(name)
            remark = "" if name in varying else self.remarks.get(name, "")
            result.append(replace(line, name=name, code=code, remark=remark))
        return result

    def _as_results(self, lines: Sequence[Line], fixed: Collection[str]) -> list[Line]:
        """Return the lines with a value named as the result that is only a view or a cast of it."""
        made = list(lines)
        for n in range(len(made) - 1, -1, -1):
            line = made[n]
            inner = _bare(line.code)
            while isinstance(inner, FunctionCall) and inner.name == "rt.no_view":
                inner = _bare(inner.args[0])
            if line.name not in fixed or not isinstance(inner, Name) or inner is line.code:
                continue
            name = inner.id
            homes = [k for k in range(n) if made[k].name == name]
            readers = [k for k, x in enumerate(made) if name in names_in(x.code)]
            between = made[homes[0] : n] if homes else made[:n]
            met = {line.name for line in between} | {m for x in between for m in names_in(x.code)}
            alone = len(homes) == 1 and readers == [n] and names_in(line.code).count(name) == 1
            if alone and self._is_vague(name) and not made[homes[0]].kept and line.name not in met:
                whole = replaced(line.code, {inner: Name(line.name)})
                made[homes[0]] = replace(made[homes[0]], name=line.name, kept=True)
                made[n] = line.having(whole)
        return made

    def _is_vague(self, name: str) -> bool:
        """True if a generated name does not say what it is."""
        bare = name.rstrip("0123456789")
        return name not in self.shown and (bare != name or bare in (VALUE, *_VAGUE))


def _varying(lines: Sequence[Line]) -> set[str]:
    """Return the names that are written again, or after they are read."""
    known: set[str] = set()
    found: set[str] = set()
    for line in lines:
        known.update(names_in(line.code))
        found.update({line.name} & known)
        known.add(line.name)
    return found


# -------------------------------------------------------------------- words


@dataclass
class _Words:
    """Words for code: phrases for operations, and words for their operands."""

    numbers: set[str]
    """The parameters and what is made of them, which are no tensors."""
    short: dict[str, str] = field(default_factory=dict)
    """What stands for a generated name in other names."""
    scalars: set[str] = field(default_factory=set)
    """The names of numbers that are made of sizes."""
    nouns: dict[str, str] = field(default_factory=dict)
    """What a sum or a difference with a long name is."""
    positions: set[str] = field(default_factory=set)
    """The names of positions along an axis."""
    known: dict[tuple[Code, bool], str] = field(default_factory=dict)
    """The phrases of code, until another name is known."""
    only_tensors: bool = False
    """True if each operand is named by its first tensor."""

    def add(self, name: str, code: Code) -> None:
        """Note the name of a value."""
        self.known.clear()
        if self._is_position(code):
            self.positions.add(name)
        arithmetic = isinstance(code, Binary | Unary) and code.op in "+-*//**"
        read = set(_values(code)) if arithmetic else set()
        self.numbers.update({name} if read and read <= self.numbers else ())
        says = len(name) <= _SHORT and not name.startswith(("zeros", "filled"))
        self.short[name] = name if says else self.subject(code)
        self.scalars.update({name} if self._is_size(code) else ())
        noun = _noun(_plain(_bare(code)))
        if noun and len(name) > _SHORT:
            self.nouns[name] = noun

    def candidates(self, code: Code) -> Iterator[str]:
        """Yield names for the value of the code, the best first."""
        bare = _bare(code)
        first = self.name(code if isinstance(bare, Name) else bare)
        yield first
        yield self.name(code)
        said = set(first.split("_"))
        for name in dict.fromkeys(names_in(code)):
            word = self.word(name)
            if word and not said.issuperset(word.split("_")) and len(first) + len(word) < _MOST:
                yield f"{first}_with_{word}"
        yield from (f"{first}{n}" for n in count(2))

    def name(self, code: Code) -> str:
        """Return what the value of the code is, as an identifier."""
        made = self.phrase(code)
        whole = _plain(code)
        if len(made) > _MOST and isinstance(whole, Binary) and _noun(whole):
            made = self._with_noun(whole)
        if len(made) > _MOST:
            made = replace(self, only_tensors=True).phrase(code)
        return made

    def whole(self, code: Code) -> str:
        """Return the word for what a function maps: of a long sum, that it is one."""
        bare = _bare(code)
        if isinstance(bare, Name):
            return self.nouns.get(bare.id) or self.operand(code)
        plain = _plain(bare)
        long = _noun(plain) and len(self.phrase(plain)) > _MOST_OF_OPERAND
        return _noun(plain) if long else self.operand(code)

    def phrase(self, code: Code) -> str:
        """Return what the operation at the top computes."""
        key = code, self.only_tensors
        if key not in self.known:
            self.known[key] = self._phrase(code)
        return self.known[key]

    def _phrase(self, code: Code) -> str:
        code = _plain(code)
        match code:
            case Conditional(_, then, Literal() as other) if _number(other) not in ("", "zero"):
                return f"safe_{self.operand(then)}"
            case Conditional(Binary("is", _, right), then, other) if right is NONE:
                return self._chosen(then if other is NONE else other)
            case Conditional(_, then, other):
                return self._chosen(other if then is NONE or _number(then) else then)
            case Binary():
                return self._operator(code)
            case Unary("-", operand):
                return f"minus_{self.operand(operand)}"
            case Unary("~" | "not", operand):
                return f"not_{self.operand(operand)}"
            case Attribute(obj, "indices"):
                return re.sub("(max|min)_of", r"arg\1_of", self.phrase(obj))
            case Attribute(obj):
                return self.phrase(obj)
            case MethodCall() | FunctionCall():
                return self._call(code)
            case Subscript(obj):
                return f"{self.operand(obj)}_size" if _is_shape(obj) else self.operand(obj)
            case Name(name):
                return self.word(name)
            case Tuple((first, *_)):
                return self.operand(first)
            case Literal(text):
                return _number(code) or _clean(text.rpartition(".")[2])
        return self.subject(code)

    def _chosen(self, code: Code) -> str:
        """Return the phrase of the branch that says more, of a view as that of its tensor."""
        bare = _bare(code)
        return self.phrase(code if isinstance(bare, Name) else bare)

    def operand(self, code: Code) -> str:
        """Return the word for an operand: what it is if that is short, else its first tensor."""
        code = _plain(_bare(code))
        if self.only_tensors and any(map(_clean, names_in(code))):
            return self.subject(code)
        match code:
            case Binary("+" | "-", left, right) if not _number(left) and self._is_number(right):
                return self.operand(left)
            case Name(name):
                return self.word(name)
        made = self.phrase(code)
        other = "positions" if _is_position(code) else self.subject(code)
        return made if len(made) <= _MOST_OF_OPERAND else other

    def subject(self, code: Code) -> str:
        """Return the tensor that comes first in the code."""
        every = [name for name in _values(code) if _clean(name)]
        tensors = [name for name in every if name not in self.numbers]
        names = tensors or every or names_in(code)
        return self.word(names[0]) if names else _number(code) or "constant"

    def word(self, name: str) -> str:
        """Return a name as a part of another one."""
        return self.short.get(name) or _clean(name)

    def _is_position(self, code: Code) -> bool:
        bare = _bare(code)
        return _is_position(bare) or (isinstance(bare, Name) and bare.id in self.positions)

    def _is_number(self, code: Code) -> bool:
        """True if the code reads no tensor but for its shape."""
        return self.numbers.issuperset(_values(code))

    def _operator(self, code: Binary) -> str:
        op, left, right = code.op, code.left, code.right
        match op:
            case "*" | "@":
                return self._product(code)
            case "&" | "|":
                return self._masks(code)
            case "/" if _is_size(right) and _is_sum(left):
                return f"mean_of_{self.operand(_plain(_bare(left)).parts()[0])}"
            case "/" if isinstance(left, Literal) and self._is_number(right):
                return "scale"
            case "/" if self._is_size(right) and self._is_size_and_numbers(left):
                return "share"
            case "/" if self._is_size(right):
                return "scale" if self._is_size(left) else _scaled(self.operand(left))
            case "/" if _number(left) == "one":
                return f"inverse_{self.operand(right)}"
            case "-" if self._is_position(left) and self._is_position(right):
                return "offsets"
            case "//" if isinstance(right, Name) and right.id.startswith("num_"):
                return f"size_per_{_clean(right.id)[4:].removesuffix('s')}"
            case "//" if _number(right) == "two":
                return f"half_{self.operand(left)}"
            case "==" | "!=" if self._is_position(left) and self._is_position(right):
                return "diagonal" if op == "==" else "off_diagonal"
            case "<" | "<=" | ">" | ">=" if self._is_position(left) and self._is_position(right):
                return f"{self.subject(left).removeprefix('positions_of_')}_{_ORDER[op]}"
            case "==" | "!=" if self._is_position(right):
                return f"{'one_hot' if op == '==' else 'other_than'}_{self.operand(left)}"
            case "**" if _number(right) == "two":
                return f"{self.operand(left)}_squared"
            case "**" if isinstance(right, Binary):
                return f"{self.operand(left)}_power"
        if op in MIRRORED and isinstance(left, Literal) and not isinstance(right, Literal):
            return self._operator(Binary(MIRRORED[op], right, left))
        if op in _BESIDE_ZERO and _number(right) == "zero":
            return f"{self.whole(left)}_{_BESIDE_ZERO[op]}"
        if _noun(code) and not _number(left) and (self._is_lossy(left) or self._is_lossy(right)):
            return "length" if self._is_size(code) else self._with_noun(code)
        both = _SIDES.get(op, "{}_{}").format(self.operand(left), self.operand(right))
        return f"{self.operand(left)}_{_ALONE[op]}" if op in _ALONE and len(both) > _SHORT else both

    def _with_noun(self, code: Binary) -> str:
        """Return the phrase of a sum, difference or quotient by what comes first in it."""
        first = next(iter(operands(code, "+"))) if code.op == "+" else code.left
        made = f"{self.operand(first)}_{_noun(code)}"
        return made if len(made) <= _MOST else f"{self.subject(code)}_{_noun(code)}"

    def _is_lossy(self, code: Code) -> bool:
        """True if the word for an operand leaves out what is done to its tensor."""
        bare = _plain(_bare(code))
        if isinstance(bare, Name):
            return self.word(bare.id) != _clean(bare.id)
        if len(self.phrase(bare)) > _MOST_OF_OPERAND:
            return True
        return isinstance(bare, MethodCall | FunctionCall) and any(
            self._is_lossy(part) for part in bare.parts() if any(map(_clean, _values(part)))
        )

    def _is_size(self, code: Code) -> bool:
        """True if the code reads sizes alone."""
        read = all(name in self.scalars or not _clean(name) for name in _values(code))
        return read and not any(map(self._is_position, subexpressions(code)))

    def _is_size_and_numbers(self, code: Code) -> bool:
        """True if the code reads sizes and parameters, and no tensor."""
        read = set(_values(code))
        sizes = read & self.scalars
        return set() < sizes < read <= self.scalars | self.numbers

    def _product(self, code: Binary) -> str:
        """Return the names of the factors, numbers apart; sizes alone are a count."""
        factors = [f for part in operands(code, "*") for f in operands(part, "@")]
        if all(map(_is_size, factors)):
            return "count"
        words = list(dict.fromkeys(self.operand(f) for f in factors if not _number(f)))
        tensors = dict.fromkeys(self.operand(f) for f in factors if not self._is_number(f))
        numbers = filter(self._is_number, factors)
        bare = (f.operand if isinstance(f, Unary) else f for f in numbers)
        plain = all(isinstance(f, Name | Literal) for f in bare)
        words = list(tensors) if len(tensors) > plain else words
        number = next((_number(f) for f in factors if _number(f)), "")
        if len(words) == 1:
            if len(set(factors)) < len(factors):
                return f"{words[0]}_squared"
            return f"{_TIMES[number]}_{words[0]}" if number in _TIMES else _scaled(words[0])
        while len("_".join(words)) > _MOST and len(words) > 2:
            words.pop()
        return "_".join(words)

    def _masks(self, code: Binary) -> str:
        """Return the phrase of a conjunction or a disjunction of masks."""
        parts = list(operands(code, code.op))
        of = {self.subject(part) for part in parts}
        if len(of) == 1 and code.op == "&":
            return f"valid_{of.pop()}"
        return ("_and_" if code.op == "&" else "_or_").join(map(self.operand, parts[:2]))

    def _call(self, code: MethodCall | FunctionCall) -> str:
        args = [a for a in code.parts() if not isinstance(a, Keyword)]
        name = _bare_name(code.name)
        match name, args:
            case "new_zeros" | "new_full", [x, shape, *_]:
                word = "zeros" if name == "new_zeros" else "filled"
                of = shape.obj if isinstance(shape, Attribute) else shape
                return f"{word}_like_{self.word(of.id)}" if isinstance(of, Name) else word
            case "prod", [shape] if _is_shape(shape):
                return f"{self.operand(shape)}_size"
            case "arange" | "positions", [size, *_]:
                return f"positions_of_{_clean(next(iter(names_in(size)), 'axis'))}"
            case "to", [x, Name("low" | "wide" as dtype)]:
                return f"{dtype}_{self.operand(x)}"
            case "where", [_, x, y]:
                return self._where(x, y)
            case "sum" | "sum_over", [x, *_] if made := self._inner_product(_plain(_bare(x))):
                return made
            case "einsum", [_, *factors]:
                return "_".join(dict.fromkeys(map(self.operand, factors)))
            case "ieee_divide", [x, y]:
                return self._operator(Binary("/", x, y))
        return self._by_template(name, args)

    def _by_template(self, name: str, args: Sequence[Code]) -> str:
        said = SAID.get(name, "")
        most = max(map(int, re.findall(r"\{(\d)\}", said)), default=0)
        if not args or (not said and "_" in name and not name.endswith("_backward")):
            return name
        if not said or most >= len(args):
            bare = name.removesuffix("_backward")
            said = f"{bare}_{{0}}" if bare == name else f"{{0}}_through_{bare}"
        return said.format(*map(self.whole, args[: most + 1])).replace("_at_at", "_at")

    def _inner_product(self, code: Code) -> str:
        """Return the phrase of a sum of this product or square, "" if another one says it."""
        if len(self.phrase(code)) > _MOST_OF_OPERAND:
            match code:
                case MethodCall(x, name) | FunctionCall(name, (x,)) if _bare_name(name) == "square":
                    return f"{self.operand(x)}_squared_norm"
                case Binary("*", left, right) if not any(map(self._is_number, (left, right))):
                    made = f"{self.operand(left)}_dot_{self.operand(right)}"
                    return made if len(made) <= _MOST else ""
        return ""

    def _where(self, x: Code, y: Code) -> str:
        """Return the phrase of where(mask, x, y): x, elsewhere 0, a harmless number, or y."""
        for kept, other in ((x, y), (y, x)):
            if number := "zero" if text(other).startswith("torch.finfo(") else _number(other):
                return f"{'masked' if number == 'zero' else 'safe'}_{self.operand(kept)}"
        return f"{self.operand(x)}_or_{self.operand(y)}"


_SIDES = {
    **{"+": "{}_plus_{}", "-": "{}_minus_{}", "/": "{}_over_{}", "//": "{}_per_{}"},
    **{"**": "{}_to_{}", "%": "{}_mod_{}", "and": "{}_and_{}", "or": "{}_or_{}"},
    **{"==": "{}_is_{}", "!=": "{}_is_not_{}", ">=": "{}_at_least_{}", ">": "{}_above_{}"},
    **{"<": "{}_below_{}", "<=": "{}_at_most_{}", "is": "{}_is_{}"},
}
_BESIDE_ZERO = {
    **{"==": "zero", "!=": "nonzero", ">": "positive"},
    **{">=": "nonnegative", "<": "negative", "<=": "nonpositive"},
}
_ALONE = {
    **{"==": "matches", "!=": "differs", ">": "above"},
    **{">=": "above", "<": "below", "<=": "below"},
}
_ORDER = {"<": "before", "<=": "at_or_before", ">": "after", ">=": "at_or_after"}
_TIMES = {"two": "twice", "half": "half", "minus_one": "minus", "minus_two": "minus_twice"}
_NUMBERS = "zero one two three four five six seven eight nine ten".split()
_METHODS = {"mul": "*", "add": "+", "sub": "-", "div": "/", "pow": "**"}
_NOUNS = {"+": "sum", "-": "difference", "/": "quotient"}
_ADDS = {"addcmul": "*", "addmm": "@", "baddbmm": "@"}
_CASTS = "to", "detach", "clone", "contiguous"


def _scaled(word: str) -> str:
    return word if word.startswith("scaled_") else f"scaled_{word}"


def _clean(name: str) -> str:
    """Return a name without what no identifier has inside."""
    return re.sub(r"\W+|^_+|_+$", "", name.removesuffix("_shape"))


def _number(code: Code) -> str:
    """Return the word for a number, "" for other code."""
    match code:
        case Literal(words):
            sign, bare = "minus_" if words.startswith("-") else "", words.lstrip("-")
            if bare.isdigit() and int(bare) < len(_NUMBERS):
                return sign + _NUMBERS[int(bare)]
            return f"{sign}half" if bare == "0.5" else "number" if bare[:1].isdigit() else ""
    return ""


def _plain(code: Code) -> Code:
    """Return x op y for x.op_(y) and for torch.op(x, y), and f(x) for what is written over x."""
    match code:
        case MethodCall(obj, name, args) if name.endswith("_"):
            return _plain(MethodCall(obj, name[:-1], args))
        case FunctionCall("torch.tensordot", (x, y, *_)):
            return Binary("@", x, y)
        case MethodCall(x, "addcmul", (a, b, *how)):
            return _added(x, Binary("*", a, b), how)
        case FunctionCall(name, (x, a, b, *how)) if _bare_name(name) in _ADDS:
            return _added(x, Binary(_ADDS[_bare_name(name)], a, b), how)
        case MethodCall(x, "neg") | FunctionCall("torch.neg", (x, *_)):
            return Unary("-", x)
        case MethodCall(x, name, (y,)) | FunctionCall(name, (x, y, *_)) if (
            bare := _bare_name(name)
        ) in _METHODS:
            return Binary(_METHODS[bare], x, y)
        case Binary("or", left, _):
            return _plain(left)
    return code


def _added(x: Code, product: Code, how: Sequence[Code]) -> Code:
    """Return x + product or x - product."""
    minus = any(isinstance(k, Keyword) and text(k.value).startswith("-") for k in how)
    return Binary("-" if minus else "+", x, product)


def _noun(code: Code) -> str:
    """Return what a sum, a difference or a quotient is, "" for other code."""
    return _NOUNS.get(code.op, "") if isinstance(code, Binary) else ""


def _bare_name(name: str) -> str:
    return name.rpartition(".")[2].strip("_")


def _bare(code: Code) -> Code:
    """Return the tensor of which the code is a view or a cast."""
    match code:
        case Attribute(obj, "mT" | "T"):
            return _bare(obj)
        case MethodCall(obj, name) | FunctionCall(name, (obj, *_)):
            return _bare(obj) if torch_op(code).view or name in _CASTS else code
    return code


def _values(code: Code) -> Iterator[str]:
    """Yield the names of which the code reads elements, what a choice selects before its test."""
    match code:
        case Name(name):
            yield from () if _is_shape(code) else (name,)
            return
        case Attribute(_, "shape") | MethodCall(_, "new_zeros" | "new_full" | "new_empty"):
            return
        case FunctionCall(name) if _bare_name(name) in ("positions", "arange", "full"):
            return
        case FunctionCall(name, (test, *parts)) if _bare_name(name) == "where":
            every: Sequence[Code] = [*parts, test]
        case Conditional(test, then, other):
            every = [other, then, test]
        case _:
            every = code.parts()
    for part in every:
        yield from _values(part)


def _is_position(code: Code) -> bool:
    code = _bare(code)
    return isinstance(code, FunctionCall) and _bare_name(code.name) in ("positions", "arange")


def _is_shape(code: Code) -> bool:
    return isinstance(code, Attribute | Name) and f".{text(code)}".endswith((".shape", "_shape"))


def _is_size(code: Code) -> bool:
    """True if the code is the number of elements along some axes."""
    match code:
        case Subscript(obj):
            return _is_shape(obj)
        case FunctionCall("math.prod"):
            return True
        case Binary("*" | "or", left, right):
            return _is_size(left) and (code.op == "or" or _is_size(right))
    return False


def _is_sum(code: Code) -> bool:
    code = _plain(_bare(code))
    return isinstance(code, MethodCall) and code.name == "sum"
