"""Advice in error messages: what index notation cannot express, and the nearest alternative."""

from __future__ import annotations

import difflib
import keyword
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from derive.algebra.functions import FUNCTIONS, POWERS, WRITTEN
from derive.algebra.reductions import REDUCTIONS
from derive.errors import SpecError
from derive.notation.syntax import SourcePlace, fail

if TYPE_CHECKING:
    from lark import Token
    from lark.exceptions import UnexpectedToken

_ORDER = (
    "with a rank r[k], the number of elements before each one, sum[k | r[k] == m](x[k]) are the "
    "values in their order, sum[k | r[k] == m](k) their positions, and [r[k] < 3] selects the "
    "three least: r[k] = sum[l]([x[l] < x[k] or x[l] == x[k] and l < k])"
)
_MASK = (
    "keep the axis and mask it, [m[k]]*x[k] or sum[k | m[k]](x[k]), or find the positions outside "
    "and pass them as an integer tensor T: x[T[k]]"
)
_DATA_SIZE = f"its size depends on the data, and every size must be that of an axis: {_MASK}"
_LOOP = (
    "the number of iterations depends on the data, but a spec is a fixed list of equations: "
    "write one iteration as an operation and loop in Python, where autograd chains the iterations"
)
_RANDOM = "random numbers are inputs: pass them, or a mask drawn with torch, as a tensor"
_SOLVER = (
    "a matrix decomposition is not an index expression: use torch.linalg, or pass a factor as an "
    "input and write what is computed from it"
)
_CUMULATIVE = "a cumulative reduction is a reduction with a condition: {}"

RECURRENCE = (
    "an equation cannot be a recurrence: write one step as an operation and loop in Python, or "
    "write a sum over the earlier positions, sum[s | s<=t](..)"
)

ADVICE: Mapping[str, str] = {
    **dict.fromkeys(("sort", "argsort", "topk", "kthvalue", "median", "quantile"), _ORDER),
    **dict.fromkeys(("rank", "msort"), _ORDER),
    "searchsorted": "count the boundaries before each value: sum[k]([b[k] < x[n]])",
    "mode": "find its position outside, and pass it as an integer tensor T: x[n,T[n]]",
    **dict.fromkeys(
        ("unique_consecutive", "nonzero", "masked_select", "unique", "compress", "filter"),
        _DATA_SIZE,
    ),
    **dict.fromkeys(("bincount", "histogram"), "count with sum[n | T[n] == k](1)"),
    **dict.fromkeys(("scan", "fold", "while", "while_loop", "fori_loop", "iterate"), _LOOP),
    **dict.fromkeys(("rand", "randn", "random", "dropout", "bernoulli"), _RANDOM),
    **dict.fromkeys(("multinomial", "normal", "uniform"), _RANDOM),
    **dict.fromkeys(("inv", "inverse", "det", "slogdet", "solve", "cholesky", "qr"), _SOLVER),
    **dict.fromkeys(("logdet", "lu", "matrix_exp", "matrix_power"), _SOLVER),
    **dict.fromkeys(("svd", "eig", "eigh", "eigvals", "pinv", "lstsq", "expm"), _SOLVER),
    "cumsum": _CUMULATIVE.format("y[k] = sum[l | l<=k](x[l])"),
    "cumprod": _CUMULATIVE.format("y[k] = prod[l | l<=k](x[l])"),
    "cummax": _CUMULATIVE.format("y[k] = max[l | l<=k](x[l])"),
    "cummin": _CUMULATIVE.format("y[k] = min[l | l<=k](x[l])"),
    "logcumsumexp": _CUMULATIVE.format("y[k] = logsumexp[l | l<=k](x[l])"),
    "var": "write it as m = mean[k](x[k]), v = mean[k]((x[k] - m)**2)",
    "std": "write it as m = mean[k](x[k]), s = sqrt(mean[k]((x[k] - m)**2))",
    "norm": "write it as norm2[k](x[k]), or sum[k](abs(x[k]))",
    "einsum": "the notation is an einsum already: C[i,j] = sum[k](A[i,k]*B[k,j])",
    "matmul": "write it as C[i,j] = sum[k](A[i,k]*B[k,j])",
    "dot": "write it as sum[k](x[k]*y[k])",
    "transpose": "write it as y[j,i] = x[i,j]",
    "reshape": "the notation composes and splits axes: x[n,(t d)]",
    "one_hot": "write it as [T[n] == k]",
    "flip": "write it as x[size(k)-1-k]",
    "roll": "write it as where(k >= s, x[k-s], x[k-s+size(k)])",
    "masked_fill": "write it as where(m[k], value, x[k])",
    "gather": "write it as x[n,T[n,k]]",
    **dict.fromkeys(
        ("scatter", "scatter_add", "index_add"),
        "write it as a sum over the positions that go to k: y[k] = sum[n | T[n] == k](x[n])",
    ),
    "stack": "write it with an index of size 2: y[s,n] = where(s == 0, a[n], b[n])",
    "cat": "use concat: concat[k](a[k], b[k])",
    "conv1d": "write it as y[n,o,t] = sum[c,k](x[n,c,t+k]*w[o,c,k])",
    "conv2d": "write it as y[n,o,s,t] = sum[c,i,j](x[n,c,s+i,t+j]*w[o,c,i,j])",
    "gelu": "write it as x*(1 + erf(x/sqrt(2)))/2",
    "silu": "write it as x*sigmoid(x)",
    "swish": "write it as x*sigmoid(x)",
    "mish": "write it as x*tanh(softplus(x))",
    "elu": "write it as where(x > 0, x, exp(x) - 1)",
    **dict.fromkeys(("leaky_relu", "prelu"), "write it as where(x > 0, x, a*x)"),
    "relu6": "write it as clamp(x, 0, 6)",
    "hardtanh": "write it as clamp(x, -1, 1)",
    "hardsigmoid": "write it as clamp(x + 3, 0, 6)/6",
    **dict.fromkeys(("hardswish", "hard_swish"), "write it as x*clamp(x + 3, 0, 6)/6"),
    "softsign": "write it as x/(1 + abs(x))",
    "mod": "write it as x % m, whose sign is that of m, or as fmod(x, m), whose sign is that of x",
    "gamma": "write it as exp(lgamma(x)), which is correct for x > 0",
    "pow": "write it as x**y",
    "cbrt": "write it as sign(x)*abs(x)**(1/3)",
    "trace": "write it as y = sum[i](x[i,i])",
    "diag": "write it as y[i] = x[i,i]",
    **dict.fromkeys(
        ("complex", "conj", "real", "imag", "angle", "polar"),
        "complex numbers are not supported: write the real and the imaginary part",
    ),
    "fft": "complex numbers are not supported: write the sums of cosines and sines",
}
"""Advice in an error about an unknown word."""

