"""What code is said to cost, held against what torch is seen to do.

Passes are counted by a TorchDispatchMode, contractions by torch's own FlopCounterMode, saved bytes
by saved_tensors_hooks, and the largest intermediate is the largest tensor that an operation makes
and nobody is given. None of these knows the formulas.
"""

import doctest
from typing import Any

import pytest
import torch
from kit.calls import unknown_calls
from kit.unwritten import source_without_reuse
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

import derive
from derive import api, catalog, pipeline
from derive.algebra.poly import add, constant, mul, scale
from derive.check.checks import load_source
from derive.cost.size_formula import Amount, covers, size_of
from derive.module.name_mangling import coded
from derive.reports import result

BATCH_NORM = """op f(x[i,j], gain[j], bias[j]; eps=1e-5) -> y
mu[j]     = mean[i](x[i,j])
var[j]    = sum[i]((x[i,j] - mu[j])**2) / (size(i) - 1)
xhat[i,j] = (x[i,j] - mu[j]) * (var[j] + eps)**(-1/2)
y[i,j]    = gain[j]*xhat[i,j] + bias[j]"""
ATTENTION = """op f(Q[b,t,d], K[b,s,d], V[b,s,e]) -> Y
P[b,t,s] = softmax[s | s <= t](sum[d](Q[b,t,d]*K[b,s,d])/5)
Y[b,t,e] = sum[s](P[b,t,s]*V[b,s,e])"""
KERNEL = ATTENTION.replace("V[b,s,e]", "V[b,s,d]").replace("Y[b,t,e]", "Y[b,t,d]")
BIASED = ATTENTION.replace("V[b,s,e])", "V[b,s,e], c[s])", 1).replace("/5)", "/5 - c[s])")
LAYERS = """op f(x[n,i], W[i,j], V[j,c], b[j]) -> y
h[n,j] = tanh(sum[i](x[n,i]*W[i,j]) + b[j])
y[n,c] = sum[j](h[n,j]*V[j,c])"""

SIZES = {letter: 11 + n for n, letter in enumerate("nijdbstecpkqvo")} | {"l": 40}
"""All different, and so close that a tensor of more axes has more elements."""

CASES = {
    "matmul": "y[i,j] = sum[k](A[i,k]*B[k,j])",
    "batched": "y[b,i,j] = sum[k](A[b,i,k]*B[b,k,j])",
    "layers": LAYERS,
    "elementwise": "y[n] = x[n]*sigmoid(x[n]) + x[n]**3",
    "outer": "y[i,j] = x[i]*z[j]",
    "softmax": "op f(A[*p,k,*q]; dim=axis(k)) -> S\nS[*p,k,*q] = softmax[k](A[*p,k,*q])",
    "batch norm": BATCH_NORM,
    "attention": KERNEL,
    "biased attention": BIASED,
    "distances": "y[i,j] = sum[d]((X[i,d]-Y[j,d])**2)",
    "kept distances": "op f(X[i,d], Y[j,d]; stable) -> y\ny[i,j] = sum[d]((X[i,d]-Y[j,d])**2)",
    "absolute distances": "y[i,j] = sum[d](abs(X[i,d]-Y[j,d]))",
    "rows": "op f(W[v,d], T[n]) -> y\ny[n,d] = W[T[n],d]",
    "running sum": "op f(x[n,k]) -> y\ny[n,k] = sum[j | j <= k](x[n,j])",
    "reciprocal": "y[n,k] = 1/x[n,k]",
    "product": "y[n] = prod[k](x[n,k])",
    "greatest": "y[n] = amax[k](x[n,k])",
    "convolution": """op f(x[n,c,l], w[o,c,k]) -> y
y[n,o,u] = sum[c,k](x[n,c,u+k]*w[o,c,k])""",
    "strided convolution": """op f(x[n,c,l], w[o,c,k]) -> y
y[n,o,u] = sum[c,k](x[n,c,2*u+k]*w[o,c,k])""",
}


aten = torch.ops.aten
NO_WORK = (aten._unsafe_view.default, aten.new_empty.default)
"""A product of many axes seen as one of two, and what torch.nn.grad has in place of an input."""


