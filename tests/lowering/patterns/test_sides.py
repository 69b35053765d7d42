"""Sums over the elements on one side of each bound sort once, for any order and axes."""

import re

import pytest
import torch
from kit.each import each_row, told
from kit.lines import defined
from torch.autograd import forward_ad

import derive

INF = torch.inf


def softmax(mask, h):
    return torch.where(mask, torch.where(mask, h, torch.finfo(h.dtype).min).softmax(-1), 0)


# The functions in the code of each.
SIDES = told(
    """\
op f(x[l], t[k], v[l,d]) -> y; y[d,k] = sum[l | x[l] <= t[k]](v[l,d])
    sum
op f(x[n,l], t[n,k], v[l,d]) -> y; y[n,k,d] = sum[l | x[n,l] > t[n,k]](v[l,d]**2)
    sum
op f(x[l], t[i,j], v[l,d]) -> y; \
  y[d,i,j] = sum[l | x[l] + 1 < t[i,j] and x[l] > 0 and t[i,j] > 0](v[l,d])
    sum
op f(x[l], t[n,k], v[n,l]) -> y; y[k,n] = sum[l | t[n,k] <= x[l]](v[n,l])
    sum
op f(x[l], t[k], v[l,d], w[k,d]) -> y; y[k] = sum[l,d | x[l] < t[k]](v[l,d]*w[k,d])
    sum
op f(x[*b,l], t[*b,k], v[*b,l]) -> y; y[*b,k] = sum[l | x[*b,l] < t[*b,k]](v[*b,l])
    sum
op f(x[n], v[n]) -> y; y = sum[n,m | x[n] < x[m]](v[n]*v[m]**2)
    sum
op f(x[n], v[n], e[n]: bool) -> y; y = sum[n,m | x[n] < x[m] and e[m]](v[n]**2 - 3*v[m])
    sum count
op f(x[n,l], t[n,k], v[k]) -> y; y[n] = sum[l,k | x[n,l] < t[n,k]](v[k]**2)/1000
    count
op f(x[n,c], v[n,c], e[n]: bool) -> y; y[n,c] = v[n,c]*sum[m]([x[m,c] >= x[n,c]]*[e[m]])
    sum
op f(x[n], v[n]) -> y; y[n] = where(any[m](x[m] > x[n]), v[n]**2, v[n])
    any
op f(P[l]: int, v[l]; size(j)=100) -> y; y[j] = sum[l | P[l] > j](v[l])
    sum
op f(h[n], x[n], e[n]: bool) -> y; r[n] = logsumexp[m | x[m] >= x[n]](h[m]); \
  y = sum[n | e[n]](r[n] - h[n])
    logsumexp mean mean_adjoint
op f(h[n], x[n], v[n], e[n]: bool) -> y; mask[n,m] = x[m] <= x[n] and e[m]; \
  r[n] = logsumexp[m](where(mask[n,m], h[m], -inf)); \
  y = sum[n | e[n]](r[n]*sum[m | mask[n,m]](v[m]))
    logsumexp mean mean_adjoint sum
op f(h[b,n], x[n], v[n]: bool) -> y; r[b,n] = logsumexp[m | x[m] <= x[n] and v[m]](h[b,m]); \
  y[b] = sum[n | v[n]](r[b,n])
    logsumexp mean mean_adjoint
op f(h[n], x[n], v[n,d]) -> y; \
  s[n,d] = sum[m | x[m] < x[n]](softmax[m | x[m] < x[n]](h[m])*v[m,d]); y[n,d] = s[n,d]**2
    logsumexp mean mean_adjoint
op f(h[l], x[l], t[k], w[k]) -> y; y[l] = sum[k](w[k]*softmax[l | x[l] >= t[k]](h[l]))
    logsumexp mean mean_adjoint
"""
)
SIZES = {"n": 140, "l": 180, "k": 140, "d": 2, "i": 9, "j": 11, "b": 3, "c": 4}
"""With too many pairs for a mask."""
SHORT = {"n": 7, "l": 6, "k": 5, "d": 2, "i": 3, "j": 4, "b": 3, "c": 4}


def given(op, sizes):
    """Whole numbers, so that many are equal, where values are compared."""
    torch.manual_seed(0)
    for t in op.inputs:
        shape = [n for i in t.axes for n in ((2, 3) if i.group else (sizes[i.name],))]
        x = torch.randn(shape, dtype=torch.float64)
        match t.kind, t.name:
            case "bool", _:
                yield x > -0.5
            case "int", _:
                yield (x * 9).long()
            case _, "x" | "t":
                yield (x * 5).round()
            case _:
                yield (2 * x).requires_grad_()


