"""Products of matrices in the call that adds them: its parts, its form, and what it computes."""

import math
from itertools import product

import pytest
import torch
from kit import texts
from kit.each import each_row
from kit.torch_code import torch_code

import derive
from derive.algebra.expr import Size
from derive.algebra.poly import atom, constant
from derive.program.gemm_fusion import product_added
from derive.program.torch_ir import Binary, Name, text

A, B, C, beta, alpha, x = map(Name, ("A", "B", "C", "beta", "alpha", "x"))
AB = torch_code("A @ B")
NUMBERS = ("beta", "alpha")
n, m = atom(Size("n")), atom(Size("m"))


def times(factor, code):
    return Binary("*", factor, code)


@pytest.mark.parametrize(
    ("code", "want"),
    [
        (torch_code("C + A @ B"), "torch.addmm(C, A, B)"),
        (torch_code("A @ B + C"), "torch.addmm(C, A, B)"),
        (torch_code("C + alpha * (A @ B)"), "rt.addmm(C, A, B, 1, alpha)"),
        (torch_code("beta * C + A @ B"), "rt.addmm(C, A, B, beta, 1)"),
        (torch_code("beta * C + 2 * (A @ B).to(wide)"), "rt.addmm(C, A, B, beta, 2)"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_it_is_one_call(code, want):
    found = product_added(code, NUMBERS)
    assert found is not None and text(found.call(C, A, B, 2)) == want


@each_row(
    "code",
    [
        torch_code("C - A @ B"),
        torch_code("C + (A @ B).to(wide)"),
        torch_code("C + x * (A @ B)"),
        torch_code("C + (A @ B).exp()"),
        torch_code("C + -(A @ B)"),
        AB,
    ],
)
def test_what_has_another_form_is_none(code):
    assert product_added(code, NUMBERS) is None


def test_it_is_written_over_a_tensor_in_its_own_dtype_alone():
    plain, scaled = (product_added(Binary("+", C, p), NUMBERS) for p in (AB, times(alpha, AB)))
    assert text(plain.over(C, A, B, 3)) == "C.baddbmm_(A, B)" and scaled.over(C, A, B, 3) is None


def test_matrices_stand_in_no_other_axes_than_one_they_share():
    found = product_added(torch_code("C + A @ B"), NUMBERS)
    assert found.fits((n, m), (m, n)) and found.fits((n, n, m), (n, m, n))
    assert not found.fits((m,), (m, n)) and not found.fits((n, n, m), (m, n))
    assert not found.fits((constant(1), n, m), (n, m, n)) and not found.fits((n,) * 4, (n,) * 4)
    assert not found.fits(None, (m, n))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
def test_the_call_is_the_sum(batch, dtype):
    torch.manual_seed(0)
    a, b = (torch.randn(*batch, *s, dtype=dtype) for s in ((4, 5), (5, 2)))
    wide = torch.promote_types(dtype, torch.float32)
    for shape, factors in product(((*batch, 4, 2), (2,), ()), ((2.0, 0.5), (0.0, 1.0), (1.0, 0.0))):
        c = torch.randn(shape, dtype=wide)
        wanted = factors[0] * c + factors[1] * (a @ b).to(wide)
        torch.testing.assert_close(texts.rt.addmm(c, a, b, *factors), wanted)


def test_nothing_times_0_is_left_out():
    for dtype in (torch.float64, torch.float32):
        c, a, b = (torch.ones(2, 2, dtype=dtype) for _ in range(3))
        nan = torch.full((2, 2), math.nan, dtype=dtype)
        assert texts.rt.addmm(nan, a, b, 0.0, 1.0).isnan().all()
        assert texts.rt.addmm(c, nan, b, 1.0, 0.0).isnan().all()


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ("y[i,j] = sum[k](a[i,k]*b[k,j]) + c[j]", "torch.addmm(c, a, b)"),
        ("y[i,j] = sum[k](a[i,k]*b[k,j]) + sum[k](c[i,k]*d[k,j])", "reuse.addmm(a @ b, c, d)"),
        (
            "op f(a[n,i,k], b[n,k,j], c[n,i,j]; s=2) -> y\n"
            "y[n,i,j] = s*sum[k](a[n,i,k]*b[n,k,j]) + c[n,i,j]",
            "rt.addmm(c, a, b, 1, s)",
        ),
    ],
)
def test_a_forward_without_a_graph_has_it(spec, code):
    f = derive.load(derive.parse(spec))
    assert code in texts.source(derive.parse(spec))
    torch.manual_seed(0)
    tensors = [torch.randn(3, 3, 3) if "[n," in spec else torch.randn(3, 3) for _ in range(4)]
    given = tensors[: 4 if "d[k,j]" in spec else 3]
    if "c[j]" in spec:
        given[2] = given[2][0]
    with torch.no_grad():
        value = f(*given)
    own = f(*(t.clone().requires_grad_() for t in given))
    torch.testing.assert_close(value, own.detach())
