"""Each check of the table passes right code, and catches code that is wrong in what it states."""

from importlib.util import find_spec

import pytest
import torch
from kit.case_samples import generated_text
from kit.unwritten import source_without_reuse

import derive
from derive import catalog
from derive.check.call_checks import _batch_differences
from derive.check.checks import ALL, GRADIENTS, QUICK, checks_of, load_source
from derive.check.tracing import ONNX

CUBE = "op cube(x[n]) -> y; y[n] = x[n]**3"
PLANE = "op plane(x[n,m]) -> y; y[n,m] = x[n,m]**3"
PRODUCT = "op product(A[i,k], B[k,j]) -> C; C[i,j] = sum[k](A[i,k]*B[k,j])"
TWO = "op two(x[n]) -> y, z\ny[n] = x[n]**2\nz[n] = x[n]**3"
THROUGH = "op through(x[n], w[n]) -> y; y[n] = x[n]*w[n] + detach(floor(x[n]))*x[n]"
DISTANCE = "op distance(x[i,d], y[j,d]; stable) -> D; D[i,j] = sum[d]((x[i,d] - y[j,d])**2)"
LOGISTIC = "op f(x[n]) -> y; y[n] = logsigmoid(x[n])*x[n]"

NAMES = [column.name for column in ALL]
HAS_ONNX = all(find_spec(name) is not None for name in ONNX)


def _slow(name: str):
    return pytest.param(name, marks=pytest.mark.long)


def found(text: str, source: str, *names: str):
    op = derive.parse(text)
    columns = [column for column in ALL if column.name in names]
    return list(checks_of(op, load_source(op, source), columns=columns))


WRITTEN = (
    "op written(x[i,j], w[i,j]) -> y; u[i,j] = 1 - x[i,j]; y[i,j] = exp(u[i,j])*w[i,j] + u[i,j]"
)
READS = "    x, G = _widened(*ctx.saved_tensors, G)"
FORWARD = "return (x**3).to(dtype)"
CALLS = "    return _apply(_{}"
WRONG = {
    "value": (PRODUCT, "return A @ B", "return 2 * (A @ B)"),
    "gradient": (CUBE, "3 * G", "3.002 * G"),
    "reference": (THROUGH, "grad_w = G * x", "grad_w = 2 * G * x"),
    "gradcheck": (CUBE, "3 * G", "3.002 * G"),
    "gradgradcheck": (CUBE, READS, f"{READS}\n        x = x.detach()"),
    "subclass": (WRITTEN, "    u = 1 - x  # u[i,j]\n",
                 "    u = 1 - x + (reuse is torch.ops.aten)\n"),
    "forward": (CUBE, "return function.forward(*args)", "return 2 * function.forward(*args)"),
    "vmap": (CUBE, "3 * G", "(3.0 if x.sum().item() < 9 else 3.0) * G"),
    "batched": (CUBE, "3 * G", "3 * G.flatten()"),
    "strides": (PLANE, "x.square()", "x.as_strided(x.shape, (x.shape[1], 1), 0).square()"),
    "subsets": (PRODUCT, "ctx.needs_input_grad[0]:", "all(ctx.needs_input_grad):"),
    "missing": (TWO, "2 * G_y", "2 * G_y * (G_z != 0).any()"),
    "twice": (PRODUCT, CALLS.format("Product"),
              f"    B = B.detach() if A is B else B\n{CALLS.format('Product')}"),
    "device": (CUBE, "(x**3)", "(x**3 + torch.zeros(x.shape, dtype=x.dtype))"),
    "unchanged": (CUBE, "grad_x = ", "G.mul_(1); grad_x = "),
    "in-place": (CUBE, FORWARD, "return (x**3).to(dtype)[:]"),
    "saved": (CUBE, "save_for_backward(x)", "save_for_backward(x, x + 1, x + 2)"),
    "float32": (CUBE, FORWARD, "return x**3 + dtype.itemsize"),
    "float32-offset": (DISTANCE, "(x.unsqueeze(2) - y.mT).square().sum(1)",
                       "(x.square().sum(1, True) + y.square().sum(1) - 2 * x @ y.mT)"),
    "float32-saturated": (LOGISTIC, "x * torch.nn.functional.logsigmoid(x)",
                          "x * torch.log(1 - (-x).sigmoid())"),
    "bfloat16": (CUBE, "x = _widened(x)", "x = x / x.numel() * 1.07 * x.numel()"),
    "float16": (CUBE, "(x**3)", "((x * 50).half() ** 3 / 125000)"),
    "mixed": (PRODUCT, "torch.promote_types(dtype, other)", "other"),
    "autocast": (PRODUCT, "G = _cast(low, *ctx.saved_tensors, G)", "_ = *ctx.saved_tensors, G"),
    "meta": (CUBE, "3 * G", "(3.0 if x.sum().item() < 9 else 3.0) * G"),
    "make_fx": (CUBE, "3 * G", "torch.tensor(3.0 * x.tolist()[0]) / x[0] * G"),
    "compile": (CUBE, CALLS.format("Cube"),
                f"    torch._dynamo.graph_break()\n{CALLS.format('Cube')}"),
    "export": (CUBE, "(x**3)", "(x**3 if x.sum().item() < 9 else x)"),
    "onnx": (CUBE, "(x**3)", "(x**3 if torch.onnx.is_in_onnx_export() else x)"),
    "dtensor": (CUBE, "(x**3)", "(x**3 + torch.zeros(x.shape, dtype=x.dtype))"),
}  # fmt: skip
"""A text, and the edit of its code that a check catches."""