def derivatives(f, own, order=2):
    """Values, gradients and further gradients with fixed weights."""
    floats, found = [x for x in own if x.requires_grad], [f(*own)]
    for _ in range(order):
        terms = [y for y in found if y.requires_grad]
        total = sum((y * torch.linspace(-1, 2, y.numel()).view(y.shape)).sin().sum() for y in terms)
        found += torch.autograd.grad(total, floats, create_graph=True)
    return found


@pytest.mark.parametrize("sizes", [SIZES, SHORT], ids=["sorted", "few pairs"])
@each_row("text, names", SIDES)
def test_one_side_of_a_bound_is_a_scan_in_the_order_of_the_elements(text, names, sizes):
    op = derive.parse(text)
    code = derive.source(op, standalone=False)
    found = re.findall(r"rt\.(\w+)_where(?:_(adjoint))?\(", code)
    assert {"_".join(filter(None, parts)) for parts in found} == set(names.split())
    f = derive.load(op)
    own = list(given(op, sizes))
    torch.testing.assert_close(derivatives(f, own), derivatives(defined(op), own))


@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("count", [90, 3])
def test_nan_is_on_no_side_and_infinity_is(op, count):
    f = derive.load(
        derive.parse(f"op f(x[l], t[k], v[l]) -> y\ny[k] = sum[l | x[l] {op} t[k]](v[l])")
    )
    g = derive.load(derive.parse(f"op f(x[l], t[k]) -> y\ny[k] = sum[l]([x[l] {op} t[k]])"))
    x = torch.tensor([0.0, torch.nan, INF, -INF, 1.0, -1.0]).repeat(count)
    t, v = x[: 6 * count - 5].flip(0), torch.arange(6.0 * count)
    compared = {"<": torch.lt, "<=": torch.le, ">": torch.gt, ">=": torch.ge}[op]
    mask = compared(x, t[:, None])
    torch.testing.assert_close(f(x, t, v), torch.where(mask, v, 0).sum(-1))
    torch.testing.assert_close(g(x, t), mask.sum(-1))


def test_shares_that_another_summed_index_has():
    op = derive.parse(
        "op f(v[k], x[j], h[i]) -> y\ny[k,i,j] = softmax[i | x[j] > h[i]](log1p(v[k])*h[i])"
    )
    v, x, h = (torch.rand(n, dtype=torch.float64, requires_grad=n != 40) for n in (3, 40, 50))

    both = (derivatives(f, (v, x, h))[:3] for f in (derive.load(op), defined(op)))
    torch.testing.assert_close(*both)


def test_counts_under_conditions_are_exact():
    text = "op f(x[l], t[k], e[l]: bool) -> y\ny[k] = sum[l]([x[l] < t[k]]*[e[l]])"
    code = derive.source(derive.parse(text), standalone=False)
    assert 'rt.sum_where(e.to(torch.int64), x, "<", t)' in code
    f = derive.load(derive.parse(text + " + sum[l | e[l] and x[l] > t[k]](l)*x[0]"))
    x, t = torch.arange(200.0), torch.arange(100.0)
    e, at = x % 3 > 0, torch.arange(200)
    want = ((x < t[:, None]) & e).sum(-1) + (((x > t[:, None]) & e) * at).sum(-1) * x[0]
    torch.testing.assert_close(f(x, t, e), want)


@pytest.mark.parametrize("bounds", [(), (3,), (2, 3), (0, 3)])
def test_bounds_may_have_any_axes(bounds):
    rows, many = torch.arange(5.0), range(1, 1 + len(bounds))
    x = torch.arange(35.0).reshape(5, 7) % 4
    t = torch.full((5, *bounds), 2.0) - rows.view(5, *(1 for _ in many))
    f = derive.load(derive.parse(
        "op f(x[*b,l], t[*b,*p]) -> y\ny[*b,*p] = logsumexp[l | x[*b,l] >= t[*b,*p]](x[*b,l])"
    ))  # fmt: skip
    inside = x[(slice(None), *(None for _ in many))]
    want = torch.where(inside >= t.unsqueeze(-1), inside, -INF).logsumexp(-1)
    torch.testing.assert_close(f(x, t), want)


def test_infinite_summands_count_on_their_side_alone():
    f = derive.load(derive.parse("op f(x[l], t[k], v[l]) -> y\ny[k] = sum[l | x[l] < t[k]](v[l])"))
    x, t = torch.arange(200.0), torch.arange(100.0)
    v = torch.where(x == 40, INF, x)
    torch.testing.assert_close(f(x, t, v), torch.where(x < t[:, None], v, 0).sum(-1))


