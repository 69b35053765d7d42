"""Seed 000 errs in places: each of its formulas here, as it stands there, beside what is right.

The second half holds the generated code to the form that the seed's formulas ask for.
"""

from __future__ import annotations

import ast
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from kit.each import each_row

torch = pytest.importorskip("torch")

from sympy import Eq, IndexedBase, Sum, symbols  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import derive  # noqa: E402
from derive import catalog  # noqa: E402
from derive.algebra.expr import accesses  # noqa: E402
from derive.algebra.interpret import Machine  # noqa: E402
from derive.check import oracle  # noqa: E402
from derive.notation.operation import AxisOf, Number  # noqa: E402

GENERATED = Path(__file__).parents[2] / "generated"


@cache
def module(name: str) -> ModuleType:
    path = GENERATED / f"{name}.py"
    assert path.is_file(), f"{path} is missing: run derive generate"
    spec = spec_from_file_location(f"generated_{name}", path)
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def generated(name: str) -> Any:
    return getattr(module(name), name)


def text(name: str) -> str:
    return (GENERATED / f"{name}.py").read_text(encoding="utf-8")


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5


def leaf(x: torch.Tensor) -> torch.Tensor:
    return x.clone().requires_grad_()


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-10, atol=1e-12)


# The gradient of B @ A by A


@pytest.mark.parametrize("m", (3, 5))
def test_the_gradient_of_a_product_from_the_right_is_not_G_T_B(m):
    """Seed: ``G.T @ B``. Sum_j1 G[j1,i2] B[j1,i1] is (B.T @ G)[i1,i2], its transpose."""
    B, A, G = rand(4, m), rand(m, 5, seed=1), rand(4, 5, seed=2)
    x = leaf(A)
    (B @ x).backward(G)
    seed = G.T @ B
    assert not close(seed, x.grad)
    assert close(seed.T, x.grad)
    ours = leaf(A)
    generated("matmul")(B, ours).backward(G)
    assert close(ours.grad, x.grad)
    assert close(ours.grad, B.mT @ G)


# The bias of linear cross-entropy

N, C, D = 6, 4, 3
T = torch.tensor([1, 0, 3, 2, 2, 3])


def logits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return rand(N, D), rand(C, D, seed=1), rand(C, seed=2)


def test_the_bias_of_linear_cross_entropy_belongs_to_the_class():
    """Seed: ``X[n1,n2] = Sum A L + b[n1]``, with gradient 0. It is b[n2], and its gradient is not.

    A bias of the sample shifts all logits of it and changes nothing.
    """
    A, L, b = logits()
    rows = rand(N, 1, seed=3)
    loss = F.cross_entropy(A @ L.T, T)
    assert close(F.cross_entropy(A @ L.T + rows, T), loss)
    assert not close(F.cross_entropy(A @ L.T + b, T), loss)
    assert close(generated("linear_cross_entropy")(A, L, T, b), F.cross_entropy(A @ L.T + b, T))


def test_the_gradient_of_the_bias_of_linear_cross_entropy_is_not_zero():
    """Seed: ``torch.zeros_like(b)``. It is the sum of the gradients of the logits."""
    A, L, b = logits()
    theirs = leaf(b)
    F.linear_cross_entropy(A, L, T, linear_bias=theirs).backward()
    assert theirs.grad.abs().min() > 1e-3
    assert not close(torch.zeros_like(b), theirs.grad)
    ours = leaf(b)
    generated("linear_cross_entropy")(A, L, T, ours).backward()
    assert close(ours.grad, theirs.grad)


def seed_linear_cross_entropy(A, L, T, b, W, ii, reduction, G):
    """The seed's backward, its ``x.shape`` read as ``A.shape``."""
    if ii >= 0:
        W = W.clone()
        W[ii] = 0
    X = A @ L.T + b
    lS = torch.log_softmax(X, dim=1)
    S = torch.exp(lS)
    w = W.index_select(0, T).unsqueeze(1)
    grad_A = w * L.index_select(0, T) - (w * S) @ L
    Wx = torch.zeros_like(L).scatter_reduce_(
        0, T.unsqueeze(1).expand(A.shape), A * w, "sum", include_self=False
    )
    grad_L = Wx - (w * S).T @ A
    if reduction == "mean":
        d = W.index_select(0, T).sum()
        grad_A /= d
        grad_L /= d
    return -G * grad_A, -G * grad_L, torch.zeros_like(b)


