"""Differences off the origin: what is multiplied out around a centre has the digits that are there.

Every operation is held against torch's autograd of the equation as it is written: derivatives in
float64, and rounding in float32, far from the origin, in numbers of the largest error of one
operation.
"""

from typing import Any

import pytest
import torch
from kit.each import each_row

import derive

n, m, d, c = 7, 5, 3, 4
EPS = 2.0**-23


def apart(X: Any, Y: Any) -> Any:
    """X[i,d] - Y[j,d]."""
    return X[:, None, :] - Y


def squared(X: Any, Y: Any) -> Any:
    return apart(X, Y).square().sum(2)


def mixture(x: Any, mu: Any, p: Any, precision: Any = 1.0) -> Any:
    scores = torch.log_softmax(p, 0) - (apart(x, mu).square() * precision).sum(2) / 2
    return -torch.logsumexp(scores, 1).mean()


def student(y: Any, P: Any) -> Any:
    q = 1 / (1 + squared(y, y))
    return -(P * (q / q.sum()).log()).sum()


def clusters(x: Any, mu: Any) -> Any:
    r = torch.softmax(-squared(x, mu), 1)
    return mu + (r[:, :, None] * apart(x, mu)).sum(0) / r.sum(0)[:, None]


def discrepancy(X: Any, Y: Any, g: Any) -> Any:
    pairs = ((X, X, 1), (Y, Y, 1), (X, Y, -2))
    return sum(s * (-b * squared(x, y)).exp().mean() for x, y, s in pairs for b in g)


def quantised(z: Any, e: Any) -> Any:
    q = e[squared(z, e).argmin(1)]
    return (z.detach() - q).square().sum(1).mean() + (z - q.detach()).square().sum(1).mean() / 4


