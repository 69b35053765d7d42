"""Which parts of the notation a program has."""

import re
from collections.abc import Iterator

import numpy as np
from kit.programs.parts import Program

from derive.algebra import expr as ex
from derive.algebra.functions import FUNCTIONS
from derive.algebra.reductions import REDUCTIONS
from derive.notation.operation import AxisOf, Choice, KeepDim, Number, Operation, SizeOf

UNWRITTEN = {"pow", "polygamma", "floordiv", "rsqrt", "square"}
"""Functions that the notation has no call for, or turns into powers."""
TEXTS = {
    "where": r"where\(",
    "and": r"\band\b",
    "or": r"\bor\b",
    "not": r"\bnot\b",
    "power written ^": r"\^",
    "number in decimals": r"\d\.\d",
    "number with an exponent": r"\de-\d",
    "fraction": r"\d/\d",
    "pi": r"\bpi\b",
    "inf": r"\binf\b",
    "size of an index": r"size\(\w+\)",
    "index as a number": r"\(\w+ \+ 1\)",
    "difference of indices": r"\(\w-\w\)",
    "statements on one line": r"->.*;",
    "softmax": r"\bsoftmax\[\w+\]",
    "softmax under a condition": r"\bsoftmax\[[^]]* \|",
    "softmax of a group": r"softmax\[\*",
    "log_softmax": r"log_softmax\[\w+\]",
    "log_softmax under a condition": r"log_softmax\[[^]]* \|",
    "rsqrt": r"rsqrt\(",
    "square": r"square\(",
    "detach": r"detach\(",
    "concat as an equation": r"= concat\[",
    "concat inside an expression": r"\((concat)\[",
    "concat of three": r"concat\[\w+\]\([^()]*,[^()]*,",
    "cumulative <=": r"\[(\w) \| (?!\1)\w <= |\[(\w+) \| \2 <= \w\]",
    "cumulative >=": r"\[(\w+) \| \1 >= \w\]",
    "cumulative <": r"\[(\w+) \| \1 < \w\]",
    "all but one": r"\[(\w+) \| \1 != \w\]",
    "window of a condition": r"\| \w+-2 <= (\w+) and \1 <= \w+",
    "two-sided window": r">= \w+-1 and \w+ <= \w+\+1",
    "masked by -inf": r", -inf\)",
    "masked by inf": r", inf\)",
    "integer of another tensor added": r"\bO\[[^]]*\] \+ \w",
    "stride": r"[\[,][23]\*\w+",
    "dilation": r"\+ 2\*\w",
    "offset": r"\+ 1[],]",
    "stride 2 under a guard": r"2\*\w+ < size",
    "full convolution": r"\w+-\w+ >= 0|\w+\+\w+ < size",
    "padded window": r"\w\+\w >= 1 and",
    "guard of an ignored integer": r"(>= 0|!= -1)[,\]) ]",
    "rank": r"\[.* or .* == .* and \w+ < \w+\]\)",
    "one side of a bound": r"\| \w+\[[^]]*\] [<>]=? \w+\[[^]]*\]\]",
    "segment sum": r"\| [TUO]\d?\[[^]]*\] == |\[[TUO]\d?\[[^]]*\] == ",
    "left-hand 0": r"^e\d\[[^]=]*\b0\b[^]=]*\] =",
    "composite on the left": r"^e\d\[\(\w+ \w+\)",
    "constant part of a composite": r"\[\((\d \w|\w \d)\)",
    "input that stands alone": r"\bX\d[ ,*)]",
    "input at a constant": r"\bX\d\[\d",
    "position from the end": r"size\(\w+\)-1-\w",
    "integer from the end": r"size\(\w+\)-1-[TU]\[",
    "positions computed from integers": r"^e\d\[[^]]*\] = (maximum|minimum|clamp|where)?\(?[TU]\[",
    "positions added to letters": r"^e\d\[[^]]*\] = O\[[^]]*\] \+ ",
}
"""Constructs that the text shows, by a pattern."""


def constructs(program: Program, op: Operation) -> set[str]:
    """The names of what the program has."""
    found = {name for name, pattern in TEXTS.items() if re.search(pattern, program.text, re.M)}
    found |= set(_of_values(program))
    found |= set(_of_line(op, program))
    for equation in op.equations:
        found.add(f"{equation.kind} equation")
        if equation.name in op.outputs:
            found.add(f"{equation.kind} output")
            found |= {"output without axes"} if not equation.axes else set()
        missing = {i for a in equation.axes for i in ex.walk(a) if isinstance(i, ex.Index)}
        missing -= {i for i in ex.walk(equation.body) if isinstance(i, ex.Index)}
        found |= {"left index that the right lacks"} if missing else set()
        kinds = {t.name: t.kind for t in op.inputs} | {e.name: e.kind for e in op.equations}
        for e in ex.walk(equation.body):
            found |= set(_of_node(e, kinds))
    return found