class Seen(TorchDispatchMode):
    """Operations on tensors of at least ``full`` elements, and the tensors that were made."""

    def __init__(self, full: int) -> None:
        super().__init__()
        self.full, self.passes = full, 0
        self.made: list[Any] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.is_view or func in NO_WORK:
            return result
        # What a new tensor is like is not read.
        read = () if "aten.new_" in str(func) else args
        touched = [t for t in tree_leaves((read, kwargs, result)) if isinstance(t, torch.Tensor)]
        self.passes += any(t.numel() >= self.full for t in touched)
        self.made += [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        return result

    def largest(self, results: list[Any]) -> int:
        """The most elements of a tensor that is no result, nor seen through one."""
        given = {t.untyped_storage().data_ptr() for t in results}
        left = [t for t in self.made if t.untyped_storage().data_ptr() not in given]
        return max((t.numel() for t in left), default=0)


def counter() -> FlopCounterMode:
    """torch's, which does not count the product of a matrix and a vector by itself."""
    own: dict[Any, Any] = {aten.mv: lambda a, b, out_shape=None: 2 * a[0] * a[1]}
    attention = aten._scaled_dot_product_flash_attention_for_cpu
    own[attention] = lambda q, k, v, *_, out_shape=None, **__: sdpa_flop_count(q, k, v)
    return FlopCounterMode(display=False, custom_mapping=own)


def arguments(op: Any) -> list[Any]:
    """Inputs of these sizes, a group having one axis."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for t in op.inputs:
        shape = [SIZES[i.extent] for i in t.axes]
        if t.kind == "int":
            made.append(torch.randint(11, shape, generator=generator))
        else:
            made.append((torch.rand(shape, generator=generator) + 0.5).requires_grad_())
    return made


def largest(amounts: tuple[Amount, ...], sizes: dict[str, int]) -> int:
    return max((a.at(sizes) for a in amounts), default=0)


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_formulas_are_what_torch_does(text):
    op = derive.parse(text)
    tensors = arguments(op)
    given = {"dim": 1} if op.parameters and op.parameters[0].name == "dim" else {}
    # What is counted is the code that may be differentiated.
    f, cost = load_source(op, source_without_reuse(op, standalone=True)), derive.derivation(op).cost
    sizes = cost.sizes(SIZES)
    rank = max(t.dim() for t in (*tensors, f(*tensors, **given)))
    full = min(SIZES.values()) ** rank

    f.__globals__["_unrecorded"] = lambda *tensors: False
    f.__globals__["_fuses"] = lambda *tensors: True
    saved: list[Any] = []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t)
    with hooks, counter() as flops, Seen(full) as seen:
        output = f(*tensors, **given)
    assert cost.forward.passes == seen.passes
    assert cost.forward.contracted.at(sizes) == flops.get_total_flops()
    # Statistics that are saved are no intermediates.
    assert largest(cost.forward.largest, sizes) == seen.largest([output, *saved])
    assert cost.saved_bytes.at(sizes) == sum(t.numel() * t.element_size() for t in saved)
    assert 2 * cost.own_bytes.at(sizes) <= cost.saved_bytes.at(sizes)

    leaves = [t for t in tensors if t.requires_grad]
    cotangent = torch.ones_like(output)
    with counter() as flops, Seen(full) as seen:
        gradients = torch.autograd.grad(output, leaves, cotangent, create_graph=True)
    assert cost.backward.passes == seen.passes
    assert cost.backward.contracted.at(sizes) == flops.get_total_flops()
    assert largest(cost.backward.largest, sizes) == seen.largest(list(gradients))


def test_formulas_are_written_as_users_read_them():
    cost = derive.derivation(derive.parse(CASES["matmul"])).cost
    assert str(cost.forward.flops) == "2·i·j·k"
    assert str(cost.backward.flops) == "4·i·j·k"
    assert str(cost.saved_bytes) == "4·i·k + 4·j·k"
    assert cost.forward.flops.at({"i": 2, "j": 3, "k": 5}) == 60
    assert (cost.forward.passes, cost.forward.largest) == (1, ())


def test_terms_come_by_descending_degree_and_letters_as_outputs_have_them():
    n, m = size_of("n"), size_of("m")
    p = add(constant(-7), scale(mul(n, m, m), 3), n, scale(m, -1))
    assert str(Amount(p, ("m", "n"))) == "3·m²·n − m + n − 7"
    assert str(Amount(constant(0))) == "0"
    assert Amount(p).at({"n": 2, "m": 5}) == 150 - 5 + 2 - 7


def test_one_size_covers_another_whatever_the_letters():
    n, m = size_of("n"), size_of("m")
    assert covers(mul(n, m), n)
    assert covers(add(mul(n, m), n), mul(n, m))
    assert not covers(mul(n, m), mul(n, n))
    assert not covers(mul(n, m), add(mul(n, m), constant(-1)))


def test_a_size_that_follows_from_others_has_its_letter():
    """A convolution's output has a letter of its own, whose size follows from the others."""
    op = derive.parse("op f(x[n,l], w[k]; stride=2) -> y\ny[n,t] = sum[k](x[n,stride*t+k]*w[k])")
    cost = derive.derivation(op).cost
    assert cost.sizes({"n": 3, "l": 11, "k": 4, "stride": 2})["t"] == 4
    assert "n·t·k" in str(cost.forward.flops)


def test_fixed_sizes_are_numbers_and_composite_axes_products():
    op = derive.parse(
        "op f(x[n,(t d)], w[k,t]; size(k)=3) -> y\ny[n,d,k] = sum[t](x[n,(t d)]*w[k,t])"
    )
    assert str(derive.derivation(op).cost.forward.flops) == "6·n·d·t"


NARROW = {
    "matmul": CASES["matmul"],
    "attention": ATTENTION,
    "batch norm": BATCH_NORM,
    "softmax": CASES["softmax"],
    "convolution": "y[n,o,t] = sum[c,k](x[n,c,t+k]*w[o,c,k])",
    "mask of two axes": "op f(x[n]) -> y\ny = sum[i,j | i < j](x[i]*x[j])",
    "bag of rows": "y[n,d] = sum[t](W[T[n,t],d])",
    "three factors": "y[i,j] = sum[k,l](A[i,k]*B[k,l]*C[l,j])",
    "distances": CASES["distances"],
    "scaled distances": "y[i,j] = sqrt(sum[d](w[d]**2*(X[i,d]-Y[j,d])**2))",
    "radial basis": "K[i,j] = exp(-g*sum[d]((X[i,d]-Y[j,d])**2))",
    "kept distances": CASES["kept distances"],
    "named differences": "u[i,j,d] = abs(X[i,d]-Y[j,d])\ny[i,j] = sum[d](u[i,j,d])",
}


@pytest.mark.parametrize("text", NARROW.values(), ids=NARROW)
def test_ordinary_operations_are_not_warned_of(text):
    assert derive.derivation(derive.parse(text)).cost.wide == ()


def test_an_intermediate_of_more_axes_than_anything_written_is_found():
    cost = derive.derivation(derive.parse(CASES["absolute distances"])).cost
    assert [(w.owner, str(w.size), w.axes) for w in cost.wide] == [
        ("y", "i·j·d", 2),
        ("grad_X", "i·j·d", 2),
    ]


def test_every_function_of_the_catalog_is_known_or_elementwise():
    """What is neither would be taken for elementwise, whatever it does."""
    assert unknown_calls(catalog.operations()) == set()


def test_every_catalog_operation_has_a_cost():
    for op in catalog.operations():
        for option, cost in api.costs(op):
            kept = pipeline.program_of(coded(op).operation, option).statistics
            assert set(cost.own) <= set(kept), option
            assert cost.forward.flops.value is not None


def test_the_example_in_the_documentation_runs():
    names = {"derivation": derive.derivation, "parse": derive.parse}
    assert doctest.testmod(result, extraglobs=names).failed == 0


def test_what_is_made_only_where_an_axis_has_values_is_followed():
    op = derive.parse(
        "op f(vl[l], X0[j], T[i]: int) -> e0\n"
        "e0[(l i),j] = min[d,h](softmax[h | T[i] == d](sin(X0[d])*vl[h]) + digamma(X0[d]))"
    )
    assert derive.derivation(op).cost.backward.passes > 0


def test_a_position_that_is_saved_takes_the_bytes_of_int64():
    op = derive.parse("op f(x[n], W[n]) -> e, y\ne = argmax[n](x[n])\ny = W[e]*W[e]")
    assert dict(derive.derivation(op).cost.saved)["e"].at({"n": 11}) == 8