KEYWORDS: Mapping[str, str] = {
    "while": _LOOP,
    "for": "an equation holds for every value of its indices, so there is no loop: y[t] = 2*x[t]",
    "if": (
        "a choice between values is where(condition, a, b); a choice between variants is a "
        "parameter with options: reduction=mean|sum"
    ),
    "else": "a choice between values is where(condition, a, b)",
    "def": "an operation begins with op name(inputs) -> outputs",
    "return": "the op line names the outputs: op name(inputs) -> outputs",
    "lambda": "an operation begins with op name(inputs) -> outputs",
}
"""Advice in an error about a statement with this Python keyword."""

SIGNS: Mapping[str, str] = {
    "&": "conditions are combined by and, or, not",
    "!": "a condition is negated by not, and a factorial is exp(lgamma(n + 1))",
    "–": "a difference is written a - b",
    '"': "names and options have no quotes: reduction=mean|sum",
    "`": "leave out the fence and what stands around it: a text is operations and comments alone",
    "@": "a matrix product is sum[k](A[i,k]*B[k,j])",
    ".": (
        "tensors have no attributes and no ellipsis: an index reads each axis, x[j,i] for a "
        "transpose, and a group reads any number of axes, x[*p,k]"
    ),
    ":": (
        "an index reads an axis, and the left side has this index or a reduction sums over "
        "it: x[i,k], also a part of the axis, x[i,k+1]"
    ),
}
"""Advice in an error about this Python operator."""


CONTINUED = (
    "a statement ends with its line; to continue a statement on the next line, put it in "
    "parentheses, y = (a + b)"
)
"""The error for a line that ends or begins with an operator."""

LISTED = (
    "the notation has no lists: give the axis an index, y[i,j] = where(i == 0, a[j], b[j]) with "
    "size(i)=2 on the op line, or join axes, concat[i](a[i], b[i])"
)
"""The error for ``[[a, b], [c, d]]``."""

_COMPONENTS = (
    "one equation defines all components of a tensor, y[k] = where(k == 0, a, b), and {} sets "
    "their number"
)

RESULT = "the result of {} cannot be indexed: give it an equation, S[i,j] = ..., and read S[i,j]"
"""The error for ``f(x)[i]``."""


INFINITE = (
    "inf is allowed only in a comparison, as a bound of clamp, or as a branch that max, min, "
    "logsumexp or softmax ignores, max[k](where(c, x, -inf)); elsewhere write a condition, [c]*x "
    "or max[k | c](x)"
)
"""The error for arithmetic with infinity."""


