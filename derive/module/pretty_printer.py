"""Format statements as a formatter does: on one line if they fit, else over several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from derive.program.cse import Line
from derive.program.torch_ir import Binary, Code, Conditional, FunctionCall, MethodCall, Name, text

COLUMNS = 88
"""Maximum columns of a line."""


def assigned(line: Line, indent: int) -> list[str]:
    """Return a line as a statement."""
    return formatted_statement(f"{line.name} = ", line.code, indent)


def formatted_statement(start: str, code: Code, indent: int) -> list[str]:
    """Return start + code; if it is too long, each argument or branch has its own line."""
    match code:
        case Conditional(test, then, other) if len(start + text(code)) + indent > COLUMNS:
            whole = f"    {text(code)}"
            if len(whole) + indent <= COLUMNS:
                return [f"{start}(", whole, ")"]
            branches = (("", then), ("if ", test), ("else ", other))
            lines = [
                line for word, c in branches for line in formatted_statement(word, c, indent + 4)
            ]
            return [f"{start}(", *(f"    {line}" for line in lines), ")"]
        case FunctionCall(name, args):
            return call_lines(f"{start}{name}(", [text(a) for a in args], ")", indent)
        case MethodCall(Name(obj), name, args):
            return call_lines(f"{start}{obj}.{name}(", [text(a) for a in args], ")", indent)
        case Binary() if len(start + text(code)) + indent > COLUMNS:
            return [f"{start}(", f"    {text(code)}", ")"]
    return [f"{start}{text(code)}"]


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
