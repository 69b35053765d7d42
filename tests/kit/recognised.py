"""What code calls, with patterns of lowering recognised and without."""

import ast
import re
from functools import partial

import numpy as np
import torch
from kit.plain import plain_tree
from kit.rows import without
from kit.unwritten import of_order


def named(text: str) -> str:
    return text.replace("\n", " ; ")


def functions(text: str) -> tuple[list[str], list[str] | None]:
    """What forward computes, and what backward computes once it has its arguments.

    What only rearranges has the backward of torch itself: None.
    """
    tree = ast.parse(text)
    defined = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    whole = next(plain_tree(f).body for name, f in defined.items() if name.endswith("forward"))
    # What stands without autocast is of the body.
    forward = [s for b in whole for s in (b.body if isinstance(b, ast.With) else [b])]
    # The bodies of all orders: the others are written in place, or have kernels.
    made = [code for s in forward[:-1] if "rt.unrecorded(" not in (code := ast.unparse(s))]
    last = forward[-1]
    assert isinstance(last, ast.Return)
    several = isinstance(last.value, ast.Tuple)
    if not several and not (made and made[-1].startswith(f"{ast.unparse(last.value)} = ")):
        made.append(f"y = {ast.unparse(last.value)}")
    if "backward" not in defined:
        return made, None
    *body, _ = of_order(plain_tree(defined["backward"]).body, first=False)
    backward = [ast.unparse(s) for b in body for s in (b.body if isinstance(b, ast.If) else [b])]
    arguments = re.compile(r".*= ctx\.\w+$|.*= None$|return \(None,")
    return made, [t.replace("ctx.", "") for t in backward if not arguments.match(t)]


def tensor(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.rand(*shape, dtype=dtype) + 0.5


nothing_recognised = partial(
    without,
    *("convolution", "convolution within", "transposed convolution", "pooling"),
    *("windows", "every n-th", "known index", "digits", "run by digits", "digits of places"),
)
"""The general lowering alone: gathers, contractions and scatters."""


def results(f, tensors, parameters) -> list[torch.Tensor]:
    """Values, gradients and gradients of gradients."""
    leaves = [torch.tensor(v, requires_grad=True) for v in tensors.values()]
    y = f(*leaves, **parameters)
    rng = np.random.default_rng(0)
    G = torch.tensor(rng.normal(size=tuple(y.shape)), requires_grad=True)
    first = torch.autograd.grad(y, leaves, G, create_graph=True)
    total = sum((g * torch.tensor(rng.normal(size=tuple(g.shape)))).sum() for g in first)
    second = torch.autograd.grad(total, [*leaves, G], allow_unused=True)
    every = zip(second, [*leaves, G], strict=True)
    return [y, *first, *(torch.zeros_like(x) if g is None else g for g, x in every)]
