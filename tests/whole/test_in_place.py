"""What a backward writes to is its own: inputs, outputs, cotangents and other gradients stay."""

from itertools import combinations

import pytest
import torch
from kit.each import each_operation
from kit.once import sample

import derive
from derive.check.invoke import called, cotangents_of, tensors_of
from derive.check.samples import cases

# torch vmaps the derivative of unfold in a loop.
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")

CLOSE = {"rtol": 1e-9, "atol": 1e-11}
FUNCTIONS = {}


def each_case(op):
    return [(case,) for case in cases(op)]


def function_of(op):
    if op not in FUNCTIONS:
        FUNCTIONS[op] = derive.load(op)
    return FUNCTIONS[op]


def outputs_of(function, made, tensors):
    return [y for y in called(function, made, list(tensors.values())) if y.requires_grad]


def cotangents(made, outputs, kind):
    """One for each output: of random numbers, or of one number that takes no memory."""
    if kind == "expanded":
        return [torch.full((), 0.75, dtype=y.dtype).expand(y.shape) for y in outputs]
    if kind == "shared":
        made = {y.shape: torch.rand(y.shape, dtype=y.dtype) + 0.5 for y in outputs}
        return [made[y.shape] for y in outputs]
    given = [torch.from_numpy(c) for c in cotangents_of(made).values()]
    found = [c for y, c in zip(outputs, given, strict=False) if c.shape == y.shape]
    return found if len(found) == len(outputs) else cotangents(made, outputs, "shared")


def wanted_of(inputs):
    """All of the inputs, each alone, and each two of a few."""
    yield inputs
    if len(inputs) > 1:
        yield from ([x] for x in inputs)
    if 2 < len(inputs) < 5:
        yield from map(list, combinations(inputs, 2))


def memories(tensors):
    return [x.untyped_storage().data_ptr() for x in tensors if x.numel()]


def distinct(gradients):
    """Those that are not one tensor: of a sum, two inputs have the same gradient."""
    return list({id(g): g for g in gradients}.values())


@each_operation(each_case, share=40)
def test_nothing_that_is_given_is_written_to(op, case):
    function, made = function_of(op), sample(op, case)
    tensors = tensors_of(made)
    inputs = [x for x in tensors.values() if x is not None and x.requires_grad]
    outputs = outputs_of(function, made, tensors)
    if not (outputs and inputs):
        return
    kept = [(x._version, x.detach().clone()) for x in (*inputs, *outputs)]
    for kind in ("random", "expanded", "shared"):
        given = cotangents(made, outputs, kind)
        before = [c.clone() for c in given]
        for wanted in wanted_of(inputs):
            settings = {"allow_unused": True, "materialize_grads": True}
            again = [
                torch.autograd.grad(outputs, wanted, given, retain_graph=True, **settings)
                for _ in range(2)
            ]
            every = torch.autograd.grad(outputs, wanted, given, create_graph=True, **settings)
            for one, two, want in zip(*again, every, strict=True):
                torch.testing.assert_close(one, two, rtol=0, atol=0, equal_nan=True)
                torch.testing.assert_close(one, want.detach(), **CLOSE, equal_nan=True)
            own = [memories(distinct(g)) for g in (again[0], every)]
            assert len(set(own[0])) >= len(set(own[1])), "gradients share memory"
        assert all(torch.equal(x, y) for x, y in zip(given, before, strict=True))
    assert not any(x._version for x in inputs)
    for x, (version, y) in zip((*inputs, *outputs), kept, strict=True):
        assert x._version == version
        torch.testing.assert_close(x.detach(), y, rtol=0, atol=0, equal_nan=True)


@each_operation(each_case, share=70)
def test_a_batch_of_cotangents_is_a_loop(op, case):
    """By autograd's older vmap, and by torch.func's around a backward that was recorded outside."""
    function, made = function_of(op), sample(op, case)
    tensors = tensors_of(made)
    inputs = [x for x in tensors.values() if x is not None and x.requires_grad]
    outputs = outputs_of(function, made, tensors)
    if not (outputs and inputs):
        return
    settings = {"allow_unused": True, "materialize_grads": True, "retain_graph": True}
    batch = [torch.rand(3, *y.shape, dtype=y.dtype) + 0.5 for y in outputs]

    def pulled(*given):
        return torch.autograd.grad(outputs, inputs, given, **settings)

    looped = [torch.stack(g) for g in zip(*map(pulled, *batch), strict=True)]
    for way in (
        lambda: torch.autograd.grad(outputs, inputs, batch, is_grads_batched=True, **settings),
        lambda: torch.func.vmap(pulled)(*batch),
    ):
        try:
            found = way()
        except RuntimeError as error:
            # What torch itself has no rule for, in a backward that writes nothing in place too.
            assert "in-place" not in str(error) and "inplace" not in str(error), error
            continue
        torch.testing.assert_close(found, looped, **CLOSE, equal_nan=True)


def test_one_tensor_may_be_two_inputs_and_two_cotangents():
    f = derive.load(
        derive.parse(
            "op f(x[i,j], z[i,j]) -> y, u\ny[i,j] = exp(x[i,j])*z[i,j]\nu[i,j] = x[i,j]*sin(z[i,j])"
        )
    )
    x = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
    c = torch.rand(3, 4, dtype=torch.float64)
    before = c.clone()
    (found,) = torch.autograd.grad(f(x, x), x, (c, c))
    (want,) = torch.autograd.grad((x.exp() * x, x * x.sin()), x, (c, c))
    torch.testing.assert_close(found, want)
    assert torch.equal(c, before)


@pytest.mark.parametrize("other", [0, 2, "tensor"])
@pytest.mark.parametrize("row", [False, True])
def test_a_choice_is_that_of_torch_in_each_mode(other, row):
    op = derive.parse(
        "op f(x[i,j], z[i,j], m[i,j]: bool) -> y\n"
        f"y[i,j] = where(m[i,j], x[i,j]**2, {'z[i,j]**3' if other == 'tensor' else other}) + z[i,j]"
    )
    f = derive.load(op)
    x, z = (torch.rand(71, 73, dtype=torch.float64, requires_grad=True) for _ in range(2))
    m = torch.rand(71, 1 if row else 73).expand(71, 73) > 0.5

    def g(x, z, m):
        return z + torch.where(m, x**2, z**3 if other == "tensor" else other * torch.ones_like(x))

    torch.testing.assert_close(f(x, z, m), g(x, z, m))
    with torch.no_grad():
        torch.testing.assert_close(f(x, z, m), g(x, z, m))
    c = torch.rand(71, 73, dtype=torch.float64)
    for graph in (False, True):
        found, want = (
            torch.autograd.grad(
                h(x, z, m), (x, z), c, create_graph=graph, materialize_grads=True, allow_unused=True
            )
            for h in (f, g)
        )
        torch.testing.assert_close(found, want)
    stacked = torch.stack([z.detach(), z.detach() + 1])
    for places in ((None, 0, None), (0, 0, None)):
        given = (stacked if places[0] == 0 else x.detach(), stacked, m)
        one, two = (torch.func.vmap(h, places)(*given) for h in (f, g))
        torch.testing.assert_close(one, two)
