"""Format statements as a formatter does: on one line if they fit, else over several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from derive.program.cse import Line
from derive.program.torch_ir import Binary, Code, Conditional, Name, Unary, names_in, text
from derive.program.torch_printer import COLUMNS, broken

__all__ = [
    "COLUMNS",
    "all_none",
    "any_of",
    "assigned",
    "call_lines",
    "formatted_statement",
    "indented",
    "return_statement",
    "statements",
    "unpacked_statement",
    "unpacked_tuple",
]


def statements(lines: Sequence[Line], indent: int) -> list[str]:
    """Return the lines as statements, the fewest of them.

    Choices in a row by one test may become one if statement:

        a = f(x) if w is None else g(w, x)  ->  if w is None:
        b = x if w is None else w * x               a = f(x)
                                                    b = x
                                                else: ..
    """
    best: list[list[str]] = [[]]
    for line in reversed(lines):
        run = _alike([line, *lines[len(lines) - len(best) + 1 :]])
        ways = [[*assigned(line, indent), *best[0]]]
        branches = ((n, _branches(run[:n], indent)) for n in range(1, len(run) + 1))
        ways += ([*own, *best[n - 1]] for n, own in branches if len(own[0]) + indent <= COLUMNS)
        best.insert(0, min(ways, key=len))
    return best[0]


def _alike(lines: Sequence[Line]) -> list[Line]:
    """Return the first choices by one test; only the last may assign a name that the test reads."""
    run: list[Line] = []
    for line in lines:
        test = _test(line)
        made = set(run[-1].name.split(", ")) if run else set()
        if test is None or (run and test != _test(run[0])) or made.intersection(names_in(test)):
            break
        run.append(line)
    return run


def _test(line: Line) -> Code | None:
    return line.code.test if isinstance(line.code, Conditional) else None


def _branches(run: Sequence[Line], indent: int) -> list[str]:
    """Return choices by one test as an if statement."""
    codes = [line.code for line in run if isinstance(line.code, Conditional)]
    then, other = (
        indented(statements(_values(run, side), indent + 4), 4)
        for side in ([c.then for c in codes], [c.other for c in codes])
    )
    test = text(codes[0].test)
    if not then:
        return [f"if {_negated(codes[0].test)}:", *other]
    return [f"if {test}:", *then, *(["else:", *other] if other else [])]


def _values(run: Sequence[Line], codes: Sequence[Code]) -> list[Line]:
    """Return the lines of one branch, without those that change nothing."""
    branch = (replace(line, code=code) for line, code in zip(run, codes, strict=True))
    return [line for line in branch if line.code is not Name(line.name)]


def _negated(test: Code) -> str:
    """Return the opposite test; of a comparison with nan, too."""
    match test:
        case Binary("is" | "==" | "!=" as sign, left, right):
            opposite = {"is": "is not", "==": "!=", "!=": "=="}[sign]
            return f"{text(left)} {opposite} {text(right)}"
    return text(Unary("not", test))


def assigned(line: Line, indent: int) -> list[str]:
    """Return a line as a statement, with its remark beside its first line if that fits.

    If the statement is broken inside of an operand, a formatter would break it again.
    """
    first, *others = broken(f"{line.name} = ", line.code, indent=indent)
    beside = f"{first}  # {line.remark}"
    whole = not others or " " not in first.removeprefix(f"{line.name} = ")
    fits = line.remark and whole and len(beside) + indent <= COLUMNS
    return [beside if fits else first, *others]


def formatted_statement(start: str, code: Code, indent: int) -> list[str]:
    """Return the statement start + code."""
    return broken(start, code, indent=indent)


def call_lines(start: str, arguments: Sequence[str], end: str, indent: int) -> list[str]:
    """Return start + arguments + end on one line, or hanging, or with one argument a line."""
    whole = f"{start}{', '.join(arguments)}{end}"
    if len(whole) + indent <= COLUMNS:
        return [whole]
    hanging = f"    {', '.join(arguments)}"
    if len(hanging) + indent <= COLUMNS and start != "return (":
        return [start, hanging, end]
    lines = [line for a in arguments for line in _argument(a, indent + 4)]
    return [start, *(f"    {line}" for line in lines), end]


def return_statement(values: Sequence[str], indent: int) -> list[str]:
    """Return a statement that returns these values."""
    whole = f"return {', '.join(values)}"
    fits = len(whole) + indent <= COLUMNS
    return [whole] if fits else call_lines("return (", values, ")", indent)


def unpacked_tuple(names: Sequence[str], source: str, indent: int) -> list[str]:
    """Return lines that unpack a tuple in one statement, so that its source is read once."""
    whole = unpacked_statement(names, source)
    if len(whole) + indent <= COLUMNS:
        return [whole]
    left = f"({', '.join(names)}) = ("
    if len(left) + indent <= COLUMNS:
        return [left, f"    {source}", ")"]
    return ["(", *(f"    {name}," for name in names), f") = {source}"]


def unpacked_statement(names: Sequence[str], source: str) -> str:
    """Return a statement of any length that unpacks a tuple."""
    inside = ", ".join(names)
    return f"({inside},) = {source}" if len(names) == 1 else f"{inside} = {source}"


def any_of(
    start: str, alternatives: Sequence[str], end: str, indent: int, factor: bool = False
) -> list[str]:
    """Return start + disjunction + end, over several lines if it is too long.

    The disjunction is in parentheses if it is a ``factor`` of a conjunction.
    """
    whole = " or ".join(alternatives)
    whole = f"{start}({whole}){end}" if factor and len(alternatives) > 1 else start + whole + end
    if len(whole) + indent <= COLUMNS:
        return [whole]
    first, *rest = alternatives
    return [f"{start}(", f"    {first}", *(f"    or {part}" for part in rest), f"){end}"]


def all_none(names: Sequence[str], indent: int) -> list[str]:
    """Return statements that set the names to None, as many in one as fit a line."""
    chunks: list[list[str]] = []
    for name in names:
        if not chunks or len(" = ".join([*chunks[-1], name, "None"])) + indent > COLUMNS:
            chunks.append([])
        chunks[-1].append(name)
    return [" = ".join([*chunk, "None"]) for chunk in chunks]


def _argument(argument: str, indent: int) -> list[str]:
    """Return an argument on its own line; a tuple that is too long has one item a line."""
    if len(argument) + 1 + indent <= COLUMNS or argument[:1] != "(" or argument[-1] != ")":
        return [f"{argument},"]
    return ["(", *(f"    {item}," for item in _items(argument[1:-1])), "),"]


def _items(inside: str) -> list[str]:
    """Split at commas outside of brackets."""
    items, depth = [""], 0
    for character in inside:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            items.append("")
        else:
            items[-1] += character
    return [item.strip() for item in items if item.strip()]


def indented(lines: Iterable[str], by: int) -> tuple[str, ...]:
    """Return the lines indented by that many spaces."""
    return tuple(f"{' ' * by}{line}" if line else "" for line in lines)