def linear_gradients(function, A, L, T, b, W, G, **parameters):
    A, L, b = map(leaf, (A, L, b))
    function(A, L, T, linear_bias=b, weight=W, **parameters).backward(G)
    return A.grad, L.grad, b.grad


@pytest.mark.parametrize("reduction", ("mean", "sum"))
@pytest.mark.parametrize("ii", (-100, 2))
def test_the_other_gradients_of_linear_cross_entropy_are_right_in_the_seed(reduction, ii):
    A, L, b = logits()
    W, G = rand(C, seed=4) + 1, torch.tensor(0.7).double()
    given = {"reduction": reduction, "ignore_index": ii}
    theirs = linear_gradients(F.linear_cross_entropy, A, L, T, b, W, G, **given)
    ours = linear_gradients(generated("linear_cross_entropy"), A, L, T, b, W, G, **given)
    seed = seed_linear_cross_entropy(A, L, T, b, W, ii, reduction, G)
    for n, right in enumerate((True, True, False)):
        assert close(ours[n], theirs[n])
        assert close(seed[n], theirs[n]) == right


def test_label_smoothing_is_in_the_seeds_signature_and_not_in_its_gradient():
    A, L, b = logits()
    W, G = rand(C, seed=4) + 1, torch.tensor(0.7).double()
    theirs = linear_gradients(F.linear_cross_entropy, A, L, T, b, W, G, label_smoothing=0.2)
    ours = linear_gradients(
        generated("linear_cross_entropy"), A, L, T, b, W, G, label_smoothing=0.2
    )
    seed = seed_linear_cross_entropy(A, L, T, b, W, -100, "mean", G)
    for n in range(3):
        assert close(ours[n], theirs[n])
        assert not close(seed[n], theirs[n])


# nll_loss


def seed_nll_loss(A, T, W, ii, reduction, G):
    wmask = torch.zeros_like(A).scatter_(1, T.unsqueeze(1), W.index_select(0, T).unsqueeze(1))
    if ii >= 0:
        wmask.select(1, ii).zero_()
    if reduction == "mean":
        wmask /= W.index_select(0, T).sum()
    return -G * wmask


def nll_gradient(function, A, T, W, G, **parameters):
    A = leaf(A)
    function(A, T, W, **parameters).backward(G)
    return A.grad


def test_the_mean_divides_by_the_weight_of_the_targets_that_count():
    """Seed: by that of all, the ignored included, although its own formula says otherwise."""
    A, W, G = rand(N, C), rand(C, seed=1) + 1, torch.tensor(0.7).double()
    theirs = nll_gradient(F.nll_loss, A, T, W, G, ignore_index=2)
    seed = seed_nll_loss(A, T, W, 2, "mean", G)
    assert not close(seed, theirs)
    assert close(seed * W[T].sum() / W[T[T != 2]].sum(), theirs)
    assert close(nll_gradient(generated("nll_loss"), A, T, W, G, ignore_index=2), theirs)


def test_an_ignored_target_that_is_no_class_is_ignored():
    """Seed: ``W.index_select(0, T)`` with T = -100, torch's default, is out of range."""
    A, W, G = rand(N, C), rand(C, seed=1) + 1, torch.tensor(0.7).double()
    ignored = torch.where(T == 2, -100, T)
    with pytest.raises((IndexError, RuntimeError)):
        seed_nll_loss(A, ignored, W, -100, "mean", G)
    theirs = nll_gradient(F.nll_loss, A, ignored, W, G)
    assert close(nll_gradient(generated("nll_loss"), A, ignored, W, G), theirs)


def test_without_reduction_the_cotangent_belongs_to_the_sample():
    """Seed: ``-G * wmask``, where G of size N stands against the classes."""
    A, W, G = rand(N, N), rand(N, seed=1) + 1, rand(N, seed=2)
    theirs = nll_gradient(F.nll_loss, A, T, W, G, reduction="none")
    seed = seed_nll_loss(A, T, W, -100, "none", G)
    assert not close(seed, theirs)
    assert close(seed / G * G.unsqueeze(1), theirs)
    assert close(nll_gradient(generated("nll_loss"), A, T, W, G, reduction="none"), theirs)


