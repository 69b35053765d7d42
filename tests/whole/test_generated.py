"""Every module in generated/, as it is committed: against finite differences and torch's own."""

import math
from collections.abc import Callable, Container, Iterable
from itertools import product
from typing import Any
from unittest.mock import patch

import pytest
import torch
from kit.case_samples import assert_holds
from kit.cases import CASES, own
from kit.cases.activations import ELEMENTWISE
from kit.cases.case import GENERATED, Case, first, generated, positions, uniform
from kit.cases.chosen import each_word, every, least, positive, two, two_small
from kit.cases.elementwise import PAIRS
from kit.cases.reductions import REDUCTIONS
from kit.each import each_row, some_now, try_all
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.nn import functional as F

from derive import catalog
from derive.check.derivatives import detaches

# torch itself calls torch.jit.script when forward mode is first used.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning"),
    # torch vmaps the derivative of unfold in a loop.
    pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning"),
]

# Threads only stand in each other's way on tensors this small.
torch.set_num_threads(1)

TOLERANCE = {"rtol": 1e-6, "atol": 1e-8}
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


PROPERTIES: dict[
    str, tuple[Callable[[str], Iterable[Any]], Container[str], Callable[..., None]]
] = {}
"""What is asked of every module: of which cases, of which operations, and how."""


def each(chosen: Callable[[str], Iterable[Case]], names: Iterable[str] = ()) -> Any:
    """A property of each operation, or of those of these names, for the chosen cases of it."""

    def of_cases(holds: Callable[[Case], None]) -> Callable[[Case], None]:
        PROPERTIES[holds.__name__] = (chosen, tuple(names) or catalog.names(), holds)
        return holds

    return of_cases


@pytest.mark.parametrize("first", some_now(range(3), 3, 3))
@pytest.mark.parametrize("name", catalog.names())
def test_every_property_holds(name, first):
    """Of an operation, a third of them now; the properties and cases that fail are named."""
    own = [what for what, (_, names, _) in PROPERTIES.items() if name in names]
    begin = first + sum(map(ord, name))  # for each operation others
    chosen = [own[n] for n in range(begin % 3, len(own), 3)]
    rows = ((what, case.label, case) for what in chosen for case in PROPERTIES[what][0](name))
    try_all(rows, lambda what, label, case: PROPERTIES[what][2](case))


def with_gradients(case: Case, wanted: tuple[int, ...]) -> list[torch.Tensor | None]:
    tensors = case.tensors()
    return [x.requires_grad_() if n in wanted else x for n, x in enumerate(tensors)]


def of_floats(case: Case) -> tuple[Callable[..., torch.Tensor], list[torch.Tensor]]:
    """The call as a function of its floating-point tensors, and these."""
    tensors, places = case.tensors(), case.floating()

    def function(*floats: torch.Tensor) -> torch.Tensor:
        arguments = list(tensors)
        for n, x in zip(places, floats, strict=True):
            arguments[n] = x
        return case.call(*arguments)

    return function, [tensors[n].clone().requires_grad_() for n in places]


def one(name: str) -> list[Case]:
    return two(name)[:1]


def outputs(case: Case) -> Any:
    """All of them."""
    return generated(case.name)(*case.tensors(), **case.parameters)


def cotangent(like: torch.Tensor) -> torch.Tensor:
    return uniform(tuple(like.shape), -1, 1, 9)


def assert_same(ours: Any, theirs: Any, what: str) -> None:
    torch.testing.assert_close(ours, theirs, **CLOSE, equal_nan=True, msg=lambda m: f"{what}: {m}")


def test_every_operation_has_a_case():
    assert {case.name for case in CASES} == set(catalog.names())


def test_there_are_no_other_modules():
    found = {path.stem for path in GENERATED.glob("*.py")}
    assert found == {"__init__", "_runtime", *catalog.names()}


@each(one)
def the_module_imports_torch_and_the_runtime(case):
    text = (GENERATED / f"{case.name}.py").read_text(encoding="utf-8")
    imported = [line for line in text.splitlines() if line.startswith(("import", "from"))]
    names = {line.split()[1].split(".")[0] for line in imported}
    assert names <= {"torch", "math", "contextlib", "typing", ""}
    assert ("" in names) == ("from . import _runtime as rt" in imported)
    assert callable(generated(case.name))