@dataclass(frozen=True)
class Declaring:
    """How one kind of spec (text or SymPy) declares axes of an input, sizes, integer tensors."""

    axes: str
    sized: str
    whole: str

    def size(self, letter: str, value: str = "...") -> str:
        return self.sized.format(letter, value)

    def components(self) -> str:
        """Return the advice for ``y[0] = a; y[1] = b``."""
        return _COMPONENTS.format(self.size("k", "2"))

    def integer(self, tensor: str) -> str:
        return self.whole.format(tensor)


IN_TEXT = Declaring("on the op line", "size({})={}", "{}: int")
IN_SYMPY = Declaring(
    "in inputs=[x[i, j], ...]", "parameters={{size({}): {}}}", "inputs=[..., integer({})]"
)


def no_number(condition: str, is_position: bool) -> str:
    """Return the error for a condition in place of a number, or of a position."""
    if is_position:
        return (
            f"{condition} is a condition, and the number of elements it selects depends on "
            f"the data: {_MASK}"
        )
    return f"{condition} is a condition, not a number; write [{condition}]"


# -------------------------------------------------------------------------------------------- names
# The words of the notation, the reserved names, and the checks of names.

KEEPING = ("softmax", "log_softmax")
"""Heads that keep their indices."""

ALIASES = {"expit": "sigmoid"}
"""Second names of scalar functions."""

SCALAR = (*WRITTEN, *ALIASES)
"""The scalar functions that a spec may call."""

FORMS = ("where", "size", "concat", "axis", "keep")
"""Other words with function syntax."""

CONSTANTS = ("pi", "inf")

WORDS = frozenset((*REDUCTIONS, *KEEPING, *SCALAR, *FORMS, *CONSTANTS))
"""All reserved words: an index or a parameter cannot have such a name. A tensor can; it is meant
where no parenthesis follows, as in ``mean[i]*mean[i](x[i])``.
"""


def arity(function: str) -> int:
    return 1 if function in POWERS else FUNCTIONS[ALIASES.get(function, function)].arity


def check_name(name: str, what: str, at: SourcePlace | None) -> None:
    """Refuse a name that is invalid in the notation or in the generated code."""
    if not name.isidentifier():
        fail(at, "invalid-name", f"{name!r} cannot name {what}; use letters, digits and _")
    if keyword.iskeyword(name):
        message = f"{name} is a Python keyword and cannot name {what}; choose another name"
        fail(at, "invalid-name", message)
    if name.startswith("_"):
        fail(
            at,
            "invalid-name",
            f"{name} cannot name {what}: names that begin with _ are reserved for generated code",
        )
    if name in {"an operation": (), "a tensor": CONSTANTS}.get(what, WORDS):
        message = f"{name} cannot name {what}: it is a word of the notation; choose another name"
        fail(at, "invalid-name", message)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return advice on the name, or ``; did you mean ...?`` with the nearest known name, or ""."""
    names = sorted(known)
    for word in (name, name.lower()):
        if word in ADVICE:
            return f"; {ADVICE[word]}"
        found = difflib.get_close_matches(word, names, 1, 0.6)
        if found:
            return f"; did you mean {found[0]}?"
    return ""


def plural(n: int, what: str) -> str:
    """``1 argument``, ``2 arguments."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


# ------------------------------------------------------------------------------------ syntax errors
# Parser errors in plain words, with suggestions.


def _error_at(token: Token, message: str) -> SpecError:
    return SpecError(message, kind="syntax", line=token.line, column=token.column)


