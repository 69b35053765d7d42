"""Each kernel against loops over its equation: a row is proved here."""

import math
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from kit.each import each_row
from kit.texts import rt

from derive.check import oracle
from derive.kernels.table import ATTENTIONS, BACKWARD, FORWARD, KERNELS, NORMALISATIONS
from derive.memory import imported
from derive.module.runtime import runtime
from derive.program.torch_ir import FunctionCall, Keyword, Literal, Name, text
from derive.program.torch_ops import torch_op

EDGES = (-40.0, -6.0, -3.0, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 3.0, 6.0, 40.0)


def given(row, seed=0):
    """Tensors for the equation, of edge values and random ones, and its parameters."""
    op = row.operation
    random = np.random.default_rng(seed)
    sizes = {i.extent: n for i, n in row.lengths.items()}
    tensors = {}
    for t in op.inputs:
        shape = tuple(sizes.setdefault(i.extent, 5 + 2 * len(sizes)) for i in t.axes)
        integers = t.kind == "int"
        tensors[t.name] = random.integers(5, size=shape) if integers else random.normal(size=shape)
    return tensors, {p.name: p.default for p in op.parameters}


def called(row, tensors, parameters):
    """What the call of the row computes."""
    arguments = {name: Name(name) for name in tensors}
    arguments |= {name: Literal(repr(float(v))) for name, v in parameters.items()}
    arguments |= {i.name: Literal(str(n)) for n, i in enumerate(row.places)}
    code = text(row.code(arguments))
    shaped = {n: torch.as_tensor(t) for n, t in tensors.items()}
    if row.lengths:
        # What has no such axis has one of size 1.
        shaped = {n: t.reshape(1) if not t.ndim else t for n, t in shaped.items()}
    return eval(code, {**OWN, **shaped})


OWN = {"torch": torch, "math": math, "rt": rt}
"""torch, and what a module has beside it for a call."""


@each_row("name", [r.name for r in (*FORWARD, *BACKWARD)])
def test_the_kernel_is_the_equation(name):
    row = KERNELS[name]
    for seed in range(3):
        tensors, parameters = given(row, seed)
        (wanted,) = oracle.outputs(row.operation, tensors, parameters).values()
        found = called(row, tensors, parameters)
        torch.testing.assert_close(found, torch.as_tensor(wanted), rtol=1e-11, atol=1e-12)


@each_row("name", [r.name for r in KERNELS.values() if not r.places])
def test_an_elementwise_kernel_is_the_equation_at_edges(name):
    row = KERNELS[name]
    _, parameters = given(row)
    names = [t.name for t in row.operation.inputs if t.name != row.cotangent]
    for values in product(EDGES, repeat=len(names)):
        tensors = {name: np.array(x) for name, x in zip(names, values, strict=True)}
        if row.cotangent:
            tensors = {t.name: tensors.get(t.name, np.array(1.5)) for t in row.operation.inputs}
        (wanted,) = oracle.outputs(row.operation, tensors, parameters).values()
        found = called(row, tensors, parameters)
        torch.testing.assert_close(found, torch.as_tensor(wanted), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", [r.name for r in (*FORWARD, *BACKWARD) if r.lengths])
def test_a_kernel_of_a_short_axis_is_the_equation_at_edges(name):
    row = KERNELS[name]
    ((_, size),) = row.lengths.items()
    for values in product((*EDGES, -math.inf, math.inf), repeat=size):
        tensors = {t.name: np.array(values if t.axes else 1.5) for t in row.operation.inputs}
        with np.errstate(invalid="ignore"):
            (wanted,) = oracle.outputs(row.operation, tensors, {}).values()
        found = called(row, tensors, {})
        wanted = torch.as_tensor(wanted)
        torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-12, equal_nan=True)