@each(every)
def values_and_gradients_are_torchs(case):
    places = tuple(n for n in case.floating() if n not in case.opaque)
    ours, theirs = with_gradients(case, places), with_gradients(case, places)
    result, expected = case.call(*ours), case.own(*theirs)
    assert_same(result, expected, "value")
    G = cotangent(result)
    given = G.clone()
    result.backward(G)
    assert torch.equal(G, given), "the cotangent was changed"
    expected.backward(G)
    for n in places:
        assert_same(ours[n].grad, theirs[n].grad, f"gradient of input {n}")


UNDERIVED = {
    *("embedding_bag", "multi_margin_loss", "multi_head_attention"),
    *("cdist", "cdist_manhattan", "laplacian_kernel", "binary_cross_entropy"),
}
"""Torch's own cannot be differentiated twice, or rounds more: its backward is one kernel."""


@each(every, [name for name in catalog.names() if name not in UNDERIVED])
def second_derivatives_are_torchs(case):
    """Those of a sum of the gradients, weighed by numbers, in the inputs and the cotangent."""
    places = tuple(n for n in case.floating() if n not in case.opaque)
    found = []
    for call in (case.call, case.own):
        tensors = with_gradients(case, places)
        wanted = [tensors[n] for n in places]
        result = call(*tensors)
        G = cotangent(result).requires_grad_()
        grads = torch.autograd.grad(result, wanted, G, create_graph=True, materialize_grads=True)
        total = sum((grad * cotangent(grad)).sum() for grad in grads)
        found.append(
            torch.autograd.grad(total, [G, *wanted], allow_unused=True, materialize_grads=True)
            if total.requires_grad
            else [torch.zeros_like(x) for x in (G, *wanted)]
        )
    for n, (ours, theirs) in enumerate(zip(*found, strict=True)):
        assert_same(ours, theirs, f"second derivative {n}")


def batched(name: str) -> bool:
    """Autograd's own, older vmap has no rule for einsum, which torch.func.vmap has."""
    return "einsum(" not in (GENERATED / f"{name}.py").read_text(encoding="utf-8")


def checked(name: str) -> list[Case]:
    """A few; more where torch's own gives no gradient of some inputs, for nothing else has it."""
    cases = [case for case in every(name) if positive(case)]
    return each_word(cases) if any(case.opaque for case in cases) else two(name)


def held(case: Case, function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The values of torch's own with what it detaches held as it is, and our gradients."""
    kept: list[torch.Tensor] = []
    detach_of = torch.Tensor.detach

    def keep(x: torch.Tensor) -> torch.Tensor:
        kept.append(detach_of(x))
        return kept[-1]

    with patch.object(torch.Tensor, "detach", keep):
        case.own(*case.tensors())
    places = case.floating()

    def both(*floats: torch.Tensor) -> torch.Tensor:
        arguments, again = case.tensors(), iter(kept)
        for n, x in zip(places, floats, strict=True):
            arguments[n] = detach_of(x)
        with patch.object(torch.Tensor, "detach", lambda x: next(again)):
            value = case.own(*arguments)
        ours = function(*floats)
        return value + (ours - ours.detach())

    return both


@each(checked)
def gradients_are_those_of_finite_differences(case):
    """With what the equations detach held as it is."""
    function, floats = of_floats(case)
    if detaches(catalog.find(case.name)):
        function = held(case, function)
    assert gradcheck(
        function,
        floats,
        **TOLERANCE,
        check_undefined_grad=True,
        check_batched_grad=batched(case.name),
    )


@each(every)
def forward_mode_is_reverse_mode(case):
    """<G, J way> = <gradient, way>."""
    places = tuple(case.floating())
    tensors = with_gradients(case, places)
    result = case.call(*tensors)
    G = cotangent(result)
    wanted = [tensors[n] for n in places]
    grads = torch.autograd.grad(result, wanted, G, materialize_grads=True)
    with forward_ad.dual_level():
        duals = case.tensors()
        for n in places:
            duals[n] = forward_ad.make_dual(duals[n], cotangent(duals[n]))
        tangent = forward_ad.unpack_dual(case.call(*duals)).tangent
    along = sum((grad * cotangent(grad)).sum() for grad in grads)
    assert_same((G * tangent).sum() if tangent is not None else 0 * along, along, "tangent")


def differed(name: str) -> list[Case]:
    """None of what detaches: differences move what the derivative holds."""
    if detaches(catalog.find(name)):
        return []
    return two_small(name) if name in UNDERIVED else least(name)


@pytest.mark.parametrize("names", some_now([catalog.names()[n::6] for n in range(6)], 1))
def test_second_derivatives_are_those_of_finite_differences(names):
    def holds(name: str, label: str, case: Case) -> None:
        function, floats = of_floats(case)
        assert gradgradcheck(function, floats, **TOLERANCE, check_undefined_grad=True)

    try_all(((name, case.label, case) for name in names for case in differed(name)), holds)


@each(two)
def strides_do_not_matter(case):
    """Neither those of inputs nor those of cotangents, which may be expanded."""
    assert_holds("strides", case)


@each(two_small)
def a_gradient_does_not_depend_on_which_are_wanted(case):
    assert_holds("subsets", case)


@each(one)
def the_precision_stays_that_of_the_arguments(case):
    for dtype in (torch.float32, torch.bfloat16):
        tensors = [
            x.to(dtype).requires_grad_() if n in case.floating() else x
            for n, x in enumerate(case.tensors())
        ]
        result = case.call(*tensors)
        assert result.dtype == dtype
        result.sum().backward()
        assert all(tensors[n].grad.dtype == dtype for n in case.floating())


@each(lambda name: every(name)[:2])
def an_output_may_be_changed_in_place(case):
    assert_holds("in-place", case)


# At kinks and ties: torch's own conventions.

EDGES = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5]