def test_the_weight_has_a_gradient_too():
    """Seed: none is given. A[n,T[n]] and the mean that W divides by both depend on it."""
    A, W = rand(N, C), leaf(rand(C, seed=1) + 1)
    generated("nll_loss")(A, T, W).backward()
    right = leaf(W.detach())
    (-(right[T] * A[torch.arange(N), T]).sum() / right[T].sum()).backward()
    assert close(W.grad, right.grad)


# The square in the intermediate step of softmax


def test_the_denominator_of_softmaxs_derivative_is_the_square_of_the_sum():
    """Seed: Sum_k exp(2 a[k]). The derivative of 1/Sum exp(a) has (Sum_k exp(a[k]))**2."""
    a = rand(5)
    e, eye = a.exp(), torch.eye(5, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda x: torch.softmax(x, 0), a)
    seed = (e / e.sum()).unsqueeze(1) * eye - torch.outer(e, e) / (2 * a).exp().sum()
    right = (e / e.sum()).unsqueeze(1) * eye - torch.outer(e, e) / e.sum() ** 2
    assert not close(seed, jacobian)
    assert close(right, jacobian)
    ours = torch.func.jacrev(lambda x: generated("softmax")(x, dim=0))(a)
    assert close(ours, jacobian)


# An index that is missing


def test_a_sum_over_an_axis_leaves_the_others_one_by_one():
    """Seed: F(A)_j = Sum_k A[.., j_(d-1), k, j_(d+1), .., j_(N-1)] skips j_d: A has N axes."""
    i, j, k, m = symbols("i j k m", integer=True)
    A, R = IndexedBase("A"), IndexedBase("R")
    with pytest.raises(derive.DeriveError, match="j"):
        derive.Operation("seed", Eq(R[i, j, m], Sum(A[i, k, m], k)))
    derive.Operation("right", Eq(R[i, j, m], Sum(A[i, k, j, m], k)))


# Names that do not exist


def test_ctx_has_no_save_fow_backward():
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, A):
            ctx.save_fow_backward(A)
            return torch.sin(A)

    with pytest.raises(AttributeError, match="save_fow_backward"):
        Sine.apply(rand(3))
    assert "ctx.save_for_backward(" in text("sin")
    A, G = leaf(rand(3)), rand(3, seed=1)
    generated("sin")(A).backward(G)
    assert close(A.grad, G * torch.cos(A.detach()))


def test_a_tensor_has_no_required_grad():
    assert not hasattr(rand(3), "required_grad")
    assert hasattr(rand(3), "requires_grad")
    assert "ctx.needs_input_grad[0]" in text("matmul")


def test_the_seeds_invariant_says_something_else_in_python():
    """``a == b is not None`` is ``a == b and b is not None``."""
    grad = None
    assert (False == grad is not None) is False  # noqa: E712
    assert (False == (grad is not None)) is True  # noqa: E712


@each_row("name", catalog.names())
def test_every_name_in_the_generated_code_exists(name):
    """The seed's linear cross-entropy reads ``x.shape``, and nothing there is called x."""
    tree = ast.parse(text(name))
    assert not _unbound(tree), "names that nothing binds"


def _unbound(tree: ast.Module) -> set[str]:
    """Names that are read in a function, and neither local, nor of the module, nor builtin."""
    import builtins

    known = set(dir(builtins)) | _bound(tree.body)
    found = set()
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        arguments = function.args
        local = _bound(function.body)
        for inner in (f.args for f in ast.walk(function) if isinstance(f, ast.FunctionDef)):
            local |= {a.arg for a in (*inner.args, *inner.kwonlyargs)}
            local |= {inner.vararg.arg} if inner.vararg else set()
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found |= {node.id} - known - local
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None:
                found |= {n.id for n in ast.walk(default) if isinstance(n, ast.Name)} - known
    return found


def _bound(body: list[ast.stmt]) -> set[str]:
    names = set()
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names |= {(a.asname or a.name).split(".")[0] for a in node.names}
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    return names


@each_row("name", catalog.names())
def test_backward_gives_one_gradient_for_each_argument_of_forward(name):
    """Seed: linear cross-entropy gives three for (A, L, T, bias, ..), so that of b is T's."""
    functions = [
        value
        for value in vars(module(name)).values()
        if isinstance(value, type)
        and issubclass(value, torch.autograd.Function)
        and value is not torch.autograd.Function
    ]
    # What only rearranges is views, which torch follows.
    assert functions or "Function" not in text(name)
    for node in ast.walk(ast.parse(text(name))):
        if isinstance(node, ast.ClassDef):
            methods = {m.name: m for m in node.body if isinstance(m, ast.FunctionDef)}
            if "backward" not in methods:
                # That of forward mode has it of the class that it is made of.
                assert "jvp" in methods
                continue
            given = methods["backward"].body[-1].value
            count = len(given.elts) if isinstance(given, ast.Tuple) else 1
            assert count == len(methods["forward"].args.args)