EVERY = (
    *TEXTS,
    *(f"function {name}" for name in FUNCTIONS if name not in UNWRITTEN),
    "function pow",
    *REDUCTIONS,
    *(f"{kind} under a condition" for kind in REDUCTIONS if kind not in ("any", "all")),
    *(f"{a} {b}" for a in ("float", "int", "bool") for b in ("equation", "output")),
    *("output without axes", "several outputs", "left index that the right lacks"),
    *("relation ==", "relation !=", "relation <", "relation <=", "relation >", "relation >="),
    *("gather", "gather in a gather", "gather through an equation", "guard"),
    *("composite position", "sum of indices as a position", "reduction of two indices"),
    *("reduction of a group", "integer in arithmetic", "integer parameter as a position"),
    *("rank 0", "rank 1", "rank 2", "two groups", "three groups", "no group"),
    *("axis parameter", "two axis parameters", "negative axis", "default axis", "keep flag"),
    *("axis kept", "size parameter", "default size", "fixed size", "number parameter"),
    *("required number", "choice", "optional tensor", "optional tensor left out"),
    *("one tensor twice", "size 0", "size 1", "ties", "zeros", "negative values"),
    *("integer tensor without axes", "bool input", "nested through two equations"),
)
"""What the first programs of a campaign must have between them."""


def _of_values(program: Program) -> Iterator[str]:
    """What the arguments are like."""
    if program.twins:
        yield "one tensor twice"
    for name, array in program.tensors.items():
        if array is None:
            yield "optional tensor left out"
            continue
        yield from (f"size {n}" for n in array.shape if n < 2)
        smooth = array.dtype.kind == "f"
        if smooth and array.size > len(np.unique(array)):
            yield "ties"
        if smooth and array.size and (array == 0).any():
            yield "zeros"
        if smooth and (array < 0).any():
            yield "negative values"
        if not smooth and not array.ndim:
            yield "integer tensor without axes"
        if name == "Qp" and array.ndim < 3:
            yield f"rank {array.ndim}"


def _of_line(op: Operation, program: Program) -> Iterator[str]:
    """What the op line has."""
    groups = {a.name for t in op.inputs for a in t.axes if isinstance(a, ex.Index) and a.group}
    yield ("no group", "one group", "two groups", "three groups")[len(groups)]
    if len(op.outputs) > 1:
        yield "several outputs"
    axes = [p for p in op.parameters if isinstance(p, AxisOf)]
    if axes:
        yield "two axis parameters" if len(axes) > 1 else "axis parameter"
    for p in op.parameters:
        given = program.parameters.get(p.name)
        if isinstance(p, AxisOf):
            place = p.default if given is None else given
            yield "default axis" if given is None else "given axis"
            if place is not None and place < 0:
                yield "negative axis"
        if isinstance(p, KeepDim):
            yield "keep flag"
            if given:
                yield "axis kept"
        if isinstance(p, SizeOf):
            yield "size parameter" if given is not None else "default size"
        if isinstance(p, Number):
            yield "number parameter" if p.default is not None else "required number"
        if isinstance(p, Choice):
            yield "choice"
    if any(isinstance(e.size, ex.Num) for e in op.extents):
        yield "fixed size"
    if any(t.default is not None for t in op.inputs):
        yield "optional tensor"
    if any(t.kind == "bool" for t in op.inputs):
        yield "bool input"
    made = {e.name for e in op.equations}
    readers = [{a.tensor for a in ex.walk(e.body) if isinstance(a, ex.Access)} & made
               for e in op.equations]  # fmt: skip
    if sum(bool(read) for read in readers) > 1:
        yield "nested through two equations"


def _of_node(e: ex.Expr, kinds: dict[str, str]) -> Iterator[str]:
    """What one node of a body is."""
    name = getattr(e, "function", None)
    if name in FUNCTIONS:
        yield f"function {name}"
    match e:
        case ex.Reduce(kind, indices, _, condition):
            yield kind
            if condition is not None:
                yield f"{kind} under a condition"
            if len(indices) > 1:
                yield "reduction of two indices"
            if any(i.group for i in indices):
                yield "reduction of a group"
        case ex.Rel(op, _, _):
            yield f"relation {op}"
        case ex.Guard():
            yield "guard"
        case ex.Access(tensor, positions):
            if kinds[tensor] == "int":
                yield "integer in arithmetic"
            for position in positions:
                inner = [a for a in ex.walk(position) if isinstance(a, ex.Access)]
                if inner:
                    yield "gather"
                if any(a.tensor.startswith("e") for a in inner):
                    yield "gather through an equation"
                if any(
                    isinstance(b, ex.Access) for a in inner for p in a.positions for b in ex.walk(p)
                ):
                    yield "gather in a gather"
                if isinstance(position, ex.Composite):
                    yield "composite position"
                if isinstance(position, ex.Add):
                    yield "sum of indices as a position"
                if any(isinstance(p, ex.Param) for p in ex.walk(position)):
                    yield "integer parameter as a position"