@pytest.mark.parametrize("name", "relu abs sign floor".split())
def test_kinks_are_torchs(name):
    ours = torch.tensor(EDGES, dtype=torch.float64, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    result, expected = generated(name)(ours), own(name)(theirs)
    assert torch.equal(result, expected)
    result.sum().backward()
    expected.sum().backward()
    assert torch.equal(ours.grad, theirs.grad)


def of_numbers(name):
    return [case for case in every(name) if not case.given[0].dim()]


BOUNDS = [*EDGES, 3.0, -3.0, 6.0, -6.0, 800.0, -800.0, math.inf, -math.inf]


@each(of_numbers, ELEMENTWISE)
def activations_are_torchs_at_kinks_and_far_out(case):
    ours = torch.tensor(BOUNDS, dtype=torch.float64, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    result, expected = case.call(ours), case.own(theirs)
    if case.name == "hardswish":  # torch's own is nan at -inf
        expected = torch.where(theirs == -math.inf, 0, expected)
    assert_same(result, expected, "value")
    result.sum().backward()
    expected.sum().backward()
    slope = theirs.grad
    if case.name == "softsign":  # torch's own is nan at an infinity, where the curve is flat
        slope = torch.where(theirs.isinf(), 0, slope)
    assert_same(ours.grad, slope, "gradient")


@each(of_numbers, ELEMENTWISE)
def second_derivatives_of_activations_are_finite_far_out(case):
    x = torch.tensor([800.0, -800.0, 40.0, -40.0], dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(case.call(x).sum(), x, create_graph=True)
    if grad.requires_grad:
        (twice,) = torch.autograd.grad(grad.sum(), x)
        assert twice.isfinite().all()


@pytest.mark.parametrize("name", "maximum minimum atan2 pow".split())
def test_ties_and_singular_points_are_torchs(name):
    pairs = torch.tensor(list(product(EDGES, EDGES)), dtype=torch.float64)
    ours = [x.clone().requires_grad_() for x in pairs.unbind(1)]
    theirs = [x.clone().requires_grad_() for x in pairs.unbind(1)]
    result, expected = generated(name)(*ours), own(name)(*theirs)
    assert_same(result, expected, "value")
    grads = torch.autograd.grad(result.sum(), ours)
    for grad, right in zip(grads, torch.autograd.grad(expected.sum(), theirs), strict=True):
        assert_same(grad, right, "gradient")


def test_clamp_passes_the_gradient_on_its_bounds():
    A = torch.tensor([-2.0, -1.0, 0.0, 0.5, 1.0], requires_grad=True)
    generated("clamp")(A, lo=-1.0, hi=0.5).sum().backward()
    assert A.grad.tolist() == [0, 1, 1, 1, 0]


@pytest.mark.parametrize(
    ("name", "parameters"),
    (
        *(("l1_loss", {}), ("smooth_l1_loss", {"beta": 1.0}), ("huber_loss", {"delta": 1.0})),
        *(("hinge_embedding_loss", {"margin": 1.0}), ("margin_ranking_loss", {"margin": 1.0})),
    ),
    ids=str,
)
def test_losses_at_their_kinks_are_torchs(name, parameters):
    x = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0] * 2, dtype=torch.float64)
    target = torch.tensor([1.0] * 5 + [-1.0] * 5, dtype=torch.float64)
    more = (torch.zeros_like(x),) if name == "margin_ranking_loss" else ()
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    for tensor, function in ((ours, generated(name)), (theirs, own(name))):
        function(tensor, *more, target, reduction="sum", **parameters).backward()
    assert_same(ours.grad, theirs.grad, "gradient")


TIES = [[1.0, 3.0, 3.0, 2.0], [5.0, 5.0, 5.0, 0.0], [1.0, 2.0, 3.0, 4.0], [-1.0, -1.0, -2.0, -2.0]]


@each_row("name", "max min amax amin".split())
@each_row("dim", (0, 1))
@each_row("keepdim", (False, True))
def test_ties_of_a_reduction_are_torchs(name, dim, keepdim):
    ours = torch.tensor(TIES, dtype=torch.float64, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    result = generated(name)(ours, dim=dim, keepdim=keepdim)
    expected = own(name)(theirs, dim=dim, keepdim=keepdim)
    if name in ("max", "min"):
        assert torch.equal(result[1], expected[1])
        assert result[1].dtype == torch.int64
        assert not result[1].requires_grad
    assert torch.equal(first(result), first(expected))
    G = cotangent(first(result))
    first(result).backward(G)
    first(expected).backward(G)
    assert_same(ours.grad, theirs.grad, "gradient")


@pytest.mark.parametrize("name", "max min amax amin".split())
def test_forward_mode_shares_a_tie_as_reverse_mode_does(name):
    A = torch.tensor(TIES, dtype=torch.float64)

    def values(x):
        return first(generated(name)(x, dim=1))

    assert_same(torch.func.jacfwd(values)(A), torch.func.jacrev(values)(A), "Jacobian")


@pytest.mark.parametrize("name", "std l1_norm l2_norm vector_norm".split())
def test_the_gradient_of_a_root_at_zero_is_torchs(name):
    A = torch.tensor([[0.0] * 3, [1.0] * 3, [math.nan, 1.0, 2.0]], dtype=torch.float64)
    ours, theirs = A.clone().requires_grad_(), A.clone().requires_grad_()
    more = {"std": {"correction": 1}, "vector_norm": {"ord": 2}}.get(name, {})
    result = generated(name)(ours, dim=1, **more)
    expected = own(name)(theirs, dim=1, keepdim=False, **more)
    assert_same(result, expected, "value")
    result.sum().backward()
    expected.sum().backward()
    assert_same(ours.grad, theirs.grad, "gradient")


@pytest.mark.parametrize("zeros", (1, 2, 3))
@pytest.mark.parametrize("dim", (0, 1, -1))
def test_prod_of_zeros_has_a_gradient(zeros, dim):
    A = uniform((3, 4), 0.5, 2)
    A[1, :zeros] = 0
    A[0, 1] = 0
    ours, theirs = A.clone().requires_grad_(), A.clone().requires_grad_()
    result, expected = generated("prod")(ours, dim=dim), theirs.prod(dim)
    G = cotangent(result)
    result.backward(G)
    expected.backward(G)
    assert_same(ours.grad, theirs.grad, "gradient")
    checked = A.clone().requires_grad_()
    assert gradgradcheck(lambda x: generated("prod")(x, dim=dim), (checked,), **TOLERANCE)


@pytest.mark.parametrize("name", "nll_loss cross_entropy linear_cross_entropy".split())
@pytest.mark.parametrize("reduction", "mean sum none".split())
def test_when_all_targets_are_ignored(name, reduction):
    T = torch.full((6,), -100)
    head = [uniform((6, 4), -1, 1)]
    if name == "linear_cross_entropy":
        head.append(uniform((5, 4), -1, 1))
    ours = generated(name)(*head, T, reduction=reduction)
    theirs = getattr(F, name)(*head, T, reduction=reduction)
    assert_same(ours, theirs, "value")


@pytest.mark.parametrize("wrong", (float("nan"), float("inf")))
def test_a_row_that_is_ignored_has_no_gradient_whatever_stands_in_it(wrong):
    logits, T = uniform((4, 3), -2, 2), torch.tensor([0, -100, 2, 1])
    clean = logits.clone().requires_grad_()
    generated("cross_entropy")(clean, T).backward()
    logits[1, 0] = wrong
    dirty = logits.clone().requires_grad_()
    generated("cross_entropy")(dirty, T).backward()
    assert torch.equal(dirty.grad, clean.grad)
    assert dirty.grad[1].tolist() == [0, 0, 0]


def test_a_class_may_be_impossible():
    T, wrong = torch.tensor([0, 2, 2]), float("-inf")
    x, w = uniform((3, 5), -1, 1), uniform((4, 5), -1, 1, 1)
    bias = torch.tensor([0.5, wrong, 0.0, 1.0], dtype=x.dtype)
    logits = F.linear(x, w, bias)
    for name, given, added in (
        ("cross_entropy", [logits], None),
        ("linear_cross_entropy", [x, w], bias),
    ):
        ours, theirs = ([t.clone().requires_grad_() for t in given] for _ in range(2))
        value = generated(name)(*ours, T, **({} if added is None else {"linear_bias": added}))
        expected = F.cross_entropy(theirs[0] if added is None else F.linear(*theirs, added), T)
        assert_same(value, expected, "value")
        grads = (torch.autograd.grad(value, ours), torch.autograd.grad(expected, theirs))
        for a, b in zip(*grads, strict=True):
            assert_same(a, b, "gradient")


def test_both_outputs_of_softmax_regression_have_gradients():
    x, w, b = uniform((7, 4), -1, 1), uniform((3, 4), -1, 1, 1), uniform((3,), -1, 1, 2)
    T = positions(7, below=3)
    ours = [t.clone().requires_grad_() for t in (x, w, b)]
    theirs = [t.clone().requires_grad_() for t in (x, w, b)]
    cost, logits = generated("softmax_regression")(*ours, T)
    expected = F.linear(*theirs)
    assert_same(logits, expected, "logits")
    G = cotangent(logits)
    for wanted in ([cost], [logits], [cost, logits]):
        mine = {id(cost): F.cross_entropy(expected, T), id(logits): expected}
        cotangents = [G if o is logits else torch.tensor(0.7, dtype=G.dtype) for o in wanted]
        grads = torch.autograd.grad(wanted, ours, cotangents, retain_graph=True)
        right = torch.autograd.grad(
            [mine[id(o)] for o in wanted], theirs, cotangents, retain_graph=True
        )
        for grad, own_grad in zip(grads, right, strict=True):
            assert_same(grad, own_grad, "gradient")
    assert gradgradcheck(lambda *t: generated("softmax_regression")(*t, T), ours, **TOLERANCE)


@each(two)
def every_output_has_a_gradient_of_its_own(case):
    """The outputs of floating point, each alone and all together."""
    if isinstance(outputs(case), torch.Tensor):
        return
    places = tuple(n for n in case.floating() if n not in case.opaque)
    ours, theirs = with_gradients(case, places), with_gradients(case, places)
    results = generated(case.name)(*ours, **case.parameters)
    expected = case.reference(*theirs, **case.parameters)
    expected = (expected,) if isinstance(expected, torch.Tensor) else expected
    pairs = list(zip(results, expected, strict=False))
    for result, right in pairs:
        assert_same(result, right, "value")
    pairs = [(a, b) for a, b in pairs if a.is_floating_point()]
    for wanted in (*([pair] for pair in pairs), pairs):
        cotangents = [cotangent(a) for a, _ in wanted]
        grads, rights = (
            torch.autograd.grad(
                [pair[side] for pair in wanted],
                [tensors[n] for n in places],
                cotangents,
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
            for side, tensors in enumerate((ours, theirs))
        )
        for grad, right in zip(grads, rights, strict=True):
            assert_same(grad, right, "gradient")


def test_batch_norm_is_blind_to_a_large_offset():
    """The variance is that of differences: an offset of 1e6 costs digits, not the result."""
    x, w, b = uniform((5, 3), -1, 1), uniform((3,), 0.5, 1.5, 1), uniform((3,), -1, 1, 2)
    near, far = (t.clone().requires_grad_() for t in (x, x + 1e6))
    results = [generated("batch_norm")(t, w, b, correction=1) for t in (near, far)]
    torch.testing.assert_close(*results, rtol=1e-8, atol=1e-8)
    G = cotangent(x)
    for result in results:
        result.backward(G)
    torch.testing.assert_close(near.grad, far.grad, rtol=1e-7, atol=1e-8)


def test_one_tensor_in_both_places():
    A, G = uniform((4, 4), 0.5, 1.5), uniform((4, 4), -1, 1, 1)
    for name in ("matmul", *PAIRS):
        ours, theirs = A.clone().requires_grad_(), A.clone().requires_grad_()
        generated(name)(ours, ours).backward(G)
        own(name)(theirs, theirs).backward(G)
        assert_same(ours.grad, theirs.grad, name)


def test_a_saved_tensor_that_was_changed_is_an_error():
    for name in ("sin", "tanh", "softmax"):
        A = uniform((3, 4), -1, 1).requires_grad_()
        B = A * 1
        result = generated(name)(B, **({"dim": 1} if name == "softmax" else {}))
        with torch.no_grad():
            B.mul_(2)
            result.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


EMPTY = [
    *((name, [(0, 3)], {"dim": 1}) for name in ("softmax", "log_softmax", *REDUCTIONS)),
    *((name, [(3, 0)], {"dim": 1}) for name in ("softmax", "log_softmax", "sum", "mean", "prod")),
    ("logsumexp", [(3, 0)], {"dim": 1}),
    ("matmul", [(2, 0), (0, 3)], {}),
    ("matmul", [(0, 2), (2, 3)], {}),
    ("transpose", [(0, 2)], {}),
    ("exp", [(0,)], {}),
    ("linear", [(0, 4), (5, 4)], {}),
    ("linear", [(2, 0), (5, 0)], {}),
    ("concat", [(0, 3), (2, 3)], {"dim": 0}),
    ("concat", [(0, 3), (0, 2)], {"dim": 1}),
    ("flatten", [(0, 2, 3)], {}),
    ("layer_norm", [(0, 3), (3,), (3,)], {}),
    ("rms_norm", [(0, 3), (3,)], {}),
]


@each_row("name, shapes, parameters", EMPTY)
def test_empty_tensors_are_as_in_torch(name, shapes, parameters):
    ours = [uniform(shape, -1, 1).requires_grad_() for shape in shapes]
    theirs = [x.detach().clone().requires_grad_() for x in ours]
    result = first(generated(name)(*ours, **parameters))
    expected = first(own(name)(*theirs, **parameters))
    assert_same(result, expected, "value")
    result.sum().backward()
    expected.sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        assert_same(a.grad, b.grad, "gradient")


# torch.func


@each(two)
def vmap_is_the_loop(case):
    function, floats = of_floats(case)
    stacked = [torch.stack([x.detach(), 0.9 * x.detach()], 1 if x.dim() else 0) for x in floats]
    axes = tuple(1 if x.dim() else 0 for x in floats)
    result = torch.func.vmap(function, in_dims=axes)(*stacked)
    loop = [function(*(x.select(a, n) for x, a in zip(stacked, axes, strict=True))) for n in (0, 1)]
    assert_same(result, torch.stack(loop), "vmap")
    one = torch.func.grad(lambda *x: function(*x).sum())
    result = torch.func.vmap(one, in_dims=axes)(*stacked)
    loop = [one(*(x.select(a, n) for x, a in zip(stacked, axes, strict=True))) for n in (0, 1)]
    assert_same(result, torch.stack(loop), "vmap of grad")


@each(two)
def jacobians_of_both_modes_agree(case):
    function, floats = of_floats(case)
    floats = [x.detach() for x in floats]
    every = tuple(range(len(floats)))
    reverse = torch.func.jacrev(function, every)(*floats)
    assert_same(reverse, torch.func.jacfwd(function, every)(*floats), "Jacobian")


@each(least)
def hessians_of_all_modes_agree(case):
    function, floats = of_floats(case)
    x, *others = (x.detach() for x in floats)

    def total(x: torch.Tensor) -> torch.Tensor:
        return (function(x, *others) ** 2).sum()

    func = torch.func
    twice = func.jacrev(func.jacrev(total))(x)
    assert_same(func.hessian(total)(x), twice, "forward over reverse")
    assert_same(func.jacfwd(func.jacfwd(total))(x), twice, "forward over forward")


def test_who_die_at_the_same_time_are_at_risk_together():
    """Where differences in time have no meaning: the loss jumps there."""
    time = torch.tensor([3, 1, 3, 2, 2, 4], dtype=torch.float64)
    event = torch.tensor([True, False, True, True, True, False])
    ours, theirs = (uniform((6,), -1, 1).requires_grad_() for _ in range(2))
    result, expected = (
        generated("cox_loss")(ours, time, event),
        own("cox_loss")(theirs, time, event),
    )
    assert_same(result, expected, "value")
    result.backward()
    expected.backward()
    assert_same(ours.grad, theirs.grad, "gradient")