POINTS = ((n, d), (m, d))
CASES: dict[str, tuple[str, tuple[tuple[int, ...], ...], Any]] = {
    "weighted": (
        "op f(X[i,d], Y[j,d], w[d]) -> y\ny[i,j] = sum[d](w[d]*(X[i,d]-Y[j,d])**2)",
        (*POINTS, (d,)),
        lambda X, Y, w: (w * apart(X, Y).square()).sum(2),
    ),
    "lengths": (
        "op f(X[i,d], Y[j,d], w[d]) -> y\ny[i,j] = exp(-sum[d](((X[i,d]-Y[j,d])/w[d])**2)/2)",
        (*POINTS, (d,)),
        lambda X, Y, w: (-(apart(X, Y) / w).square().sum(2) / 2).exp(),
    ),
    "three": (
        "op f(X[i,d], Y[j,d], Z[k,d]) -> y\ny[i,j,k] = sum[d]((X[i,d]-2*Y[j,d]+Z[k,d])**2)",
        (*POINTS, (c, d)),
        lambda X, Y, Z: (X[:, None, None] - 2 * Y[:, None] + Z).square().sum(3),
    ),
    "mixture": (
        """op f(x[n,d], mu[k,d], p[k]) -> L
s[n,k] = log_softmax[k](p[k]) - sum[d]((x[n,d] - mu[k,d])**2)/2
L = -mean[n](logsumexp[k](s[n,k]))""",
        (*POINTS, (m,)),
        mixture,
    ),
    "mixture of precisions": (
        """op f(x[n,d], mu[k,d], p[k], v[k,d]) -> L
s[n,k] = log_softmax[k](p[k]) - sum[d]((x[n,d] - mu[k,d])**2*exp(-v[k,d]))/2
L = -mean[n](logsumexp[k](s[n,k]))""",
        (*POINTS, (m,), (m, d)),
        lambda x, mu, p, v: mixture(x, mu, p, (-v).exp()),
    ),
    "student": (
        """op f(y[i,d], P[i,j]) -> L
q[i,j] = 1/(1 + sum[d]((y[i,d] - y[j,d])**2))
Z = sum[i,j](q[i,j])
L = -sum[i,j](P[i,j]*log(q[i,j]/Z))""",
        ((n, d), (n, n)),
        student,
    ),
    "ridge": (
        "op f(x[i,d], z[j,d], a[j]) -> y\ny[i] = sum[j](a[j]*exp(-sum[d]((x[i,d]-z[j,d])**2)))",
        (*POINTS, (m,)),
        lambda x, z, a: (-squared(x, z)).exp() @ a,
    ),
    "attention": (
        "op f(q[i,d], k[j,d], v[j,e]) -> y\n"
        "y[i,e] = sum[j](softmax[j](-sum[d]((q[i,d]-k[j,d])**2)/2)*v[j,e])",
        (*POINTS, (m, c)),
        lambda q, k, v: torch.softmax(-squared(q, k) / 2, 1) @ v,
    ),
    "clusters": (
        """op f(x[n,d], mu[k,d]) -> y
r[n,k] = softmax[k](-sum[e]((x[n,e] - mu[k,e])**2))
y[k,d] = mu[k,d] + sum[n](r[n,k]*(x[n,d] - mu[k,d]))/sum[n](r[n,k])""",
        POINTS,
        clusters,
    ),
    "discrepancy": (
        """op f(X[i,d], Y[l,d], g[b]) -> L
A[b] = mean[i,j](exp(-g[b]*sum[d]((X[i,d] - X[j,d])**2)))
B[b] = mean[l,k](exp(-g[b]*sum[d]((Y[l,d] - Y[k,d])**2)))
C[b] = mean[i,l](exp(-g[b]*sum[d]((X[i,d] - Y[l,d])**2)))
L = sum[b](A[b] + B[b] - 2*C[b])""",
        (*POINTS, (2,)),
        discrepancy,
    ),
    "quantised": (
        """op f(z[n,d], e[k,d]) -> L
a[n] = argmin[k](sum[d]((z[n,d] - e[k,d])**2))
q[n,d] = e[a[n],d]
A[n] = sum[d]((detach(z[n,d]) - q[n,d])**2)
B[n] = sum[d]((z[n,d] - detach(q[n,d]))**2)
L = mean[n](A[n]) + mean[n](B[n])/4""",
        POINTS,
        quantised,
    ),
    "laplacian": (
        "op f(x[i,d], w[i,j]) -> y\ny[i,d] = sum[j](w[i,j]*(x[i,d] - x[j,d]))",
        ((n, d), (n, n)),
        lambda x, w: (w[:, :, None] * apart(x, x)).sum(1),
    ),
    "variances": (
        "op f(x[n,d], mu[k,d], r[n,k]) -> S\n"
        "S[k,d,e] = sum[n](r[n,k]*(x[n,d]-mu[k,d])*(x[n,e]-mu[k,e]))",
        (*POINTS, (n, m)),
        lambda x, mu, r: torch.einsum("nk,nkd,nke->kde", r, apart(x, mu), apart(x, mu)),
    ),
    "of a product": (
        "op f(x[i,d], z[k,e], W[d,e]) -> y\ny[i,k] = sum[d]((x[i,d] - sum[e](W[d,e]*z[k,e]))**2)",
        ((n, d), (m, 2), (d, 2)),
        lambda x, z, W: squared(x, z @ W.mT),
    ),
}
EVERY = pytest.mark.parametrize("name", CASES)


def tensors(name: str, dtype: Any, offset: float = 0.0) -> list[Any]:
    """Points about the offset, in float32, and what else there is, above 0."""
    generator = torch.Generator().manual_seed(5)
    _, shapes, _ = CASES[name]
    found = []
    for k, shape in enumerate(shapes):
        t = torch.rand(shape, generator=generator) + 0.5
        pointlike = len(shape) == 2 and shape[1] == d and k < 3
        found.append((t + offset if pointlike else t).to(dtype).requires_grad_())
    return found


def derivatives(f: Any, inputs: list[Any]) -> list[Any]:
    """The value, gradients, and gradients of a combination of these."""
    y = f(*inputs)
    G = (
        torch.linspace(-1, 2, y.numel(), dtype=y.dtype).reshape(y.shape)
        if y.dim()
        else y.new_ones(())
    )
    first = torch.autograd.grad(y, inputs, G, create_graph=True)
    total = sum((g * torch.linspace(0.3, 1.3, g.numel()).reshape(g.shape)).sum() for g in first)
    second = torch.autograd.grad(total, inputs, materialize_grads=True, allow_unused=True)
    return [y, *first, *second]


@EVERY
def test_first_and_second_derivatives(name):
    text, _, by_hand = CASES[name]
    ours = derivatives(derive.load(derive.parse(text)), tensors(name, torch.float64))
    theirs = derivatives(by_hand, tensors(name, torch.float64))
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


