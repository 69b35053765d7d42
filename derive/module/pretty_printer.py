"""Format statements as a formatter does: on one line if they fit, else over several."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from derive.program.cse import Line
from derive.program.decided_tests import UNSET, branches
from derive.program.torch_ir import Binary, Code, Conditional, Name, Unary, names_in, text
from derive.program.torch_printer import COLUMNS, broken


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
        rest = lines[len(lines) - len(best) + 1 :]
        run = _alike([line, *rest])
        whole = ((n, _branches(run[:n], indent)) for n in range(1, len(run) + 1))
        ways = [[*assigned(line, indent), *best[0]]]
        ways += ([*own, *best[n - 1]] for n, own in whole if len(own[0]) + indent <= COLUMNS)
        if UNSET in branches(line.code):
            last = max((n for n, x in enumerate(run) if line.name in names_in(x.code)), default=0)
            ways = ways[last + 1 :]
        best.insert(0, min(ways, key=len))
    return best[0]


def _alike(lines: Sequence[Line]) -> list[Line]:
    """Return the first choices by one test; only the last may assign a name that the test reads."""
    run: list[Line] = []
    for line in lines:
        test = branches(line.code)[0]
        made = set(run[-1].name.split(", ")) if run else set()
        other = run and test is not branches(run[0].code)[0]
        if test is None or other or made.intersection(names_in(test)):
            break
        run.append(line)
    return run


def _branches(run: Sequence[Line], indent: int) -> list[str]:
    """Return choices by one test as an if statement."""
    tests, *sides = zip(*(branches(line.code) for line in run), strict=True)
    test = tests[0]
    then, other = (indented(statements(_values(run, x), indent + 4), 4) for x in sides)
    if not then:
        return [f"if {_negated(test)}:", *other]
    return [f"if {text(test)}:", *then, *(["else:", *other] if other else [])]


def _values(run: Sequence[Line], codes: Sequence[Code]) -> list[Line]:
    """Return the lines of one branch, without those that change nothing or are not read."""
    branch = (replace(line, code=code) for line, code in zip(run, codes, strict=True))
    return [line for line in branch if line.code not in (UNSET, Name(line.name))]


def _negated(test: Code) -> str:
    """Return the opposite test; of a comparison with nan, too."""
    match test:
        case Binary("is" | "==" | "!=" as sign, left, right):
            opposite = {"is": "is not", "==": "!=", "!=": "=="}[sign]
            return f"{text(left)} {opposite} {text(right)}"
    return text(Unary("not", test))


def with_unset(lines: Sequence[Line], results: Collection[str]) -> list[Line]:
    """Return the lines, without the values of a branch that only choices in the other branch read.

    a = f(x) if c else None     ->  if c:
    b = g(a) if c else x                a = f(x)
                                        b = g(a)
                                    else: ..
    """
    made = list(lines)
    for n in reversed(range(len(lines))):
        test, *sides = branches(made[n].code)
        name, run = made[n].name, _alike(made[n:])
        others = ((k, x) for k, x in enumerate(made) if k != n)
        readers = [k for k, x in others if name in (x.name, *names_in(x.code))]
        if test is None or name in results or not readers or not n < readers[0]:
            continue
        whole = made[n : readers[-1] + 1]
        if len(whole) > len(run) or name in (x.name for x in whole[1:]):
            continue
        for k in (0, 1):
            if not any(name in names_in(branches(x.code)[k + 1]) for x in whole[1:]):
                sides[k] = UNSET
        marked = [made[n].having(Conditional(test, *sides)), *whole[1:]]
        if UNSET in sides and len(statements(marked, 8)) <= len(statements(whole, 8)):
            made[n] = marked[0]
    return made


def assigned(line: Line, indent: int) -> list[str]:
    """Return a line as a statement, with its remark beside its first line if that fits.

    If the statement is broken inside of an operand, a formatter would break it again.
    """
    first, *others = broken(f"{line.name} = ", line.code, indent=indent)
    beside = f"{first}  # {line.remark}"
    whole = not others or " " not in first.removeprefix(f"{line.name} = ")
    fits = line.remark and whole and len(beside) + indent <= COLUMNS
    return [beside if fits else first, *others]


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


def collected(name: str, items: Sequence[str], indent: int) -> tuple[list[str], list[str]]:
    """Return name = items, as many as fit its line, and the arguments *name and the others.

    The items alone if no two fit.
    """
    fit = [n for n in range(2, len(items) + 1) if len(_tuple(name, items[:n])) + indent <= COLUMNS]
    if not fit:
        return [], [*items]
    return [_tuple(name, items[: fit[-1]])], [f"*{name}", *items[fit[-1] :]]


def _tuple(name: str, items: Sequence[str]) -> str:
    return f"{name} = {', '.join(items)}"


def return_statement(values: Sequence[str], indent: int) -> list[str]:
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
    return _hanging(start, alternatives, "or", end)


def all_of(start: str, conditions: Sequence[str], end: str, indent: int) -> list[str]:
    """Return start + conjunction + end, over several lines if it is too long."""
    whole = start + " and ".join(conditions) + end
    fits = len(whole) + indent <= COLUMNS
    return [whole] if fits else _hanging(start, conditions, "and", end)


def _hanging(start: str, parts: Sequence[str], sign: str, end: str) -> list[str]:
    first, *rest = parts
    return [f"{start}(", f"    {first}", *(f"    {sign} {part}" for part in rest), f"){end}"]


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
