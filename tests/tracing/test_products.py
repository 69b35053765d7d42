"""Products of matrices, also within sums, and einsum."""

import pytest
import torch
import torch.nn.functional as F
from kit.reads import r
from kit.unwritten import first_order

import derive
from derive.tracing.read import reading


@pytest.mark.parametrize(
    ("function", "example", "said"),
    [
        (lambda x: torch.cdist(x, x), [r(3, 4)], "norm2[c](x[n,c] - x[n2,c])"),
        (lambda x, y: torch.cdist(x, y, 1), [r(2, 3, 4), r(2, 5, 4)], "abs(x[n,t,c] - y[n,k,c])"),
        (torch.addbmm, [r(3, 5), r(2, 3, 4), r(2, 4, 5)], "+ sum[k]("),
        (lambda x: torch.logcumsumexp(x, -1), [r(2, 5)], "logsumexp[c2 | c2 <= c](x[n,c2])"),
        (lambda x: torch.linalg.vector_norm(x, 0, -1) * x.sum(-1), [r(3, 4)], "[x[n,c] != 0]"),
        (lambda x: 2 / x + 1 / (1 + x.exp()), [r(4)], "2/x[c] + 1/(exp(x[c]) + 1)"),
    ],
)
def test_products_and_distances(function, example, said):
    made = reading(function, *example, name="f", comments=False)
    assert said in made.text, made.text


OF_TORCH = {
    "cov": (lambda x: torch.cov(x), (3, 4)),
    "cov of one row": (lambda x: x.cov(correction=0), (4,)),
    "corrcoef": (lambda x: x.corrcoef().sin(), (3, 4)),
    "fmax": (lambda x, y: torch.fmax(x, -y) * torch.fmin(x, y.log()), (4,), (4,)),
    "cosine": (lambda x, y: F.cosine_similarity(x, y, -2), (1, 2, 3), (4, 1, 3)),
    "cosine of other ranks": (lambda x, y: F.cosine_similarity(x, y, -1), (2, 3), (4, 1, 3)),
    "broadcast": (lambda *xs: torch.broadcast_tensors(*xs), (3,), (1, 2, 1), (5, 1, 1)),
}


@pytest.mark.parametrize("case", OF_TORCH.values(), ids=OF_TORCH)
def test_functions_of_torch_itself(case):
    function, *shapes = case
    ours, given = derive.differentiate(function, time=1e9), [r(*shape) for shape in shapes]
    for x in given:
        x.requires_grad_()
    pairs = [torch.utils._pytree.tree_leaves(f(*given)) for f in (ours, function)]
    torch.testing.assert_close(*pairs)
    for y, want in zip(*pairs, strict=True):
        made = (torch.autograd.grad(t.sum(), given, allow_unused=True) for t in (y, want))
        torch.testing.assert_close(*made)
    assert all(ours.known.made.values())


def test_a_sparse_tensor_is_left_to_the_function():
    f, x = derive.differentiate(lambda a, b: torch.sparse.mm(a, b)), torch.eye(3).to_sparse()
    with pytest.warns(derive.DeriveWarning, match=r"sparse one; pass x.to_dense\(\)"):
        torch.testing.assert_close(f(x, r(3, 4)), r(3, 4))


def off_diagonal(z):
    c = z.T @ z
    n = c.shape[0]
    return c.flatten()[:-1].view(n - 1, n + 1)[:, 1:].pow(2).sum()


def test_a_view_whose_sizes_are_sums():
    made = reading(off_diagonal, r(5, 4), comments=False).text
    assert "m*(size(k) + 1)" in made or "*(size(c) + 1)" in made, made


def test_what_has_no_reading_says_what_to_do():
    with pytest.raises(
        derive.DeriveError, match=r"pdist.* has no equivalent in index notation; use arithmetic"
    ):
        derive.read_torch(lambda x: torch.pdist(x), r(4, 3))


class Padded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(12, 3, batch_first=True)

    def forward(self, x, pad):
        return self.attention(x, x, x, key_padding_mask=pad, need_weights=False)[0]


def test_a_mask_of_minus_infinity_stands_in_the_softmax():
    pad = torch.tensor([[0, 0, 0, 0, 1], [0, 0, 0, 1, 1]]).bool()
    text = str(derive.read_torch(Padded(), torch.randn(2, 5, 12), pad))
    assert "softmax[t2](where(pad[n, t2], -inf, scores[n, d, t, t2]))" in text

    def added(q, k, v, pad):
        mask = torch.zeros(pad.shape).masked_fill(pad, -torch.inf)[:, None]
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    shapes = (2, 4, 3), (2, 5, 3), (2, 5, 6)
    text = str(derive.read_torch(added, *map(torch.randn, shapes), pad))
    assert "where(pad[n, m], -inf, scores[n, t, m])" in text


def cosines(a, b):
    return torch.nn.functional.normalize(a) @ torch.nn.functional.normalize(b).T


def test_a_factor_that_divides_by_a_norm_has_a_name():
    """It is computed once, not for each of the rows that it is multiplied by."""
    a, b = r(3, 4), r(5, 4)
    made = reading(cosines, a, b, name="f", comments=False)
    assert "sum[c](h[n,c]*h2[c,k])" in made.text, made.text
    inputs = [x.double().requires_grad_() for x in (a, b)]
    cotangent = r(3, 5).double()
    found, wanted = (
        torch.autograd.grad(f(*inputs), inputs, cotangent)
        for f in (derive.load(derive.read_torch(cosines, a, b)), cosines)
    )
    torch.testing.assert_close(found, wanted)


def swiglu(x, gate, up, down):
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def test_a_product_within_a_sum_is_named_and_kept():
    x, gate, up, down = (torch.randn(s) for s in ((5, 7), (4, 7), (4, 7), (6, 4)))
    op = derive.read_torch(swiglu, x, gate, up, down)
    assert [e.name for e in op.equations] == ["h", "h2", "y"]
    first = first_order(derive.source(op))
    assert first.count(" @ ") + first.count("addmm") == 6


def test_a_sum_that_is_no_product_stays():
    op = derive.read_torch(lambda x, w: (x.sum(1, keepdim=True) * w).sum(), *torch.randn(2, 3, 5))
    assert len(op.equations) == 1


EQUATIONS = [
    ("oi,...ihw->...ohw", r(6, 3), r(2, 3, 4, 5)),
    ("...ij,...jk", r(2, 3, 4), r(7, 2, 4, 5)),
    ("nii->ni", r(2, 5, 5)),
    ("nii", r(2, 5, 5)),
    ("...ii->...", r(2, 5, 5)),
    ("ii,ij->j", r(5, 5), r(5, 3)),
    ("ba,cb", r(2, 5), r(3, 2)),
]


@pytest.mark.parametrize(("equation", "operands"), [(e, x) for e, *x in EQUATIONS])
def test_an_equation_is_read(equation, operands):
    def f(*x):
        return torch.einsum(equation, *x)

    made = reading(f, *operands, comments=False)
    assert len(made.operation.equations) == 1


def test_a_letter_twice_is_a_diagonal():
    made = reading(lambda x: torch.einsum("nii->ni", x), r(2, 5, 5), name="f", comments=False)
    assert "y[n,t] = x[n,t,t]" in made.text
