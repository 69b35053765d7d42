"""The text of a file with one hand-written Function."""

from __future__ import annotations

from textwrap import dedent, indent

HEAD = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.autograd.function import once_differentiable
"""


def function(
    inputs: str, forward: str, cotangents: str, backward: str, mark: str = "", above: str = ""
) -> str:
    """A Function of these parameters and bodies; ``mark`` decorates backward."""
    lines = [
        *(HEAD, dedent(above), "class Written(torch.autograd.Function):"),
        *("    @staticmethod", f"    def forward(ctx, {inputs}):"),
        indent(dedent(forward).strip(), " " * 8),
        *(["    @staticmethod"] + ([f"    @{mark}"] if mark else [])),
        f"    def backward(ctx, {cotangents}):",
        indent(dedent(backward).strip(), " " * 8),
    ]
    return "\n".join(lines) + "\n"


def set_up(inputs: str, forward: str, setup: str, cotangents: str, backward: str) -> str:
    """A Function that has setup_context."""
    lines = [
        *(HEAD, "class Written(torch.autograd.Function):"),
        *("    @staticmethod", f"    def forward({inputs}):"),
        indent(dedent(forward).strip(), " " * 8),
        *("    @staticmethod", "    def setup_context(ctx, inputs, output):"),
        indent(dedent(setup).strip(), " " * 8),
        *("    @staticmethod", f"    def backward(ctx, {cotangents}):"),
        indent(dedent(backward).strip(), " " * 8),
    ]
    return "\n".join(lines) + "\n"