@EVERY
@each_row("offset", [10.0, 1000.0])
def test_float32_off_the_origin(name, offset):
    """64 roundings of what is largest; uncentred, 1000 off, up to 1e6 of them."""
    text, _, by_hand = CASES[name]
    ours = derivatives(derive.load(derive.parse(text)), tensors(name, torch.float32, offset))
    exact = [t.detach().double().requires_grad_() for t in tensors(name, torch.float32, offset)]
    for one, truth in zip(ours, derivatives(by_hand, exact), strict=True):
        assert (one.double() - truth).abs().max() <= 64 * EPS * truth.abs().max()


@EVERY
def test_autocast_rounds_no_difference(name):
    """A product in bfloat16 would leave nothing of the distance of near points."""
    text, _, by_hand = CASES[name]

    def derived(f, dtype):
        inputs = tensors(name, dtype)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.float32):
            y = f(*inputs)
        return [y, *torch.autograd.grad(y, inputs, torch.ones_like(y))]

    every = [derived(f, torch.float32) for f in (derive.load(derive.parse(text)), by_hand)]
    for ours, theirs, truth in zip(*every, derived(by_hand, torch.float64), strict=True):
        errors = [(t.double() - truth).abs().max() for t in (ours, theirs)]
        assert errors[0] <= 2 * errors[1] + 64 * EPS * truth.abs().max()


SQUARED = "op f(X[i,d], Y[j,d]) -> y\ny[i,j] = sum[d]((X[i,d]-Y[j,d])**2)"


def points(*shapes: tuple[int, ...]) -> list[Any]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("far", [1e6, -1e30, float("inf"), float("nan")])
def test_one_point_far_away_is_no_centre(far):
    """The others keep their digits, and what reads no other than them is finite."""
    X, Y = points(*POINTS)
    Y[1, 2] = far
    others = torch.arange(m) != 1
    f = derive.load(derive.parse(SQUARED))
    ours, exact = f(X.float(), Y.float()).double(), squared(X.float().double(), Y.float().double())
    assert (ours - exact)[:, others].abs().max() <= 64 * EPS * exact[:, others].max()


def test_what_a_condition_leaves_out_is_no_centre():
    text = """op f(X[i,d], Y[j,d], b[j]: bool) -> y
y[i] = sum[j | b[j]](exp(-sum[d]((X[i,d] - Y[j,d])**2)))"""
    X, Y = points(*POINTS)
    Y[1] = float("nan")
    b = torch.arange(m) != 1
    X, Y = X.requires_grad_(), Y.requires_grad_()
    ours = torch.autograd.grad(derive.load(derive.parse(text))(X, Y, b).sum(), (X, Y))
    theirs = torch.autograd.grad((-squared(X, Y[b])).exp().sum(), (X, Y))
    torch.testing.assert_close(ours, theirs)


def test_differences_of_positions_and_values_are_formed():
    """Values lie about one position each, so that no center is near all of them."""
    text = "op f(a[k,l], x[s], y[s]) -> z\nz[s] = sum[k,l](a[k,l]*exp(-(k-x[s])**2-(l-y[s])**2))"
    f = derive.load(derive.parse(text))
    rows, columns = torch.arange(300.0)[:, None], torch.arange(250.0)
    a = torch.rand(300, 250, generator=torch.Generator().manual_seed(0))
    points = torch.tensor([250.25, 20.5, 99.75]), torch.tensor([30.25, 199.5, 110.0])

    def written(x, y):
        offsets = rows.double() - x[:, None, None], columns.double() - y[:, None, None]
        return (a * (-offsets[0].square() - offsets[1].square()).exp()).sum((1, 2))

    for wanted, found in zip(
        torch.autograd.functional.vjp(written, tuple(t.double() for t in points), torch.ones(3))[1],
        torch.autograd.functional.vjp(lambda x, y: f(a, x, y), points, torch.ones(3))[1],
        strict=True,
    ):
        assert (found - wanted).abs().max() < 8 * EPS * wanted.abs().max()