# What the generated code looks like


@pytest.mark.parametrize(
    ("name", "line"),
    (
        ("softmax", "S * (G - (G * S).sum(dim, keepdim=True))"),
        ("matmul", "G @ B.mT"),
        ("matmul", "A.mT @ G"),
        ("sum", "G.expand(A_shape)"),
        ("sin", "G * A.cos()"),
    ),
)
def test_the_backward_is_the_expression_that_one_would_write(name, line):
    assert line in text(name)


SEEDED = (
    *catalog.FAMILIES["elementwise"],
    *("transpose matmul linear embedding flatten unflatten concat".split()),
    *("sum mean prod max min amax amin logsumexp softmax log_softmax".split()),
    *("batch_norm batch_norm_inference layer_norm rms_norm".split()),
    *("nll_loss cross_entropy cross_entropy_probabilities linear_cross_entropy".split()),
    *("softmax_regression", "character_model"),
)
"""The operations of the seeds: none is a diagonal, a triangle or a position."""


@each_row("name", SEEDED)
def test_no_delta_is_a_matrix(name):
    called = {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in ast.walk(ast.parse(text(name)))
        if isinstance(node, ast.Attribute | ast.Name)
    }
    assert not called & {"eye", "arange", "one_hot", "diag", "diag_embed", "item", "tolist"}


class Passes(TorchDispatchMode):
    """Counts the operations that read or write as many elements as ``full``."""

    def __init__(self, full: int = 0) -> None:
        super().__init__()
        self.full = full
        self.count = 0
        self.largest = 0
        self.called: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        made = [x for x in _tensors(result) if not func.is_view]
        touched = [*made, *(_tensors(args) if made else ())]
        self.called.append(func.__name__.split(".")[0])
        self.count += any(x.numel() >= self.full for x in touched)
        self.largest = max([self.largest, *(x.numel() for x in made)])
        return result


def _tensors(values: Any) -> list[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, list | tuple):
        return [x for value in values for x in _tensors(value)]
    return []


@pytest.mark.parametrize("dim", (0, 1, -1))
def test_the_backward_of_softmax_makes_no_more_passes_than_the_hand_written(dim):
    A, G = leaf(rand(4, 5, 6)), rand(4, 5, 6, seed=1)
    S = generated("softmax")(A, dim=dim)
    with Passes(A.numel()) as ours:
        (grad,) = torch.autograd.grad(S, A, G)
    S = S.detach()
    with Passes(A.numel()) as by_hand:
        right = (G - (G * S).sum(dim=dim, keepdim=True)) * S
    assert by_hand.count == 4
    assert ours.count <= by_hand.count
    assert close(grad, right)


@pytest.mark.parametrize("keepdim", (False, True))
def test_the_backward_of_sum_copies_nothing(keepdim):
    A = leaf(rand(4, 5, 6))
    R = generated("sum")(A, dim=1, keepdim=keepdim)
    G = rand(*R.shape)
    function = next(v for k, v in vars(module("sum")).items() if k == "_Sum")
    with Passes(A.numel()) as passes:
        ctx = R.grad_fn
        grad = function.backward(ctx, G)[0]
    assert passes.count == 0
    assert grad.shape == A.shape
    assert grad.untyped_storage().data_ptr() == G.untyped_storage().data_ptr()


