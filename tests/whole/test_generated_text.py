"""The text of the generated modules: names that exist, expressions and passes of an expert."""

import ast
import sys
from inspect import signature
from types import ModuleType
from typing import Any

import pytest
import torch
from kit.cases.case import GENERATED, generated
from kit.each import each_row
from torch.utils._python_dispatch import TorchDispatchMode

from derive import catalog


def module(name: str) -> ModuleType:
    return sys.modules[generated(name).__module__]


def text(name: str) -> str:
    return (GENERATED / f"{name}.py").read_text(encoding="utf-8")


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5


def leaf(x: torch.Tensor) -> torch.Tensor:
    return x.clone().requires_grad_()


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-10, atol=1e-12)


@each_row("name", catalog.names())
def test_every_name_in_the_generated_code_exists(name):
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
    functions = [
        value
        for value in vars(module(name)).values()
        if isinstance(value, type)
        and issubclass(value, torch.autograd.Function)
        and value is not torch.autograd.Function
    ]
    # What only rearranges is views, which torch follows.
    assert functions or "Function" not in text(name)
    forwards = {f.__name__: signature(f.forward).parameters for f in functions}
    for node in ast.walk(ast.parse(text(name))):
        if isinstance(node, ast.ClassDef):
            methods = {m.name: m for m in node.body if isinstance(m, ast.FunctionDef)}
            if "backward" not in methods:
                # That of forward mode has it of the class that it is made of.
                assert "tangent" in methods
                continue
            forward = forwards[node.name]
            named = {
                ast.unparse(x.targets[0]): x.value.elts
                for x in ast.walk(methods["backward"])
                if isinstance(x, ast.Assign) and isinstance(x.value, ast.Tuple)
            }
            for given in (n for n in ast.walk(methods["backward"]) if isinstance(n, ast.Return)):
                if isinstance(given.value, ast.Tuple):
                    first, *others = given.value.elts
                    many = named["grads"] if isinstance(first, ast.Starred) else [first]
                    assert len([*many, *others]) == len(forward)
                elif not isinstance(given.value, ast.BinOp):
                    assert len(forward) == 1


@pytest.mark.parametrize(
    ("name", "line"),
    (
        ("softmax", "torch._softmax_backward_data(G, S, ctx.dim, S.dtype)"),
        ("matmul", "G @ other.mT"),
        ("matmul", "input.mT @ G"),
        ("sum", "G.expand(ctx.input_shape)"),
        ("sin", "G * input.cos()"),
    ),
)
def test_the_backward_is_the_expression_that_one_would_write(name, line):
    assert line in text(name)


NO_DELTA = (
    *catalog.FAMILIES["elementwise"],
    *("transpose matmul linear embedding flatten unflatten concat".split()),
    *("sum mean prod max min amax amin logsumexp softmax log_softmax".split()),
    *("batch_norm batch_norm_inference layer_norm rms_norm".split()),
    *("nll_loss cross_entropy cross_entropy_probabilities linear_cross_entropy".split()),
    *("softmax_regression", "character_model"),
)
"""None is a diagonal, a triangle or a position."""


@each_row("name", NO_DELTA)
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


MAKES = "arange empty eye full linspace ones randn scalar_tensor tensor zeros".split()


@each_row("name", catalog.names())
def test_each_new_tensor_says_its_device(name):
    for part in ast.walk(ast.parse(text(name))):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
            of = part.func.value
            if isinstance(of, ast.Name) and of.id == "torch" and part.func.attr in MAKES:
                said = [keyword.arg for keyword in part.keywords]
                assert "device" in said, ast.unparse(part)