@pytest.mark.parametrize("sizes", [(0, 5, 3), (5, 0, 3), (5, 4, 0), (0, 0, 2)])
def test_axes_without_positions(sizes):
    i, j, k = sizes
    X, Y = (t.requires_grad_() for t in points((i, k), (j, k)))
    y = derive.load(derive.parse(SQUARED))(X, Y)
    assert y.shape == (i, j)
    assert not y.any()
    for g in torch.autograd.grad(y, (X, Y), torch.ones_like(y)):
        assert not g.isnan().any()


def test_the_distance_of_a_point_from_itself_is_no_less_than_0():
    text = "op f(X[i,d]) -> y\ny[i,j] = sum[d]((X[i,d]-X[j,d])**2)"
    X = points((40, 9))[0].float() + 1000
    y = derive.load(derive.parse(text))(X).diagonal()
    assert (y >= 0).all()
    assert y.max() <= 64 * EPS * 9


@pytest.mark.parametrize("root", ("sqrt(D[i,j] + 0.001)", "log(D[i,j] + 0.001)"))
def test_a_weighted_distance_under_a_root_does_not_round_below_0(root):
    """Weights of any sign allow no clamp: the differences are formed."""
    text = f"op f(X[i,d], w[d]) -> y\nD[i,j] = sum[d](w[d]*(X[i,d]-X[j,d])**2)\ny[i,j] = {root}"
    X = (points((40, 9))[0] * 100).float().requires_grad_()
    w = torch.linspace(0.5, 2, 9, requires_grad=True)

    def by_hand(X: Any, w: Any) -> Any:
        return getattr(torch, root[: root.index("(")])(((X[:, None] - X).square() @ w) + 0.001)

    ours = derivatives(derive.load(derive.parse(text)), [X, w])
    theirs = derivatives(
        by_hand, [X.detach().double().requires_grad_(), w.detach().double().requires_grad_()]
    )
    for one, other in zip(ours[:3], theirs[:3], strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-3)


def test_a_factor_that_overflows_beside_a_square_that_is_0():
    """inf - inf in the matrix product; the difference is formed, and its axes are warned of."""
    text = "op f(x[n,d], mu[k,d], v[k,d]) -> y\ny[n,k] = sum[d]((x[n,d]-mu[k,d])**2*exp(v[k,d]))"
    op = derive.parse(text)
    x, v = (t.float().requires_grad_() for t in (points((n, d))[0] + 100, torch.full((n, d), 85.0)))
    mu = x.detach().clone().requires_grad_()
    y = derive.load(op)(x, mu, v).diagonal()
    assert (y == 0).all()
    for g in torch.autograd.grad(y.sum(), (x, mu, v)):
        assert (g == 0).all()
    assert {str(w.size) for w in derive.derivation(op).cost.wide} == {"n·k·d"}


def test_a_factor_that_is_the_maximum_of_nothing():
    text = """
    op f(X[i,d], Y[j,d], z[t,d]) -> y
    m[j,d] = amax[t | t<j](z[t,d])
    y[i,j] = sum[d]((X[i,d]-Y[j,d])**2*m[j,d])
    """
    X, Y = points((n, d), (2, d))
    y = derive.load(derive.parse(text))(X, Y, points((3, d))[0])
    assert (y[:, 0] == -torch.inf).all()
    assert y[:, 1].isfinite().all()


@pytest.mark.parametrize(
    "text",
    [
        "op f(a[i,d]: int, b[j,d]: int, w[i]) -> y\ny[i,j] = w[i]*sum[d]((a[i,d]-b[j,d])**2)",
        "y[i,j,d] = w[i,j]*(X[i,d] - Y[j,d])",
        "y[i,j] = sum[d](A[i,j,d]*(X[i,d] - Y[j,d]))",
        "y[i,d] = sum[j](w[i,j]*(X[i,d] + Y[j,d]))",
        "y[i,j] = sum[d](X[i,d]*Y[j,d])",
    ],
    ids=["integers", "nothing is summed", "beside all axes", "a sum", "a product"],
)
def test_what_has_no_centre(text):
    assert "centre" not in derive.source(derive.parse(text))


def test_the_formulas_do_not_speak_of_it():
    text = derive.source(derive.parse(SQUARED))
    told, code = text.split('"""', 2)[1:]
    assert "centre" in code
    assert "centre" not in told
    assert "2·Σⱼ G[i,j]·(X[i,d] − Y[j,d])" in told
