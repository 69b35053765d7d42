"""The text of a file with one hand-written Function."""

from collections.abc import Callable, Mapping
from textwrap import dedent, indent

from kit.each import try_all

from derive.linting.lint import lint

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


def codes(text: str, second: bool = False) -> list[str]:
    """The findings in a file: of second derivatives, or all others."""
    return [f.code for f in lint(text).findings if (f.code > "DRV4") == second]


def assert_rule(
    code: str,
    wrong: Mapping[str, str],
    right: Mapping[str, str],
    text: Callable[[str], str] = str,
    alone: bool = True,
) -> None:
    """Each wrong row has this finding, alone if not told otherwise, and no right one has any."""

    def check(name: str, row: str) -> None:
        found = codes(text(row), code > "DRV4")
        wanted = [code] * (rows is wrong)
        assert found == wanted if alone else (code in found) == bool(wanted)

    for rows in (wrong, right):
        try_all(rows.items(), check)