def around(line: str, column: int) -> str:
    """Return the line, or the part of a long line around the column."""
    start = max(0, min(column - _SHOWN_LINE // 2, len(line) - _SHOWN_LINE))
    part = line[start : start + _SHOWN_LINE].strip()
    before, after = "… " if start else "", " …" if start + _SHOWN_LINE < len(line) else ""
    return f"{before}{part}{after}"


_SHOWN_LINE = 400
"""Maximum characters of a line in an error."""


_SHOWN = (
    ("NAME", "a name"),
    ("NUMBER", "a number"),
    ("LPAR", "'('"),
    ("RPAR", "')'"),
    ("LSQB", "'['"),
    ("RSQB", "']'"),
    ("EQUAL", "'='"),
    ("COMMA", "','"),
    ("COLON", "':'"),
    ("ARROW", "'->'"),
    ("VBAR", "'|'"),
    ("END", "the end of the statement"),
)


def unexpected(text: str, error: UnexpectedToken) -> SpecError:
    token = error.token
    accepts = set(error.accepts or error.expected)
    wanted = [words for kind, words in _SHOWN if kind in accepts]
    hint = ""
    end = len(text) if token.type == "$END" else token.start_pos or 0
    misplaced = _condition_of_a_tensor(text[:end])
    if accepts == {"LPAR"} and misplaced is not None:
        at, message = misplaced
        line = text.count("\n", 0, at) + 1
        return SpecError(message, line=line, column=at - text.rfind("\n", 0, at), kind="syntax")
    if wanted:
        hint = "; expected " + " or ".join(filter(None, (", ".join(wanted[:-1]), wanted[-1])))
    if "STAR" in accepts and token.type in ("NAME", "NUMBER", "LPAR"):
        parts = ", and the parts of a composite axis are indices and numbers, (h d)"
        hint += f"; a product is written a*b{parts if 'RPAR' in accepts else ''}"
    if token.type == "$END":
        lines = text.rstrip().split("\n")
        place = {"line": len(lines), "column": len(lines[-1]) + 1}
        return SpecError(
            f"the text ends in the middle of a statement{hint}", **place, kind="syntax"
        )
    if token.type == "END":
        start = text[: token.start_pos or 0].rpartition("\n")[2].partition("#")[0].rstrip()
        if re.search(r"([-+*/%^|<>]|[=!<>]=|\band|\bor|\bnot)$", start):
            hint = f"; {CONTINUED}"
        return _error_at(token, f"the statement ends too early{hint}")
    if token == "=" and "RELATION" in accepts:
        hint = "; a comparison is ==, arguments are unnamed"
    at = token.start_pos or 0
    for sign in (text[at : at + 1], text[max(at - 1, 0) : at + 1]):
        if sign in SIGNS and not accepts & {"END", "EQUAL"}:
            hint = f"; {SIGNS[sign]}"
    before = text[:at]
    if accepts <= {"NAME", "OP", "END", "NEWLINE", "SEMI", "$END"} and token in _OPERATORS:
        hint = f"; {CONTINUED}"
    elif token == "," and _open_bracket_name(before) is None:
        hint = f"; {LISTED}"
    elif token == "[" and before.rstrip().endswith(")"):
        hint = _of_a_result(before)
    elif token == "[" and before.rstrip().endswith("]"):
        hint = "; all positions of a tensor stand in one bracket, x[i,j]"
    elif token == "[" and "->" in before.rpartition("\n")[2]:
        hint = "; an output is a name alone, and its equation has its axes"
    elif token == ":" and re.search(r"\bop \w+\([^>\n]*;[^;>\n\[]*$", before):
        hint = "; a parameter has no type: one that is used in a position or size is an integer"
    elif token == "-" and accepts == {"LPAR"}:
        hint = "; a name has letters, digits and _"
    near = around(text.split("\n")[(token.line or 1) - 1], token.column or 1)
    if token.type == "NAME" and token in ADVICE:
        hint = f"; {ADVICE[token]}"
    for word in re.findall(r"[^\W\d]\w*", near):
        if word in KEYWORDS:
            hint = f"; {KEYWORDS[word]}"
    return _error_at(token, f"unexpected {str(token)!r}{hint}")


_OPERATORS = "+ - * / // % ** ^ and or == != < <= > >= |".split()


def _open_bracket_name(text: str) -> str | None:
    """Return the name before the innermost open bracket, None without a name.

    Return "" if no bracket is open, or if it is a parenthesis.
    """
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        if text[at] in ")]":
            depth += 1
        elif text[at] in "([":
            depth -= 1
            if depth < 0:
                name = re.search(r"\w+$", text[:at].rstrip())
                return "" if text[at] == "(" else name and name[0]
    return ""


def _of_a_result(before: str) -> str:
    """Return the hint for f(x)[i]."""
    depth, text = 0, before.rstrip()
    for at in range(len(text) - 1, -1, -1):
        depth += (text[at] in ")]") - (text[at] in "([")
        if depth == 0:
            name = re.search(r"[^\W\d]\w*$", text[:at])
            if name is not None and name[0] in ADVICE:
                return f"; {name[0]}: {ADVICE[name[0]]}"
            return f"; {RESULT.format(f'{name[0]}(...)' if name else 'a formula')}"
    return ""


def _condition_of_a_tensor(before: str) -> tuple[int, str] | None:
    """Return the position of the condition in x[n | n > 0], and its error."""
    found = re.search(r"([^\W\d]\w*)\[([^][|]*)\|([^|]*)\]\s*$", before)
    if found is None or found[1] in (*REDUCTIONS, *KEEPING):
        return None
    name, positions, condition = (found[n].strip() for n in (1, 2, 3))
    outer = re.search(r"([^\W\d]\w*)\[([^][|]*)\]\(\s*$", before[: found.start()])
    head, where = outer.groups() if outer else ("sum", positions)
    shown = f"{name}[{positions}]"
    return found.start(3) - 1, (
        "a condition follows the indices of a reduction, not those of a tensor: "
        f"{head}[{where.strip()} | {condition}]({shown}); as a factor, [{condition}]*{shown}"
    )
