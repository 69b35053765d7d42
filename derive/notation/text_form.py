"""Parse text to operations: ``parse("C[i,j] = sum[k](A[i,k]*B[k,j])")``.

The grammar is in ``notation.lark``. The parser evaluates nothing: it returns the statements of
`derive.notation.syntax`, each with its line and column, and `resolve` elaborates them.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any, ClassVar

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedToken, VisitError

from derive.errors import ErrorKind, SpecError, no_recursion_leaves
from derive.loaded import folder
from derive.notation import syntax
from derive.notation.advice import SIGNS, around, unexpected
from derive.notation.operation import Operation
from derive.notation.resolve import resolve
from derive.notation.resource_limits import check_count, check_length, check_size, check_statement
from derive.notation.signs import CLOSING, SUMS, letters_below, with_signs

_SIGN = {
    **{"LPAR": "(", "LSQB": "[", "RPAR": ")", "RSQB": "]"},
    **{"LFLOOR": "⌊", "RFLOOR": "⌋", "LBAR": "|", "RBAR": "|"},
}
_SAME = {"·": "*", "⋅": "*", "×": "*", "−": "-", "≤": "<=", "≥": ">=", "≠": "!="}
"""Signs, and the operators that they stand for."""
_LONGEST = 308  # digits and decimal exponent of a number


def operation_of(text: str) -> Operation:
    """Return the only operation of a text."""
    operations = operations_of(text)
    if len(operations) != 1:
        names = ", ".join(op.name for op in operations)
        raise SpecError(
            f"expected one operation, got {len(operations)} ({names}); derive.read(path) returns "
            "all operations of a file",
            kind="several-operations",
        )
    return operations[0]


@no_recursion_leaves
def operations_of(text: str) -> tuple[Operation, ...]:
    """Return all operations of a text, in order; without an ``op`` line, one named ``op``."""
    if not isinstance(text, str):
        raise TypeError(f"derive.parse takes a string, not {type(text).__name__}")
    check_length(text)
    written = list(_group_by_op(_located_statements(text)))
    check_count(len(written))
    operations = tuple(_resolved(each, text) for each in written)
    seen: set[str] = set()
    for operation in operations:
        if operation.name in seen:
            message = f"operation {operation.name} is defined twice; rename one"
            raise SpecError(message, kind="defined-twice")
        seen.add(operation.name)
    return operations


def _located_statements(text: str) -> list[syntax.Raw]:
    """Return the statements; a syntax error shows its line."""
    try:
        return _parsed_statements(text)
    except SpecError as error:
        raise _showing(text, error, "in ") from None


def _resolved(written: syntax.OperationSyntax, text: str) -> Operation:
    """Return the operation; an error in an equation names the equation."""
    try:
        check_size(written)
        return resolve(written)
    except SpecError as error:
        place = (error.line or 0, error.column or 0)
        before = [e for e in written.equations if e.at and (e.at.line, e.at.column) <= place]
        where = f"{written.name}, equation of {before[-1].name}" if before else written.name
        raise _showing(text, error, f"in {where}: ") from None


def _showing(text: str, error: SpecError, where: str) -> SpecError:
    """Return the error with its line of the text."""
    if error.line is None:
        return error
    shown = around(text.split("\n")[error.line - 1], error.column or 1)
    message = f"{error.message}\n  {where}{shown}"
    return SpecError(message, kind=error.kind, line=error.line, column=error.column)


def _parsed_statements(text: str) -> list[syntax.Raw]:
    try:
        return _parser().parse(text)  # type: ignore[return-value]
    except UnexpectedCharacters as error:
        sign = text[error.pos_in_stream or 0]
        hint = f"; {SIGNS[sign]}" if sign in SIGNS else ""
        place = {"line": error.line, "column": error.column}
        raise SpecError(f"unexpected character {sign!r}{hint}", **place, kind="syntax") from None
    except UnexpectedToken as error:
        raise unexpected(text, error) from None
    except VisitError as error:
        if isinstance(error.orig_exc, SpecError):
            raise error.orig_exc from None
        raise


def _group_by_op(statements: list[syntax.Raw]) -> Iterator[syntax.OperationSyntax]:
    """Group equations under the op line that they follow."""
    head: syntax.OperationSyntax | None = None
    equations: list[syntax.EquationSyntax] = []
    for statement in [*statements, None]:
        if isinstance(statement, syntax.EquationSyntax):
            equations.append(statement)
            continue
        if head is not None:
            yield replace(head, equations=tuple(equations))
        elif equations:
            if statement is not None:
                syntax.fail(
                    equations[0].at,
                    "incomplete-operation",
                    f"{equations[0].name} is defined before the first op line; move it below an "
                    "op line",
                )
            yield syntax.OperationSyntax("op", None, (), None, tuple(equations), at=equations[0].at)
        elif statement is None:
            text = "the text has no operation; write one, C[i] = A[i]"
            raise SpecError(text, kind="incomplete-operation")
        assert statement is None or isinstance(statement, syntax.OperationSyntax)
        head, equations = statement, []


@cache
def _parser() -> Lark:
    return Lark.open(
        "notation.lark",
        rel_to=__file__,
        parser="lalr",
        lexer="basic",
        postlex=_LineJoiner(),
        transformer=_SyntaxBuilder(),
        maybe_placeholders=False,
        cache=_tables(),
    )


def _tables() -> str | bool:
    """Return the file in which Lark keeps the tables of the parser, or False if there is none.

    To make the tables takes a tenth of a short command. Lark makes them again where the file is of
    another grammar or cannot be read. They are a pickle, which may run code, so the folder counts
    only if no other user may write to it.
    """
    kept = folder()
    try:
        kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = kept.stat()
    except OSError:
        return False
    is_own = os.name == "nt" or (found.st_uid == os.getuid() and not found.st_mode & 0o022)
    return is_own and str(kept / "notation.tables")


class _LineJoiner:
    """Drops line ends inside brackets, checks that brackets match, and marks op lines."""

    always_accept = ("NEWLINE", "SEMI")

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        tokens = list(with_signs(list(stream)))
        opened: list[Token] = []
        starts = True
        first: Token | None = None
        result: list[Token] = []
        for n, token in enumerate(tokens):
            kind = token.type
            following = tokens[n + 1].type if n + 1 < len(tokens) else ""
            if kind in CLOSING:
                opened.append(token)
            elif kind in CLOSING.values():
                if not opened or CLOSING[opened[-1].type] != kind:
                    if any(CLOSING[t.type] == kind for t in opened):
                        break  # the innermost bracket is open
                    raise _token_error(token, f"{_SIGN[kind]} closes nothing")
                opened.pop()
            if kind in ("NEWLINE", "SEMI") and not opened:
                if first is not None:
                    check_statement(first, token)
                    result.append(Token.new_borrow_pos("END", token.value, token))
                first = None
                starts = True
                continue
            if kind == "NEWLINE":
                continue
            if starts and kind == following == "NAME" and token == "op":
                token = Token.new_borrow_pos("OP", token.value, token)
            starts = False
            first = first or token
            result.append(token)
        if first is not None:
            check_statement(first, tokens[-1])
        if opened:
            raise _token_error(opened[-1], f"{_SIGN[opened[-1].type]} is never closed")
        return iter(result)


def _token_error(token: Token, message: str, kind: ErrorKind = "syntax") -> SpecError:
    return SpecError(message, kind=kind, line=token.line, column=token.column)


def _token_place(token: Token) -> syntax.SourcePlace:
    return syntax.SourcePlace(token.line or 0, token.column or 0)


def _name(token: Token) -> str:
    """Return the identifier, normalized as Python does; a prime ′ becomes _."""
    name = token.replace("′", "_")
    if not name.isidentifier():
        raise _token_error(token, f"{str(token)!r} is not a name")
    return "pi" if name == "π" else unicodedata.normalize("NFKC", name)


def _number_literal(token: Token) -> syntax.NumberSyntax:
    text = str(token).lower()
    mantissa, _, exponent = text.partition("e")
    if not token.isascii():
        raise _token_error(token, f"{str(token)!r} is not a number; use the digits 0 to 9")
    if len(mantissa) > _LONGEST or len(exponent) > 5 or abs(int(exponent or 0)) > _LONGEST:
        raise _token_error(token, "the number is too long or too large", "not-finite")
    return syntax.NumberSyntax(Fraction(text.rstrip(".")), text.isdigit(), at=_token_place(token))


def _signed_chain(
    kind: type[syntax.Sum] | type[syntax.Product], minus: str, items: tuple[Any, ...]
) -> syntax.Raw:
    first, *rest = items
    pairs = [(False, first)]
    signs = (_SAME.get(sign, sign) for sign in rest[::2])
    pairs += [(sign == minus, e) for sign, e in zip(signs, rest[1::2], strict=True)]
    return kind(tuple(pairs), at=first.at)


@v_args(inline=True)
class _SyntaxBuilder(Transformer[Token, Any]):
    """Builds a syntax node for each rule of the grammar."""

    _tuple: ClassVar[Any] = staticmethod(lambda *items: items)
    positions = arguments = axes_of = _tuple

    def start(self, *statements: Any) -> list[Any]:
        return [s for s in statements if isinstance(s, syntax.Raw)]

    # op line

    def op_line(self, op: Token, name: Token, inputs: Any, *rest: Any) -> syntax.OperationSyntax:
        found: dict[str, Any] = dict(rest)
        options = found.get("parameters", ())
        # A bare word is a required number, except ``stable``.
        bounds = tuple(p for p in options if isinstance(p, syntax.Bound))
        others = [p for p in options if not isinstance(p, syntax.Bound)]
        parameters = tuple(
            p for p in others if not (p.name == "stable" and p.value is None and not p.options)
        )
        stable = len(parameters) < len(others)
        made = _name(name), inputs, parameters, found.get("outputs"), ()
        return syntax.OperationSyntax(*made, at=_token_place(op), stable=stable, bounds=bounds)

    inputs = _tuple

    def input(self, name: Token, *rest: Any) -> syntax.TensorSyntax:
        found: dict[str, Any] = dict(rest)
        said = found.get("axes", ()), found.get("kind"), found.get("default")
        return syntax.TensorSyntax(_name(name), *said, at=_token_place(name))

    def axes(self, positions: Any) -> tuple[str, Any]:
        return "axes", positions

    def kind(self, name: Token) -> tuple[str, Any]:
        if name not in ("bool", "float", "int"):
            raise _token_error(name, f"{name} is not a kind of tensor; use float, int or bool")
        return "kind", str(name)

    def default(self, value: Any) -> tuple[str, Any]:
        return "default", value

    def parameters(self, _semi: Token, *items: Any) -> tuple[str, Any]:
        return "parameters", items

    def given(self, name: Token, value: Any = None) -> syntax.ParameterSyntax:
        return syntax.ParameterSyntax(_name(name), value, at=_token_place(name))

    required = given

    def choice(self, name: Token, *options: Token) -> syntax.ParameterSyntax:
        words = tuple(map(_name, options))
        return syntax.ParameterSyntax(_name(name), None, words, at=_token_place(name))

    def fixed(self, function: Token, letter: Token, value: Any) -> syntax.ParameterSyntax:
        if function != "size":
            raise _token_error(
                function, f"{function}({letter})=... is not a parameter; use size({letter})=..."
            )
        return syntax.ParameterSyntax(_name(letter), value, fixes=True, at=_token_place(letter))

    def bound(self, name: Token, relation: Token, value: Any) -> syntax.Bound:
        sign = _SAME.get(relation, str(relation))
        return syntax.Bound(_name(name), sign, value, at=_token_place(name))

    def plain_outputs(self, *names: Token) -> tuple[str, Any]:
        return "outputs", tuple((None, _name(n)) for n in names)

    def chosen_outputs(self, *names: Token) -> tuple[str, Any]:
        pairs = zip(names[::2], names[1::2], strict=True)
        return "outputs", tuple((_name(option), _name(name)) for option, name in pairs)

    # equations and expressions

    def equation(self, name: Token, *rest: Any) -> syntax.EquationSyntax:
        *axes, body = rest
        own = axes[0][1] if axes else ()
        return syntax.EquationSyntax(_name(name), own, body, at=_token_place(name))

    def either(self, *args: Any) -> syntax.Raw:
        return syntax.Either(args, at=args[0].at)

    def both(self, *args: Any) -> syntax.Raw:
        return syntax.Both(args, at=args[0].at)

    def inverted(self, arg: Any) -> syntax.Raw:
        return syntax.Negation(arg, at=arg.at)

    def compare(self, first: Any, *rest: Any) -> syntax.Raw:
        signs = (_SAME.get(sign, str(sign)) for sign in rest[::2])
        pairs = zip(signs, rest[1::2], strict=True)
        return syntax.Compare(first, tuple(pairs), at=first.at)

    def sum(self, *items: Any) -> syntax.Raw:
        return _signed_chain(syntax.Sum, "-", items)

    def product(self, *items: Any) -> syntax.Raw:
        """Factors from the left: a*b//c is (a*b)//c."""
        start = 0
        for n in range(1, len(items), 2):
            if items[n] in ("//", "%"):
                before = _signed_chain(syntax.Product, "/", items[start:n])
                before = items[start] if n == start + 1 else before
                made = (syntax.quotient if items[n] == "//" else syntax.rest)(before, items[n + 1])
                items, start = (*items[: n + 1], made, *items[n + 2 :]), n + 1
        last: syntax.Raw = items[-1]
        whole = start == len(items) - 1
        return last if whole else _signed_chain(syntax.Product, "/", items[start:])

    def negative(self, minus: Token, arg: Any) -> syntax.Raw:
        return syntax.Negative(arg, at=_token_place(minus))

    def positive(self, _plus: Token, arg: Any) -> syntax.Raw:
        return arg  # type: ignore[no-any-return]

    def power(self, base: Any, _sign: Token, exponent: Any) -> syntax.Raw:
        return syntax.Power(base, exponent, at=base.at)

    def raised(self, base: Any, high: Token) -> syntax.Raw:
        digits = Token.new_borrow_pos("NUMBER", unicodedata.normalize("NFKC", high), high)
        return syntax.Power(base, _number_literal(digits), at=base.at)

    def root(self, sign: Token, arg: Any) -> syntax.Raw:
        return syntax.ApplySyntax("sqrt", (arg,), at=_token_place(sign))

    def magnitude(self, bar: Token, arg: Any, _bar: Token) -> syntax.Raw:
        return syntax.ApplySyntax("abs", (arg,), at=_token_place(bar))

    def floored(self, sign: Token, arg: Any, _sign: Token) -> syntax.Raw:
        return syntax.ApplySyntax("floor", (arg,), at=_token_place(sign))

    def infinity(self, sign: Token) -> syntax.Raw:
        return syntax.NameSyntax("inf", at=_token_place(sign))

    def delta(self, sign: Token, axis: Any, position: Any) -> syntax.Raw:
        place = _token_place(sign)
        return syntax.Bracket(syntax.Compare(axis, (("==", position),), at=place), at=place)

    def prefixed(self, sign: Token, *rest: Any) -> syntax.Raw:
        *given, body = rest
        below = letters_below(sign)
        if below is None:
            positions, *condition = given
            where = condition[0] if condition else None
            return syntax.Bind(SUMS[sign], positions, where, (body,), at=_token_place(sign))
        return self._subscripted(sign, *below, (body,))

    def _subscripted(
        self, token: Token, kind: str, letters: tuple[str, ...], args: Any
    ) -> syntax.Raw:
        place = _token_place(token)
        indices = (_name(Token.new_borrow_pos("NAME", letter, token)) for letter in letters)
        positions = tuple(syntax.NameSyntax(index, at=place) for index in indices)
        return syntax.Bind(SUMS.get(kind, kind), positions, None, args, at=place)

    number = staticmethod(_number_literal)

    def name(self, token: Token) -> syntax.Raw:
        return syntax.NameSyntax(_name(token), at=_token_place(token))

    def item(self, name: Token, positions: Any) -> syntax.Raw:
        read = tuple(map(syntax.whole_quotients, positions))
        return syntax.Item(_name(name), read, at=_token_place(name))

    def bind(self, name: Token, positions: Any, *rest: Any) -> syntax.Raw:
        *condition, args = rest
        where = condition[0] if condition else None
        return syntax.Bind(_name(name), positions, where, args, at=_token_place(name))

    def apply(self, name: Token, args: Any) -> syntax.Raw:
        below = letters_below(name)
        if below is not None:
            return self._subscripted(name, *below, args)
        return syntax.ApplySyntax(_name(name), args, at=_token_place(name))

    def bracket(self, _bracket: Token, condition: Any) -> syntax.Raw:
        return syntax.Bracket(condition, at=_token_place(_bracket))

    def star(self, star: Token, name: Token) -> syntax.Raw:
        return syntax.Star(_name(name), at=_token_place(star))

    def composite(self, paren: Token, *parts: Any) -> syntax.Raw:
        return syntax.CompositeSyntax(parts, at=_token_place(paren))
