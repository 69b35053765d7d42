"""Verification passes right code and catches code that is wrong in one place."""

from __future__ import annotations

import numpy as np
import pytest

import derive
from derive import oracle
from derive.samples import cases, sample

pytest.importorskip("torch")

from derive.verify import checks_of, gradients_of, load_source, verify_source

SOFTMAX = """
op softmax(A[*p,k,*q]; dim=axis(k)) -> S
S[*p,k,*q] = exp(A[*p,k,*q]) / sum[l](exp(A[*p,l,*q]))
"""
NLL = """
op nll(x[n,c], t[n], w[c]=1; ignore_index=-100, reduction=mean|none) -> mean: m | none: l
l[n] = where(t[n]==ignore_index, 0, -w[t[n]]*x[n,t[n]])
m = sum[n](l[n]) / sum[n | t[n] != ignore_index](w[t[n]])
"""
PRODUCT = "op product(A[i,k], B[k,j]) -> C; C[i,j] = sum[k](A[i,k]*B[k,j])"
CUBE = "op cube(x[n]) -> y; y[n] = x[n]**3"
CONV = "op conv(x[n,u], w[k]; s=1) -> y; y[n,t] = sum[k](x[n,s*t+k]*w[k])"


def failed(text: str, source: str) -> set[str]:
    op = derive.parse(text)
    return {c.check for c in checks_of(op, load_source(op, source)) if not c.ok}


def edited(text: str, old: str, new: str) -> str:
    source = derive.source(derive.parse(text))
    assert old in source, source
    return source.replace(old, new)


@pytest.mark.parametrize("text", [SOFTMAX, NLL, PRODUCT, CUBE, CONV])
def test_generated_code_passes(text):
    op = derive.parse(text)
    source = derive.source(op)
    assert failed(text, source) == set()
    verify_source(op, source)


DETACHED = "op through(x[n], w[n]) -> y; y[n] = x[n]*w[n] + detach(floor(x[n]) - x[n])**2*x[n]"


def test_what_is_detached_is_no_difference():
    op = derive.parse(DETACHED)
    source = derive.source(op)
    assert failed(DETACHED, source) == set()
    verify_source(op, source)
    wrong = edited(DETACHED, "grad_w = G * x", "grad_w = 2 * G * x")
    assert {"gradient", "reference"} <= failed(DETACHED, wrong)


def test_a_wrong_factor_is_caught():
    source = edited(CUBE, "3 *", "3.002 *")
    op = derive.parse(CUBE)
    assert {"gradient", "gradcheck"} <= failed(CUBE, source)
    with pytest.raises(derive.VerificationError, match="cube: gradient differs"):
        verify_source(op, source)


def test_a_wrong_value_is_caught():
    source = edited(PRODUCT, "return A @ B", "return 2 * (A @ B)")
    assert "value" in failed(PRODUCT, source)
    with pytest.raises(derive.VerificationError, match="value"):
        verify_source(derive.parse(PRODUCT), source)


def test_a_missing_term_is_caught():
    source = edited(SOFTMAX, " - (G * S).sum(dim, keepdim=True)", "")
    assert {"gradient", "gradcheck"} <= failed(SOFTMAX, source)


def test_a_detached_backward_is_caught_by_the_second_derivative():
    source = edited(CUBE, "(x,) = ctx.saved_tensors", "(x,) = ctx.saved_tensors; x = x.detach()")
    assert "gradient" not in failed(CUBE, source)
    assert "gradgradcheck" in failed(CUBE, source)
    with pytest.raises(derive.VerificationError, match="gradgradcheck"):
        verify_source(derive.parse(CUBE), source)


def test_writing_to_a_cotangent_is_caught():
    source = edited(CUBE, "grad_x = ", "G.mul_(1); grad_x = ")
    assert "unchanged" in failed(CUBE, source)


def test_code_that_fails_is_a_finding():
    source = edited(CUBE, "grad_x = ", "grad_x = missing + ")
    op = derive.parse(CUBE)
    found = [c for c in gradients_of(op, load_source(op, source)) if not c.ok]
    assert any("NameError" in c.detail for c in found)


def test_a_forward_in_the_wrong_type_is_caught():
    source = edited(CUBE, "return _cube_forward(x)", "return _cube_forward(x.double())")
    assert "float32" in failed(CUBE, source)


def test_samples_have_different_extents_and_hit_the_guard():
    op = derive.parse(NLL)
    for case in cases(op):
        made = sample(op, case)
        x, t = made.tensors["x"], made.tensors["t"]
        assert x.shape[0] != x.shape[1]
        assert (t == made.parameters["ignore_index"]).any()
        assert (made.tensors["w"] is None) == (not case.given)


def test_samples_reach_each_range():
    """log wants positive values, asin values below 1, floor none at its steps."""
    for text in ("y[n] = log(x[n])", "y[n] = asin(x[n])", "y[n] = lgamma(x[n])"):
        op = derive.parse(text)
        made = sample(op, next(cases(op)))
        assert np.isfinite(made.outputs["y"]).all()


def test_samples_of_offsets_stay_in_bounds():
    op = derive.parse("y[n,d] = sum[k](x[off[n]+k,d]*w[k])")
    made = sample(op, next(cases(op)))
    x, off, w = (made.tensors[name] for name in ("x", "off", "w"))
    assert (off + len(w) <= len(x)).all()
    want = oracle.outputs(op, made.tensors, made.parameters)["y"]
    assert np.array_equal(made.outputs["y"], want)


def test_cases_vary_everything():
    op = derive.parse("op f(A[*p,k,*q]; dim=axis(k), keepdim=keep(k), c=2.0) -> y; "
                      "y[*p,*q] = c*sum[k](A[*p,k,*q])")  # fmt: skip
    assert {c.label for c in cases(op)} == {
        "typical",
        "no axes in groups",
        "two axes in the first group",
        "two axes in the other groups",
        "default parameters",
        "axes from the end",
        "axes kept",
    }