@each_row("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@each_row("name", [r.name for r in (*FORWARD, *BACKWARD) if not r.places])
def test_a_tensor_may_be_spread_over_axes_without_memory(name, dtype):
    row = KERNELS[name]
    _, parameters = given(row)
    values = torch.linspace(-2, 2, 15, dtype=dtype).reshape(3, 5)
    tensors = {t.name: values for t in row.operation.inputs}
    for spread in tensors:
        for part in (values[0], values[:, 1:2], values[1, 1]):
            view = tensors | {spread: part.expand(3, 5)}
            whole = tensors | {spread: part.expand(3, 5).contiguous()}
            found, wanted = called(row, view, parameters), called(row, whole, parameters)
            torch.testing.assert_close(found, wanted)


def results(row, tensors, share=1.0, eps=1e-5, **more):
    """What the call of a normalization gives, its helpers being at hand."""
    numbers = {"eps": eps, "share": share}
    given = {n: None if t is None else torch.as_tensor(t) for n, t in tensors.items()}
    call = row.code({n: Literal(repr(x)) for n, x in numbers.items()})
    share = Keyword("share", Literal(repr(share)))
    code = text(FunctionCall(call.name, (*call.args, share)))
    return eval(code, {**OWN, **given, **more})


def shapes_of(kind, group):
    """Tensors for the rows, each group being of these axes."""
    sizes = {"n": (3,), "k": (2,), "c": (4,), "p": (5, 2), "s": group}
    random = np.random.default_rng(0)
    found = {}
    for row in (kind.backward, kind.forward):
        for t in row.operation.inputs:
            shape = sum((sizes[i.name] for i in t.axes), ())
            found[t.name] = random.normal(size=shape)
    return found, sum((sizes[i.name] for i in kind.forward.operation.inputs[1].axes), ())


@each_row("share", [1.0, 0.75, 0.0, -0.5])
@pytest.mark.parametrize("group", [(), (3,), (3, 2), (0,)])
@pytest.mark.parametrize("kind", NORMALISATIONS, ids=lambda kind: kind.forward.name)
def test_the_kernel_of_a_normalisation_is_its_equations(kind, group, share):
    if group == (0,) and kind.forward.name in ("layer_norm", "instance_norm"):
        pytest.skip("a mean of nothing")
    tensors, shape = shapes_of(kind, group)
    eps = 1e-5 if share > 0 else 9.0
    close = {"rtol": 1e-9, "equal_nan": True}
    with np.errstate(all="ignore"):
        wanted = oracle.outputs(kind.forward.operation, tensors, {"eps": eps, "share": share})
    y, mu, rstd = results(kind.forward, tensors, share, eps, along=shape)
    torch.testing.assert_close(y, torch.as_tensor(wanted["y"]), **close, atol=1e-11)
    tensors |= {name: wanted[name] for name in ("mu", "rstd")}
    with np.errstate(all="ignore"):
        wanted = oracle.outputs(kind.backward.operation, tensors, {"share": share})
    given = {**tensors, "mu": mu, "rstd": rstd}
    found = results(kind.backward, given, share, along=shape, wanted=(True,) * 3)
    for got, expected in zip(found, wanted.values(), strict=True):
        torch.testing.assert_close(got, torch.as_tensor(expected), **close, atol=1e-10)


def layouts(x):
    """x, then the same shape with gaps, with its axes in another order, and without memory."""
    yield x
    yield torch.stack([x, 9 + 5 * x], -1)[..., 0]
    yield x.mT.contiguous().mT if x.dim() > 1 else x
    for n in range(x.dim()):
        yield x.narrow(n, 0, 1).expand(x.shape)


@pytest.mark.parametrize("group", [(), (5, 7)])
@pytest.mark.parametrize("kind", NORMALISATIONS, ids=lambda kind: kind.forward.name)
def test_the_kernel_of_a_normalisation_reads_any_layout(kind, group):
    if group == () and kind.forward.name in ("layer_norm", "instance_norm"):
        pytest.skip("rows of one element")
    tensors, shape = shapes_of(kind, group)
    tensors |= {"rstd": np.abs(tensors["rstd"])}
    for row in (kind.forward, kind.backward):
        for name in (t.name for t in row.operation.inputs):
            for x in layouts(torch.as_tensor(tensors[name])):
                pairs = zip(
                    *(
                        results(row, tensors | {name: y}, along=shape, wanted=(True,) * 3)
                        for y in (x, x.clone(memory_format=torch.contiguous_format))
                    ),
                    strict=True,
                )
                for got, expected in pairs:
                    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", NORMALISATIONS, ids=lambda kind: kind.forward.name)
def test_none_is_a_weight_of_ones_and_a_bias_of_zeros(kind):
    tensors, shape = shapes_of(kind, (3,))
    tensors |= {"w": np.ones_like(tensors["w"]), "b": np.zeros_like(tensors["b"])}
    bare = tensors | {"w": None, "b": None}
    whole, alone = (results(kind.forward, t, along=shape) for t in (tensors, bare))
    torch.testing.assert_close(whole, alone, rtol=1e-12, atol=1e-12)
    given = {"along": shape, "wanted": (True, False, True)}
    given |= {"mu": whole[1], "rstd": whole[2]}
    for n in (0, 2):
        a, b = (results(kind.backward, t, **given)[n] for t in (tensors, bare))
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def scores(kind, batch, sizes, mask):
    """Tensors for the rows of an attention: q, k, v, g and the mask as the equations read it."""
    random = np.random.default_rng(0)
    i, j, d, e = sizes
    ends = {"q": (i, d), "k": (j, d), "v": (j, e), "g": (i, e)}
    found = {name: random.normal(size=(*batch, *shape)) for name, shape in ends.items()}
    if kind.sees:
        seen = np.tri(i, j, dtype=bool) if mask == "causal" else random.random((i, j)) < 0.6
        found["m"] = np.array(np.broadcast_to(seen, (*batch, i, j)))
    else:
        found["m"] = random.normal(size=(*batch, i, j)) * (mask != "none")
    return found


MASKS = [(kind, mask) for kind in ATTENTIONS for mask in ("causal" if kind.sees else "none", "any")]
WAYS = {
    "steps": [(5, 7, 3, 4), (1, 3, 2, 2)],
    "kernel": [(5, 17, 3, 3), (18, 16, 4, 4)],
    "other": [(5, 7, 3, 4), (4, 6, 5, 5)],
}
"""Sizes for what is computed in steps, by the kernel of a CPU, and on another device."""


@each_row("batch", [(), (2,), (3, 2), (2, 1, 3)])
@each_row("kind, mask", MASKS)
@each_row("way", WAYS, turns=2)
def test_the_kernel_of_an_attention_is_its_equations(kind, mask, batch, way):
    for sizes in WAYS[way]:
        tensors = scores(kind, batch, sizes, mask)
        wanted = oracle.outputs(kind.forward.operation, tensors, {"scale": 0.7})
        told = {"none": None, "causal": True}
        given = {name: torch.as_tensor(x) for name, x in tensors.items()}
        given["m"] = told[mask] if mask in told else torch.as_tensor(tensors["m"])
        y, kept = attended(kind.forward, given, way)
        torch.testing.assert_close(y, torch.as_tensor(wanted["y"]))
        assert kept.dim() == y.dim() - (kept.shape == y.shape[:-1])
        if way == "kernel":
            torch.testing.assert_close(kept, torch.as_tensor(wanted["lse"]))
        tensors |= {name: wanted[name] for name in ("y", "lse")}
        with np.errstate(invalid="ignore"):
            expected = oracle.outputs(kind.backward.operation, tensors, {"scale": 0.7})
        found = attended(kind.backward, given | {"y": y, "lse": kept}, way)
        for got, wanted in zip(found, expected.values(), strict=True):
            torch.testing.assert_close(got, torch.as_tensor(wanted))


def attended(row, tensors, way="kernel"):
    """The call of a row of an attention, in one of these ways."""
    code = text(row.code({"scale": Literal("0.7")}))
    with torch.no_grad():
        return eval(code, {**OWN, "rt": runtime_of(way), **tensors})


@cache
def runtime_of(way):
    source = runtime()
    own = imported("_runtime", source.replace('"cpu"', '"another"') if way == "other" else source)
    if way == "kernel":
        own._fuses = lambda *given: True
    return own


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("way", WAYS)
def test_a_row_that_sees_nothing_is_0_and_one_without_numbers_is_nan(dtype, way):
    added, seen = ATTENTIONS
    q, g = (torch.randn(2, 3, 4, dtype=dtype) for _ in range(2))
    k, v = (torch.randn(2, 16, 4, dtype=dtype) for _ in range(2))
    mask = torch.rand(3, 16) < 0.5
    mask[:, 0], mask[1] = True, False
    given = {"q": q, "k": k, "v": v, "g": g, "m": mask}
    y, kept = attended(seen.forward, given, way)
    assert y.dtype is dtype and (y[:, 1] == 0).all() and (y[:, 0] != 0).all()
    grads = attended(seen.backward, given | {"y": y, "lse": kept}, way)
    assert all(x.isfinite().all() for x in grads)
    assert (grads[0][:, 1] == 0).all() and (grads[1][:, 0] != 0).any()
    numbers = torch.zeros(3, 16, dtype=torch.promote_types(dtype, torch.float32))
    given["m"] = numbers.masked_fill(~mask, -torch.inf)
    y, kept = attended(added.forward, given, way)
    assert y[:, 1].isnan().all() and y[:, [0, 2]].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large_scores_keep_their_digits(dtype):
    """exp(score - lse) is 1, and no share, where both are as large as what an added mask says."""
    row, pulled = ATTENTIONS[0].forward, ATTENTIONS[0].backward
    q, k, v, g = (torch.randn(16, 4, dtype=dtype) for _ in range(4))
    mask = torch.zeros(16, 16)
    mask[0] = -1e9
    given = {"q": q, "k": k, "v": v, "g": g, "m": mask}
    y, kept = attended(row, given)
    found = attended(pulled, given | {"y": y, "lse": kept})
    q, k, v = (x.float().requires_grad_() for x in (q, k, v))
    plain = ((q @ k.mT) * 0.7 + mask).softmax(-1) @ v
    for got, wanted in zip(found, torch.autograd.grad(plain, (q, k, v), g.float()), strict=True):
        error = (got.float() - wanted).norm() / wanted.norm()
        assert error < (0.02 if dtype is torch.bfloat16 else 1e-5)


@pytest.mark.parametrize("at", range(4))
def test_an_attention_to_nothing_is_computed_in_steps(at):
    sizes = [5, 7, 3, 4]
    sizes[at] = 0
    i, j, d, e = sizes
    for kind, mask in MASKS:
        ends = {"q": (i, d), "k": (j, d), "v": (j, e), "g": (i, e)}
        given = {name: torch.randn(2, *shape) for name, shape in ends.items()}
        given["m"] = {"none": None, "causal": True}.get(mask, torch.ones(i, j, dtype=torch.bool))
        y, kept = attended(kind.forward, given, "steps")
        assert y.shape == (2, i, e)
        grads = attended(kind.backward, given | {"y": y, "lse": kept}, "steps")
        assert [x.shape for x in grads] == [given[name].shape for name in "qkv"]


def test_the_kernel_of_an_attention_reads_any_layout():
    tensors = {n: torch.randn(2, 3, 16, 4) for n in "qkvg"} | {"m": torch.randn(16, 16)}
    row, pulled = ATTENTIONS[0].forward, ATTENTIONS[0].backward
    y, kept = attended(row, tensors)
    tensors |= {"y": y, "lse": kept}
    for name in tensors:
        for x in layouts(tensors[name]):
            for each in (row, pulled):
                pairs = (attended(each, tensors | {name: z}) for z in (x, x.contiguous()))
                torch.testing.assert_close(*pairs)


def test_what_a_row_calls_is_known_by_its_name():
    kinds = (*NORMALISATIONS, *ATTENTIONS)
    several = [row for kind in kinds for row in (kind.forward, kind.backward)]
    names = [row.name for row in (*FORWARD, *BACKWARD, *several)]
    assert len(names) == len(set(names)) == len(KERNELS)
    for row in KERNELS.values():
        assert torch_op(row.code({})).flops is not None
