"""Legal calls: what torch does slowly or not at all is replaced, by rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from derive.algebra.substitution import replace
from derive.program.torch_ir import (
    Attribute,
    Code,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
)


@dataclass(frozen=True)
class Rule:
    """Replaces calls for a reason; ``examples`` are codes before and after, as text."""

    states: str
    call: Callable[[Code], tuple[str, tuple[Code, ...]] | None]
    """Returns the function and the arguments that replace a node, or None."""
    examples: Mapping[str, str]

    def __call__(self, code: Code) -> Code:
        """Return the code with all such calls replaced."""

        def visit(part: Code) -> Code | None:
            found = self.call(part)
            return None if found is None else FunctionCall(found[0], tuple(map(self, found[1])))

        return replace(code, visit)


_ALONG = {
    "torch.softmax": ("rt.softmax", 1, 2),
    "torch.log_softmax": ("rt.log_softmax", 1, 2),
    "torch._softmax_backward_data": ("rt.softmax_backward", 2, 3),
    "torch._log_softmax_backward_data": ("rt.log_softmax_backward", 2, 3),
    "gather": ("rt.gather", 1, 3),
    "scatter_add": ("rt.scatter_add", 1, 4),
}
"""call -> (its replacement, the position of the axis, how many arguments the replacement takes)"""


def _along_first_axes(code: Code) -> tuple[str, tuple[Code, ...]] | None:
    if isinstance(code, MethodCall | FunctionCall) and code.name in _ALONG:
        name, place, taken = _ALONG[code.name]
        axis = code.parts()[place]
        if isinstance(axis, Literal) and axis.text.isdigit():
            return name, code.parts()[:taken]
    return None


def _of_a_tensor(code: Code) -> tuple[str, tuple[Code, ...]] | None:
    match code:
        case FunctionCall("torch.arange", (size, Keyword("device", Attribute(Name() as x, _)))):
            return "rt.positions", (size, x)
    return None


def _of_reshape(code: Code) -> tuple[str, tuple[Code, ...]] | None:
    match code:
        case MethodCall(x, "flatten" | "unflatten" as name, (_, *_) as args):
            return f"rt.{name}", (x, *args)
    return None


legalize_group_axes = Rule(
    "along an axis that precedes a group, whose axes may have size 1 or be absent, torch takes ten "
    "times as long: for [512, 8192, 1] along 1 than for [512, 8192]",
    _along_first_axes,
    {
        "torch.log_softmax(torch.exp(x), 1).exp()": "rt.log_softmax(torch.exp(x), 1).exp()",
        "torch.softmax(x, 2)": "rt.softmax(x, 2)",
        "torch._softmax_backward_data(g, y, 1, y.dtype)": "rt.softmax_backward(g, y, 1)",
        "torch._log_softmax_backward_data(g, y, 1, y.dtype)": "rt.log_softmax_backward(g, y, 1)",
        "x.gather(1, n)": "rt.gather(x, 1, n)",
        "x.scatter_add(1, n, x.gather(1, n))": "rt.scatter_add(x, 1, n, rt.gather(x, 1, n))",
        "torch.softmax(x, -1)": "torch.softmax(x, -1)",
        "torch.softmax(x, dim)": "torch.softmax(x, dim)",
    },
)
legalize_arange = Rule(
    "positions have the tensor type of their operand: a DTensor does not combine with a Tensor",
    _of_a_tensor,
    {
        "torch.arange(3, device=x.device) < x": "rt.positions(3, x) < x",
        "torch.arange(3)": "torch.arange(3)",
    },
)
legalize_vmap_calls = Rule(
    "autograd's older vmap, of is_grads_batched and jacobian, has no rule for flatten and "
    "unflatten; a backward runs under it (einsum has no rule either, and no replacement)",
    _of_reshape,
    {
        "x.unflatten(0, (2, 3)).flatten(1, 2)": "rt.flatten(rt.unflatten(x, 0, (2, 3)), 1, 2)",
        "x.flatten()": "x.flatten()",
        "torch.exp(x)": "torch.exp(x)",
    },
)
RULES = (legalize_group_axes, legalize_arange, legalize_vmap_calls)