def test_rows_without_an_element_have_no_share():
    text = (
        "op f(h[n], x[n], v[n]: bool) -> y\n"
        "r[n] = logsumexp[m | x[m] < x[n] and v[m]](h[m])\n"
        "y[n] = where(r[n] == -inf, 0, h[n] - r[n])"
    )
    op = derive.parse(text)
    h = torch.randn(150, dtype=torch.float64, requires_grad=True)
    x, v = (torch.arange(150).roll(7) // 3).double(), torch.arange(150) % 4 > 0

    both = (derivatives(f, (h, x, v)) for f in (derive.load(op), defined(op)))
    torch.testing.assert_close(*both)


MEANS = (
    "op f(h[l], x[l], t[k], v[l]) -> y\n"
    "y[k] = sum[l | x[l] {0} t[k]](v[l]*softmax[l | x[l] {0} t[k]](h[l]))",
    "op f(h[l], x[l], t[k], w[k]) -> y\ny[l] = sum[k](w[k]*softmax[l | x[l] {0} t[k]](h[l]))",
)


@pytest.mark.parametrize("op", ["<", ">="])
@pytest.mark.parametrize("sizes", [SIZES, SHORT], ids=["sorted", "few pairs"])
@pytest.mark.parametrize("text", MEANS, ids=["mean", "adjoint"])
def test_sides_of_nan_and_infinite_exponents_have_finite_gradients(text, sizes, op):
    spec = derive.parse(text.format(op))
    f, (h, x, t, w) = derive.load(spec), given(spec, sizes)
    t[1::5], t[2::7], x[1::4], x[3::9] = torch.nan, INF, torch.nan, -INF
    with torch.no_grad():
        h[(x < 0) if op == "<" else (x > 0)] = -INF
    mask = {"<": torch.lt, ">=": torch.ge}[op](x, t[:, None])

    def plain(h, x, t, w):
        shares = softmax(mask, h)
        return shares @ w if len(w) == len(x) else w @ shares

    torch.testing.assert_close(*(derivatives(g, (h, x, t, w), 3) for g in (f, plain)))


def test_bools_are_compared():
    text = "op f(a[l]: bool, b[k]: bool, v[l]) -> y\ny[k] = sum[l | [a[l]] < [b[k]]](v[l])"
    a, b, v = torch.arange(200) % 3 > 0, torch.arange(100) % 2 > 0, torch.arange(200.0)
    want = torch.where(~a & b[:, None], v, 0).sum(-1)
    torch.testing.assert_close(derive.load(derive.parse(text))(a, b, v), want)


@pytest.mark.filterwarnings("ignore:.*value tensor is non-contiguous:UserWarning")
@each_row("text, names", SIDES)
def test_tangents_and_batches(text, names):
    op = derive.parse(text)
    plain = defined(op)
    f, own = derive.load(op), [x.detach() for x in given(op, SIZES)]
    along = [torch.ones_like(x) if x.is_floating_point() else x for x in own]
    want = plain(*own)
    rows = torch.func.vmap(f)(*(torch.stack((x, x)) for x in own))
    torch.testing.assert_close(rows, torch.stack((want, want)))
    with forward_ad.dual_level():
        have, want = (
            forward_ad.unpack_dual(
                g(
                    *(
                        forward_ad.make_dual(x, d) if x.is_floating_point() else x
                        for x, d in zip(own, along, strict=True)
                    )
                )
            ).tangent
            for g in (f, plain)
        )
    torch.testing.assert_close(have, want)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_code_for_a_compiler_does_not_depend_on_the_number_of_pairs():
    f = derive.load(derive.parse("op f(x[l], v[l]) -> y\ny[l] = v[l]*sum[m | x[m] < x[l]](v[m])"))
    compiled = torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=True)
    for n in (50, 5, 200):
        x, v = torch.randn(n), torch.randn(n)
        torch.testing.assert_close(compiled(x, v), f(x, v))


@pytest.mark.parametrize(
    "text",
    [
        "op f(x[l], v[l]; size(k)=5) -> y\ny[k] = sum[l | x[l] < k](v[l])",
        "op f(x[l], t[k], v[k,l]) -> y\ny[k] = sum[l | x[l] < t[k]](v[k,l])",
        "op f(x[l,k], t[k], v[l]) -> y\ny[k] = sum[l | x[l,k] < t[k]](v[l])",
    ],
    ids=["few bounds", "a summand for each bound", "elements for each bound"],
)
def test_a_mask_where_it_takes_less_time(text):
    code = derive.source(derive.parse(text), standalone=False)
    assert not re.search(r"rt\.\w+_where", code)
