"""What the code calls has a row, and helpers are what the table says."""

import re

from kit.command import ROOT

from derive.program.torch_ir import FunctionCall, MethodCall, Name
from derive.program.torch_ops import TORCH_OPS, torch_op


def test_a_function_of_python_is_no_operation_of_torch():
    a, b = Name("a"), Name("b")
    assert torch_op(MethodCall(a, "max", (b,))).keeps
    assert not torch_op(FunctionCall("max", (a, b))).keeps
    assert torch_op(FunctionCall("torch.nn.functional.pad", (a, b))).shape is TORCH_OPS["pad"].shape


def test_every_helper_has_a_row_and_a_function():
    folder = ROOT / "templates" / "helpers"
    written = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    rows = {name.removeprefix("rt.") for name in TORCH_OPS if name.startswith("rt.")}
    rooms = ("positions", "scans", "along", "views", "choices", "norms", "attention")
    called = "".join(written[room] for room in rooms).splitlines()
    kernels = written["norms"] + written["attention"]
    names = {line[4:].split("(")[0] for line in called if re.match("def [^_]", line)}
    own = set(re.findall(r"(?m)^def (\w+)", kernels))
    inside = {name for name in own if re.search(rf"(?<!def )\b{name}\b", kernels)}
    assert names - inside - {"reduced"} <= rows  # what a parameter chooses is no line of a program
    assert rows <= set(re.findall(r"(?m)^def (\w+)", "\n".join(written.values())))
