"""Softmaxes along an axis that is followed by one of a group, which may be of size 1 or none.

    torch.softmax(x, i)      _softmax_of(x, i)
    torch.log_softmax(x, i)  _logsoftmax(x, i)

torch takes ten times as long for [512, 8192, 1] along 1 as for [512, 8192].
"""

from __future__ import annotations

from derive.algebra.substitution import replace
from derive.program.code import Code, Function, Literal

_CALLS = {"torch.softmax": "_softmax_of", "torch.log_softmax": "_logsoftmax"}


def along(code: Code) -> Code:
    """The code with such calls along axes that are counted from the first."""

    def visit(part: Code) -> Code | None:
        match part:
            case Function(name, (x, Literal(at) as dim)) if name in _CALLS and at.isdigit():
                return Function(_CALLS[name], (along(x), dim))
        return None

    return replace(code, visit)
