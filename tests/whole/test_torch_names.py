"""An operation that torch has too takes torch's arguments, or its docstring names the others."""

import inspect
import re

import torch
from kit.cases.case import generated
from kit.each import each_row

from derive import catalog

PLACES = (torch.nn.functional, torch, torch.special, torch.linalg, torch.Tensor)
RETIRED = {"size_average", "reduce", "inplace", "out", "dtype", "_stacklevel"}
"""Arguments that change no value, or that torch keeps for old code."""


def torch_arguments(name: str) -> list[str]:
    """The arguments of torch's function of this name, in order; empty where there is none."""
    function = next((f for place in PLACES if (f := getattr(place, name, None))), None)
    if function is None:
        return []
    try:
        names = list(inspect.signature(function).parameters)
    except ValueError:
        names = []
    if names in ([], ["args", "kwargs"]):
        said = re.search(rf"\b{name}\(([^)]*)\)", function.__doc__ or "")
        texts = said[1].split(",") if said else []
        names = [re.split(r"[=:]", text)[0].strip() for text in texts]
    return [n for n in names if n.isidentifier() and n not in RETIRED]


SHARED = [name for name in catalog.names() if torch_arguments(name)]


def test_torch_has_most_of_the_catalog():
    assert len(SHARED) > 120
    assert torch_arguments("max_pool2d")[:3] == ["input", "kernel_size", "stride"]
    assert torch_arguments("addmm") == ["input", "mat1", "mat2", "beta", "alpha"]


@each_row("name", SHARED)
def test_arguments_are_those_of_torch_or_named_in_the_docstring(name):
    function, theirs = generated(name), torch_arguments(name)
    ours = list(inspect.signature(function).parameters)
    said = set(re.findall(r"\w+", function.__doc__))
    assert not [argument for argument in theirs if argument not in ours and argument not in said]
    shared = [argument for argument in theirs if argument in ours]
    moved = shared != [argument for argument in ours if argument in theirs]
    assert not moved or "before" in said or "by name" in function.__doc__


X, W, B = torch.randn(2, 3, 8), torch.randn(4, 3, 2), torch.randn(4)
CALLS = {
    "softmax": (torch.softmax, X, -1),
    "elu": (torch.nn.functional.elu, X, 0.7),
    "conv1d": (torch.conv1d, X, W, B, 2, 1),
    "max_pool2d": (torch.nn.functional.max_pool2d, X[None], 2, 1),
    "huber_loss": (torch.nn.functional.huber_loss, X, X.flip(2), "sum", 0.5),
    "amax": (torch.amax, X, 1, True),
}


@each_row("name", CALLS)
def test_a_call_by_position_is_that_of_torch(name):
    function, *arguments = CALLS[name]
    torch.testing.assert_close(generated(name)(*arguments), function(*arguments))
