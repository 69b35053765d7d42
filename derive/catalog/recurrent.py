"""One step of a recurrent layer, with the arguments of torch.gru_cell and its like.

The rows of the weights are the gates in torch's order, one gate of all hidden units after the
other.
"""

from __future__ import annotations

from sympy import IndexedBase, Sum, symbols, tanh

from derive.notation.heads import Composite, Eq, optional, sigmoid, size
from derive.notation.specification import Operation

g, i, j, l, n = symbols("g i j l n", integer=True)  # noqa: E741
input, hx, cx, h, c = map(IndexedBase, ("input", "hx", "cx", "h", "c"))
w_ih, w_hh, b_ih, b_hh = map(IndexedBase, ("w_ih", "w_hh", "b_ih", "b_hh"))
a, s, reset, update, new = map(IndexedBase, ("a", "s", "reset", "update", "new"))
enter, forget, leave = map(IndexedBase, ("enter", "forget", "leave"))

OPERATIONS = (
    Operation(
        "rnn_tanh_cell",
        Eq(
            h[n, j],
            tanh(
                Sum(input[n, i] * w_ih[j, i], i) + b_ih[j] + Sum(hx[n, l] * w_hh[j, l], l) + b_hh[j]
            ),
        ),
        inputs=(
            input[n, i],
            hx[n, j],
            w_ih[j, i],
            w_hh[j, j],
            optional(b_ih[j], 0),
            optional(b_hh[j], 0),
        ),
    ),
    # The gates are reset, update and new.
    Operation(
        "gru_cell",
        Eq(a[n, g, j], Sum(input[n, i] * w_ih[Composite(g, j), i], i) + b_ih[Composite(g, j)]),
        Eq(s[n, g, j], Sum(hx[n, l] * w_hh[Composite(g, j), l], l) + b_hh[Composite(g, j)]),
        Eq(reset[n, j], sigmoid(a[n, 0, j] + s[n, 0, j])),
        Eq(update[n, j], sigmoid(a[n, 1, j] + s[n, 1, j])),
        Eq(new[n, j], tanh(a[n, 2, j] + reset[n, j] * s[n, 2, j])),
        Eq(h[n, j], (1 - update[n, j]) * new[n, j] + update[n, j] * hx[n, j]),
        inputs=(
            input[n, i],
            hx[n, j],
            w_ih[Composite(g, j), i],
            w_hh[Composite(g, j), j],
            optional(b_ih[Composite(g, j)], 0),
            optional(b_hh[Composite(g, j)], 0),
        ),
        parameters={size(g): 3},
    ),
    # The gates are input, forget, cell and output.
    Operation(
        "lstm_cell",
        Eq(
            a[n, g, j],
            Sum(input[n, i] * w_ih[Composite(g, j), i], i)
            + b_ih[Composite(g, j)]
            + Sum(hx[n, l] * w_hh[Composite(g, j), l], l)
            + b_hh[Composite(g, j)],
        ),
        Eq(enter[n, j], sigmoid(a[n, 0, j])),
        Eq(forget[n, j], sigmoid(a[n, 1, j])),
        Eq(new[n, j], tanh(a[n, 2, j])),
        Eq(leave[n, j], sigmoid(a[n, 3, j])),
        Eq(c[n, j], forget[n, j] * cx[n, j] + enter[n, j] * new[n, j]),
        Eq(h[n, j], leave[n, j] * tanh(c[n, j])),
        inputs=(
            input[n, i],
            hx[n, j],
            cx[n, j],
            w_ih[Composite(g, j), i],
            w_hh[Composite(g, j), j],
            optional(b_ih[Composite(g, j)], 0),
            optional(b_hh[Composite(g, j)], 0),
        ),
        parameters={size(g): 4},
        outputs=(h, c),
    ),
)
