"""What generated code makes is on the device of its inputs."""

import ast
from pathlib import Path

from kit.each import each_row

GENERATED = sorted((Path(__file__).parents[2] / "generated").glob("*.py"))
MAKES = "arange empty eye full linspace ones randn scalar_tensor tensor zeros".split()


@each_row("path", GENERATED)
def test_each_new_tensor_says_its_device(path):
    for part in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
            of = part.func.value
            if isinstance(of, ast.Name) and of.id == "torch" and part.func.attr in MAKES:
                said = [keyword.arg for keyword in part.keywords]
                assert "device" in said, ast.unparse(part)
