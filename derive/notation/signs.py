"""Mathematical signs in a text: a formula can be read as it is printed.

    S[k] = exp(A[k])/(Σₖ′ exp(A[k′]))      S[k] = exp(A[k])/sum[l](exp(A[l]))

The signs ``· − √ ² ≤ ≥ ≠ π ∞ ∧ ∨ ¬`` each stand for one operator or name. The tokens around them
decide the others: Σ is a sum if an operand follows it, and else a name; | is the start or the end
of an absolute value, or comes before a condition; = inside of brackets is a comparison; δ[i,j] is
1 where i = j, unless the text defines a tensor δ; mod between operands is %.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from lark import Token

from derive.algebra.reductions import REDUCTIONS
from derive.notation.advice import KEEPING

SUMS = {"Σ": "sum", "∑": "sum", "Π": "prod", "∏": "prod"}
"""The reductions whose body is the rest of the product."""

_LOW = "ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ"
_LETTERS = re.compile(rf"[{_LOW}]′*")
_LOWERED = re.compile(rf"(.*?)((?:[{_LOW}]′*)+)")
_ENDS = {"NAME", "NUMBER", "RPAR", "RSQB", "HIGH", "RBAR", "RFLOOR", "INFINITY"}
_STARTS = {"NAME", "NUMBER", "LPAR", "ROOT", "LSQB", "LBAR", "VBAR", "LFLOOR", "INFINITY"}
CLOSING = {"LPAR": "RPAR", "LSQB": "RSQB", "LFLOOR": "RFLOOR", "LBAR": "RBAR"}


def letters_below(name: str) -> tuple[str, tuple[str, ...]] | None:
    """Return a reduction and its indices if they are a subscript of its name, else None.

    >>> letters_below("meanᵢₖ′")
    ('mean', ('i', 'k′'))
    """
    found = _LOWERED.fullmatch(name)
    if found is None or found[1] not in (*REDUCTIONS, *SUMS, *KEEPING):
        return None
    letters = (unicodedata.normalize("NFKC", x[0]) + x[1:] for x in _LETTERS.findall(found[2]))
    return found[1], tuple(letters)


def with_signs(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens; those of signs have the type that their place gives them."""
    opened: list[tuple[str, Token | None]] = []
    before: Token | None = None
    own_delta = any(token == "δ" for token in _defined(tokens))
    for n, (token, on_op_line) in enumerate(_placed(tokens)):
        kind = token.type
        if kind == "NEWLINE" or (kind == "SEMI" and not opened):
            before = before if opened else None
            yield token
            continue
        if kind == "VBAR" and not on_op_line:
            kind = _bar(before, opened)
        elif kind == "EQUAL" and opened and not on_op_line and not _is_keyword(before, opened):
            kind, token = "RELATION", Token.new_borrow_pos("RELATION", "==", token)
        elif kind == "NAME" and token[0] in SUMS:
            kind = _summing(tokens, n)
        elif kind == "NAME" and token == "mod" and _is_between(before, tokens[n + 1 :]):
            kind, token = "REST", Token.new_borrow_pos("REST", "%", token)
        elif kind == "NAME" and token == "δ" and not own_delta:
            kind = "DELTA"
        if kind in CLOSING:
            opened.append((kind, before))
        found = before = Token.new_borrow_pos(kind, token.value, token)
        if opened and kind in CLOSING.values():
            _, called = opened.pop()
            before = called if called is not None and called.type == "OPERATOR" else before
        yield found


def _placed(tokens: Sequence[Token]) -> Iterator[tuple[Token, bool]]:
    """Yield each token, and whether it is on an op line."""
    depth, starts, on_op_line = 0, True, False
    for token, following in zip_longest(tokens, tokens[1:]):
        depth += (token.type in CLOSING) - (token.type in CLOSING.values())
        if token.type in ("NEWLINE", "SEMI") and depth <= 0:
            starts, on_op_line = True, False
        elif starts and token.type != "NEWLINE":
            starts = False
            on_op_line = token == "op" and following is not None and following.type == "NAME"
        yield token, on_op_line


def _defined(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the names of op lines and those at the start of a statement."""
    starts = True
    for token, on_op_line in _placed(tokens):
        if on_op_line or starts:
            yield token
        starts = token.type in ("NEWLINE", "SEMI")


def _bar(before: Token | None, opened: Sequence[tuple[str, Token | None]]) -> str:
    """Return the type of |: an absolute value begins or ends, or a condition follows."""
    if before is None or before.type not in _ENDS:
        return "LBAR"
    return "RBAR" if opened and opened[-1][0] == "LBAR" else "VBAR"


def _is_keyword(before: Token | None, opened: Sequence[tuple[str, Token | None]]) -> bool:
    """True if = follows the name of an argument, as in f(dim=1), which is no comparison."""
    bracket, called = opened[-1]
    is_call = bracket == "LPAR" and called is not None and called.type == "NAME"
    return is_call and called != "where" and before is not None and before.type == "NAME"


def _is_between(before: Token | None, after: Sequence[Token]) -> bool:
    """True if an operand ends here and another one follows."""
    ends = before is not None and before.type in _ENDS
    return ends and bool(after) and after[0].type in _STARTS


def _summing(tokens: Sequence[Token], n: int) -> str:
    """Return PREFIX of Σₖ and OPERATOR of Σ[k] before an operand, else NAME."""
    kind, end = "PREFIX", n + 1
    if letters_below(tokens[n]) is None:
        kind, depth = "OPERATOR", 0
        if len(tokens[n]) > 1 or n + 1 >= len(tokens) or tokens[n + 1].type != "LSQB":
            return "NAME"
        while end < len(tokens):
            depth += (tokens[end].type == "LSQB") - (tokens[end].type == "RSQB")
            end += 1
            if depth == 0:
                break
    following = next((t.type for t in tokens[end:] if t.type != "NEWLINE"), None)
    return kind if following in _STARTS else "NAME"
