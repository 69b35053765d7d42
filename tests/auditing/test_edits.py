"""An audit names the one edit of the code after which a gradient is right."""

import ast
import re

import pytest
import torch
from kit.each import in_turns
from kit.right import OF
from kit.seeded import seeded

import derive
from derive.auditing.edits import unread_names, with_factor, with_term, with_unread
from derive.auditing.substitution_edits import CodeScope, parsed, removed

EDITS = [
    ("SwiGLUHalves", "grad_gate, grad_up", "grad_up, grad_gate", "x", r"are swapped in line \d+"),
    ("GeGLUTanh", "dy * gelu", "dy * t", "x", r"^t stands where gelu should in line"),
    ("RotaryHalves", "g * sin", "g * cos", "x", r"cos stands where sin should"),
    ("RotaryComplex", "table.conj()", "table", "x", r"table stands where table.conj\(\) should"),
    (
        "RotaryInterleaved",
        "da * cos + db * sin\n        dx[..., 1::2] = db * cos - da * sin",
        "da * cos - db * sin\n        dx[..., 1::2] = db * cos + da * sin",
        "x",
        r"^the sign of sin is wrong in line",
    ),
    ("CumulativeSum", "_reversed_cumsum(g, ctx.dim)", "g.cumsum(ctx.dim)", "x", r"from the end"),
    ("RunningMaximum", "scatter_add(1", "scatter(1", "x", r"it should sum them"),
    ("LinearRecurrence", "carried * before", "carried * states[:, t]", "a", r"where before should"),
    (
        "DiscountedReturns",
        "torch.where(done[:, t], 0, flow)",
        "flow",
        "rewards",
        r"mask .*done\[:, t",
    ),
    ("MatrixInverse", "y.mT @ g @ y.mT", "y @ g @ y", "a", r"y and its transpose"),
    ("BatchedSolve", ", adjoint=True", "", "b", r"adjoint=True is missing"),
    (
        "LovaszHinge",
        "growth * (errors > 0)",
        "growth",
        "logits",
        r"factor \[ordered.* ≥ 0\] is miss",
    ),
    ("ReducedHuber", ".clamp(-ctx.delta, ctx.delta)", "", "x", r"\.clamp\(-delta, delta\) should"),
    ("PairedContrast", " - torch.eye(len(a), dtype=a.dtype)", "", "a", r"term −Σₖ .*δ.* missing"),
    ("SmoothedCrossEntropy", "g / kept.sum()", "g / kept.numel()", "logits", r"where kept.sum\(\)"),
    ("SortedRows", "g.gather(-1, back)", "g", "x", r"g.gather\(-1, back\) should"),
    (
        "InPlaceLeaky",
        "torch.where(kept, g, ctx.slope * g)",
        "g",
        "x",
        r"torch.where\(kept, g, slope",
    ),
    ("TripletMargin", " * active[:, None].to(x.dtype)", "", "x", r"mask active\[\.\.\., None\] is"),
    ("BoxOverlap", "(union + common)", "union", "a", r"factor 1 \+ prod_\[n\]/.* is missing in"),
    ("LoopedPower", "visited[-2::-1]", "visited[:0:-1]", "matrix", r"-2::-1 should"),
    # what forward keeps, and gradients that forward computes
    ("PermutedRows", "(inverse)", "(order)", "x", r"order|inverse"),
    ("ChunkedLinearCrossEntropy", "dweight += d.t()", "dweight = d.t()", "weight", r"be summed"),
]


@pytest.mark.parametrize(("function", "old", "new", "name", "said"), in_turns(EDITS, 10))
def test_the_edit_that_mends_a_gradient_is_named(function, old, new, name, said):
    torch.manual_seed(0)
    report = derive.audit(seeded(OF[function].function, old, new), *OF[function].example())
    (row,) = [row for row in report.rows if row.input == name]
    assert not row.right and re.search(said, row.wrong), row.wrong


def test_a_bound_that_values_near_by_fit_too_is_not_named():
    torch.manual_seed(0)
    entry = OF["TernaryWeights"]
    wrong = seeded(entry.function, "1.5", "1.0")
    report = derive.audit(wrong, *entry.example(), reference=entry.reference)
    assert report.rows[0].wrong == "it is wrong only where |w| > 1: it is 0 there"


class NearestRow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        least, which = (a[:, None] - b).square().sum(-1).min(1)
        ctx.save_for_backward(a, b, which)
        return least.sum()

    @staticmethod
    def backward(ctx, G):
        a, b, which = ctx.saved_tensors
        grad = 2 * G * (a - b[which])
        other = torch.zeros_like(b)
        other[which] = -grad
        return grad, other