@pytest.mark.parametrize("reduction", ("mean", "sum", "none"))
@pytest.mark.parametrize("smoothing", (0.0, 0.1))
def test_linear_cross_entropy_makes_one_softmax_and_nothing_larger_than_the_logits(
    reduction, smoothing
):
    n, c, d = 8, 32, 3
    A, L, b = leaf(rand(n, d)), leaf(rand(c, d, seed=1)), leaf(rand(c, seed=2))
    W, T = leaf(rand(c, seed=3) + 1), torch.arange(n) * 3
    with Passes() as forward:
        loss = generated("linear_cross_entropy")(
            A, L, T, b, W, reduction=reduction, label_smoothing=smoothing
        )
    G = torch.ones_like(loss)
    with Passes() as backward:
        torch.autograd.grad(loss, (A, L, b, W), G)
    # The backward reads the one that the forward has made.
    for passes, softmaxes in (forward, 1), (backward, 0):
        assert passes.largest <= n * c
        made = [name for name in passes.called if not name.endswith("_backward_data")]
        found = sum("softmax" in name or name == "logsumexp" for name in made)
        assert found == softmaxes
        assert not {"one_hot", "eye", "arange"} & set(passes.called)
    exponentials = [n for n in backward.called if n in ("exp", "_log_softmax_backward_data")]
    assert len(exponentials) == 1


# The road to softmax's gradient


def test_the_derivation_of_softmax_ends_where_the_seed_ends():
    """(G_i - Sum_j G_j S_j) S_i, in index notation."""
    formula = str(derive.derivation(catalog.find("softmax")).gradients["A"])
    _, right = formula.split("=", 1)
    assert right.count("S[") == 2
    assert right.count("G[") == 2
    assert "exp" not in right
    assert "δ" not in right


def test_the_steps_of_softmax_walk_the_seeds_road():
    """dF_j/dA_i with its deltas, the product with G_j under the sum, no delta, the factors."""
    steps = derive.derivation(catalog.find("softmax")).gradients["A"].steps
    rules = [step.rule for step in steps]
    assert rules[:2] == ["partial derivative of S", "chain rule"]
    assert rules[-1] == "factor"
    deltas = [str(step.after).count("Delta") for step in steps]
    assert deltas[0] > 0
    contracted = rules.index("contract delta")
    assert deltas[contracted - 1 :] == sorted(deltas[contracted - 1 :], reverse=True)
    assert deltas[-1] == 0


STEPPED = "softmax log_softmax logsumexp sum mean max matmul transpose sin nll_loss".split()


@pytest.mark.parametrize("name", STEPPED)
def test_every_step_is_numerically_equal_to_the_one_before(name):
    op = catalog.find(name)
    derivation = derive.derivation(op)
    tensors, parameters = arguments(op)
    sizes = oracle.sizes(op, tensors, parameters)
    chosen = {**parameters, "reduction": "mean"} if "nll" in name else parameters
    known = {**tensors, **oracle.run(op, tensors, chosen)}
    numbers = {key: value for key, value in parameters.items() if key == "ignore_index"}
    axes = {e.name: e.axes for e in op.equations}
    for output, G in derivation.cotangents:
        known[G] = rand(*known[output].shape, seed=7).numpy()
        axes[G] = axes[output]
    machine = Machine(known, sizes, numbers)
    for formula in derivation.step_definitions:
        known[formula.name] = machine.fill(formula.axes, formula.body, "float")
    compared = 0
    for gradient in derivation.gradients.values():
        previous = None
        for step in gradient.steps:
            if any(access.tensor not in known for access in (*accesses(step.before),)):
                previous = None
                continue
            before = machine.fill(step.axes, step.before, "float")
            after = machine.fill(step.axes, step.after, "float")
            np.testing.assert_allclose(after, before, rtol=1e-10, atol=1e-12, err_msg=step.rule)
            if previous is not None and previous.shape == before.shape:
                np.testing.assert_allclose(before, previous, rtol=1e-10, atol=1e-12)
            partial = step.rule.startswith("partial")
            previous = None if partial else after
            compared += 1
    assert compared > 1


def arguments(op: derive.Operation) -> tuple[dict[str, Any], dict[str, Any]]:
    """An array of each input, with all axes different, and dim=1."""
    extents = {"b": 2, "i": 3, "j": 4, "k": 5, "n": 4, "c": 3, "p": 2, "q": 3}
    tensors = {}
    for seed, tensor in enumerate(op.inputs):
        shape = [extents[axis.extent] for axis in tensor.axes]
        if tensor.kind == "float":
            tensors[tensor.name] = rand(*shape, seed=seed).numpy() + 1
        else:
            tensors[tensor.name] = np.array([1, 0, -100, 2])
    parameters = {}
    for parameter in op.parameters:
        if isinstance(parameter, AxisOf):
            parameters[parameter.name] = 1
        elif isinstance(parameter, Number):
            parameters[parameter.name] = int(parameter.default)
    return tensors, parameters