def test_there_is_wrong_code_for_each_check():
    assert list(WRONG) == NAMES == list(dict.fromkeys(NAMES))
    assert set(GRADIENTS) < set(QUICK) < set(ALL)


@pytest.mark.parametrize("name", [_slow(name) if name == "compile" else name for name in NAMES])
def test_wrong_code_is_caught_by_its_check(name):
    if name == "onnx" and not HAS_ONNX:
        pytest.skip("not installed")
    text, old, new = WRONG[name]
    op = derive.parse(text)
    right = derive.source(op) if name == "subclass" else source_without_reuse(op, standalone=True)
    assert old in right, right
    passed = found(text, right, name)
    assert not [check for check in passed if not check.ok]
    assert any(not check.reason for check in passed)
    assert any(not check.ok for check in found(text, right.replace(old, new), name))


@pytest.mark.parametrize("name", ["linear", "transpose", _slow("huber_loss")])
def test_all_checks_pass_or_say_why_they_do_not_apply(name):
    op = catalog.find(name)
    made = list(checks_of(op, load_source(op, generated_text(name)), columns=ALL))
    assert {check.check for check in made} == set(NAMES)
    assert not [check for check in made if not check.ok]
    assert all(check.ok for check in made if check.reason)


@pytest.mark.long
@pytest.mark.parametrize("name", catalog.names())
def test_all_checks_pass_on_the_catalog(name):
    op = catalog.find(name)
    made = checks_of(op, load_source(op, generated_text(name)), columns=ALL)
    assert not [check for check in made if not check.ok]


def test_reasons_are_named():
    checks = found(
        CUBE, derive.source(derive.parse(CUBE)), *"missing subsets twice mixed gradient".split()
    )
    reasons = {c.check: c.reason for c in checks}
    assert reasons["missing"] == "one output has a gradient"
    assert reasons["subsets"] == "one input has a gradient"
    assert reasons["twice"] == reasons["mixed"] == "one input is of floating point"
    assert not reasons["gradient"]
    op = derive.parse("y[n,k] = sum[i,j](a[n,i]*w[k,i,j]*b[n,j])")
    (check, *_) = found(str(op), derive.source(op), "batched")
    assert check.reason == "autograd's older vmap has no rule for einsum"
    integer = "op f(x[n]) -> k; k = argmax[n](x[n])"
    (check,) = found(integer, derive.source(derive.parse(integer)), "gradcheck")
    assert check.reason == "no output has a gradient"


def test_a_batch_of_gradients_that_is_none_counts_as_zeros():
    one, zero = torch.tensor(1.5), torch.tensor(0.0)
    assert _batch_differences([None], [(one,)], 0.0)
    assert not _batch_differences([None], [(zero,), (None,)], 0.0)
    assert _batch_differences([torch.stack((zero, one))], [(None,), (None,)], 0.0)