def test_an_assignment_at_positions_that_repeat_should_sum():
    torch.manual_seed(0)
    report = derive.audit(NearestRow, torch.randn(6, 3), torch.randn(3, 3))
    assert report.rows[0].right
    assert "other[which] = -grad keeps one value of each place" in report.rows[1].wrong


class LinearColumns(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, at):
        low = at.long()
        part = at - low
        ctx.save_for_backward(table, low, part)
        return table[:, low] * (1 - part) + table[:, low + 1] * part

    @staticmethod
    def backward(ctx, g):
        table, low, part = ctx.saved_tensors
        places, weight = torch.cat([low, low + 1]), torch.cat([1 - part, part])
        of_table = torch.zeros_like(table)
        of_table[:, places] = g.repeat(1, 2) * weight
        return of_table, (g * (table[:, low + 1] - table[:, low])).sum(0)


def test_an_assignment_to_columns_that_repeat_should_sum():
    report = derive.audit(LinearColumns, torch.randn(3, 4), torch.tensor([0.25, 1.5, 1.25, 2.5]))
    assert [row.right for row in report.rows] == [False, True]
    assert "keeps one value of each place; it should sum them" in report.rows[0].wrong


class HalvedSquares(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return weight * torch.tensor(x.tolist(), dtype=x.dtype) ** 2 / 4

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        return (g * weight).sum(0) * x, g * x**2 / 4


def test_a_number_that_is_the_size_of_a_short_axis_is_no_mean():
    report = derive.audit(HalvedSquares, torch.randn(5), torch.rand(2, 5))
    assert [row.right for row in report.rows] == [False, True]
    assert "factor 1/2 is missing" in report.rows[0].wrong


class MaskedSquares(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, kept):
        x = x.masked_fill(~kept, 0)
        ctx.save_for_backward(x, kept)
        return x.square().sum() / kept.sum().clamp(min=1)

    @staticmethod
    def backward(ctx, G):
        x, kept = ctx.saved_tensors
        return 2 * G * x / kept.numel(), None


def test_a_number_of_all_elements_stands_where_one_of_some_should():
    torch.manual_seed(0)
    (row,) = derive.audit(
        MaskedSquares, torch.randn(4, 11), torch.arange(44).view(4, 11) % 3 > 0
    ).rows
    assert "kept.numel() stands where kept.sum() should in line" in row.wrong


class GuidedRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, G):
        (x,) = ctx.saved_tensors
        ours, theirs = (x > 0).type_as(G), (G > 0).type_as(G)
        return torch.mul(torch.mul(G, ours), theirs)


def test_a_mask_that_is_too_many_is_named():
    torch.manual_seed(0)
    (row,) = derive.audit(GuidedRelu, torch.randn(4, 5)).rows
    assert "the factor theirs is too many" in row.wrong
    either = [text for _, text in removed(parsed("ours | theirs"), CodeScope({}))]
    assert either[0] == "ours | theirs stands where ours should"


def test_the_transpose_is_tried_beside_a_square_matrix():
    told = [text for _, text in with_term(parsed("y"), CodeScope({"y": torch.ones(3, 3)}))]
    assert "the term y.mT is missing beside y" in told


def test_a_sign_is_tried_before_numbers_that_are_sizes():
    scope = CodeScope({"B": 2, "y": torch.ones(2, 3)})
    told = [text for _, text in with_factor(parsed("x"), scope)]
    assert told[0] == "the sign of x is wrong" and not any("1 - B" in text for text in told)


def test_an_edit_is_quoted_with_its_line():
    class Gate(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            a, b = x.chunk(2, -1)
            ctx.save_for_backward(a, b)
            return a.sin() * b

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return torch.cat([g * a.sin() * b, g * a.sin()], -1)

    (row,) = derive.audit(Gate, torch.randn(2, 6)).rows
    assert not row.right
    assert "a.sin()" in row.wrong or "cos" in row.wrong, row.wrong


def test_a_backward_without_source_is_judged_all_the_same():
    names = {"torch": torch}
    exec(
        "class Twice(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x):\n"
        "        return torch.linalg.svdvals(x) * 2\n"
        "    @staticmethod\n"
        "    def backward(ctx, g):\n"
        "        return torch.ones(4, 3, dtype=g.dtype)\n",
        names,
    )
    (row,) = derive.audit(names["Twice"], torch.randn(4, 3)).rows
    assert not row.right and "does not read g" in row.wrong, row.wrong


def test_what_edited_code_prints_is_not_shown(capfd):
    class Loud(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.linalg.svdvals(x).exp()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            print("backward runs")
            return torch.zeros_like(x) + 1

    derive.audit(Loud, torch.randn(4, 3))
    assert len(capfd.readouterr().out.splitlines()) < 1000


class RowsOfHeads(torch.autograd.Function):
    """Joins two axes in another order than they have."""

    @staticmethod
    def forward(ctx, x, w):
        b, h, n = x.shape
        ctx.save_for_backward(x, w)
        rows = x.transpose(1, 2).reshape(b * n, h)
        return rows @ w, x.sin().transpose(1, 2).reshape(b, n * h)

    @staticmethod
    def backward(ctx, g, s):
        x, w = ctx.saved_tensors
        b, h, n = x.shape
        dw = x.transpose(1, 2).reshape(b * n, h).t() @ g
        dx = (g @ w.t()).view(b, n, h).transpose(1, 2)
        return dx + x.cos() * s.view(b, n, h).transpose(1, 2), dw


ORDERS = [
    ("s.view(b, n, h).transpose(1, 2)", "s.view(b, h, n)", "x"),
    ("(g @ w.t()).view(b, n, h).transpose(1, 2)", "(g @ w.t()).view(b, h, n)", "x"),
    ("x.transpose(1, 2).reshape(b * n, h)", "x.reshape(b * n, h)", "w"),
]


@pytest.mark.parametrize(("right", "wrong", "name"), ORDERS)
@pytest.mark.parametrize("n", [4, 3])
def test_the_order_of_a_view_is_mended_by_an_edit_that_holds_at_other_sizes(right, wrong, name, n):
    torch.manual_seed(0)
    report = derive.audit(
        seeded(RowsOfHeads, right, wrong), torch.randn(2, 3, n), torch.randn(3, 5)
    )
    (row,) = [row for row in report.rows if not row.right]
    assert row.input == name and row.wrong.startswith(f"{wrong} stands where {right} should")


def test_an_order_that_is_not_undone_is_named():
    class Sorted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, key):
            order = key.argsort()
            ctx.save_for_backward(order)
            return x[order, 1:] * torch.arange(len(x))[:, None]

        @staticmethod
        def backward(ctx, g):
            (order,) = ctx.saved_tensors
            d = g * torch.arange(len(order))[:, None]
            out = g.new_zeros(len(g), g.shape[1] + 1)
            out[:, 1:] = d
            return out, None

    row = derive.audit(Sorted, torch.randn(4, 3), torch.tensor([2, 0, 3, 1])).rows[0]
    assert "[:, None])[order.argsort()] should in line" in row.wrong


def test_a_statement_that_is_too_many_is_named():
    class Rows(torch.autograd.Function):
        @staticmethod
        def forward(ctx, rows, w):
            ctx.save_for_backward(rows, w)
            return w[rows]

        @staticmethod
        def backward(ctx, g):
            rows, w = ctx.saved_tensors
            out = torch.zeros_like(w).index_add(0, rows, g)
            out[0] = 0
            return None, out

    row = derive.audit(Rows, torch.tensor([0, 2, 0, 1]), torch.randn(4, 3)).rows[0]
    assert row.wrong.startswith("out[0] = 0 is too many in line")


def test_a_class_method_is_edited_like_a_static_one():
    class Gated(torch.autograd.Function):
        @classmethod
        def forward(cls, ctx, x):
            y = x.tanh()
            ctx.save_for_backward(x, y)
            return y * x

        @classmethod
        def backward(cls, ctx, g):
            _x, y = ctx.saved_tensors
            d = g * y
            d = d + g * y * (1 - y * y)
            return d

    row = derive.audit(Gated, torch.randn(3, 4)).rows[0]
    assert row.wrong.startswith("y stands where x should in line")


def test_no_edit_is_named_that_larger_values_refute():
    """The mask is meant to be |x| < b; that x < b would do is seen where x < -b."""

    class Surrogate(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, b):
            ctx.save_for_backward(x)
            ctx.b = b
            return (x > 0).to(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g / (x.abs() + 1) ** 2 * (x > ctx.b).to(x), None

    def meant(x, b):
        s = x / (x.abs() + 1)
        s = torch.where(x.abs() < b, s, s.detach())
        return (x > 0).to(x).detach() + s - s.detach()

    x = torch.linspace(-0.9, 1.5, 12).view(3, 4)
    row = derive.audit(Surrogate, x, 1.0, reference=meant).rows[0]
    assert row.wrong and "should" not in row.wrong
    assert "torch" not in {
        after.id
        for after, _ in removed(parsed("torch.ones(n)"), CodeScope({}))
        if hasattr(after, "id")
    }


def test_a_tensor_that_is_computed_and_not_read_is_tried_first():
    tree = ast.parse("delta = a * b\nreturn_ = p * (a @ b)")
    scope = CodeScope({n: torch.ones(2, 3) for n in ("a", "b", "p", "delta")})
    assert unread_names([tree], scope) == ["delta"]
    (made,) = [t for a, t in with_unread(parsed("a @ b"), scope, ["delta"]) if "-delta" in t]
    assert made == "the term -delta is missing beside a @ b"
