"""``derive lint``: what is printed, exit codes, and the settings of a project."""

import json
import sys

import pytest
from kit.command import derive, run

CHANGED = """\
import torch
class A(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return 2 * x
    @staticmethod
    def backward(ctx, g):
        return g.mul_(2)
"""
FIRST = "a.py:5:9: DRV101 `ctx.x` holds the input `x`; keep tensors with save_for_backward\n"
SECOND = "a.py:9:16: DRV303 backward changes a cotangent in place; other nodes may read it\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.py").write_text(CHANGED, encoding="utf-8")
    (tmp_path / "b.py").write_text("x = 1\n", encoding="utf-8")
    return tmp_path


def lint(folder, *arguments):
    return derive("lint", *arguments, cwd=folder)


def test_findings_and_their_number(folder):
    done = lint(folder)
    assert done.stdout == FIRST + SECOND + "2 findings in 1 Function of 1 file\n"
    assert done.returncode == 1
    assert lint(folder, "a.py").stdout == done.stdout
    assert lint(folder, folder).stdout == done.stdout


def test_nothing_is_found(folder):
    done = lint(folder, "b.py")
    assert (done.returncode, done.stdout) == (0, "no findings in 0 Functions of 0 files\n")
    assert lint(folder, "b.py", "-q").stdout == ""


def test_quiet_has_findings_alone(folder):
    assert lint(folder, "-q").stdout == FIRST + SECOND


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--select", "DRV303"], SECOND),
        (["--select", "DRV3"], SECOND),
        (["--select", "drv1,DRV3"], FIRST + SECOND),
        (["--select", "DRV1", "--select", "DRV303"], FIRST + SECOND),
        (["--ignore", "DRV1"], SECOND),
        (["--select", "DRV", "--ignore", "DRV303"], FIRST),
        (["--select", "ALL", "--ignore", "DRV1,DRV3"], ""),
    ],
)
def test_chosen_rules(folder, options, shown):
    done = lint(folder, "-q", *options)
    assert done.stdout == shown
    assert done.returncode == bool(shown)


def test_json(folder):
    first, second = json.loads(lint(folder, "--json").stdout)
    assert second == {**first, **second}
    assert first["file"] == "a.py"
    assert (first["line"], first["column"], first["code"]) == (5, 9, "DRV101")
    assert first["function"] == "A"
    assert json.loads(lint(folder, "b.py", "--json").stdout) == []


def test_annotations(folder):
    done = lint(folder, "--format", "github", "--select", "DRV3")
    where = "file=a.py,line=9,col=16"
    assert done.stdout == f"::error title=derive (DRV303),{where}::{SECOND}"
    assert done.returncode == 1


def test_a_syntax_error_has_a_place_and_stops_no_other_file(folder):
    (folder / "bad.py").write_text("class Function(:\n", encoding="utf-8")
    done = lint(folder)
    assert done.stderr.startswith("derive: bad.py:1:16: ")
    assert SECOND in done.stdout
    assert done.returncode == 2


def test_files_that_cannot_be_read(folder):
    (folder / "bytes.py").write_bytes(b"# Function \xff\n")
    done = lint(folder, "bytes.py", "missing.py", "b.py")
    assert done.returncode == 2
    assert "bytes.py: " in done.stderr
    assert "missing.py: No such file" in done.stderr


@pytest.mark.parametrize(
    "options",
    [["--select", "E501"], ["--ignore", "DRV9"], ["--explain", "DRV1"], ["--format", "x"]],
)
def test_wrong_usage(folder, options):
    done = lint(folder, *options)
    assert done.returncode == 2
    assert not done.stdout


def test_the_page_of_a_rule(folder):
    done = lint(folder, "--explain", "DRV303")
    assert done.stdout.startswith("DRV303: Backward changes a cotangent in place.\n\n**What.**")
    assert done.returncode == 0


def test_settings_of_a_project(folder):
    table = '[tool.derive.lint]\nselect = ["DRV3", "DRV1"]\nignore = ["DRV1"]\nexclude = ["old"]\n'
    (folder / "pyproject.toml").write_text(table, encoding="utf-8")
    (folder / "old").mkdir()
    (folder / "old" / "a.py").write_text(CHANGED, encoding="utf-8")
    assert lint(folder, "-q").stdout == SECOND
    assert lint(folder, "-q", "--ignore", "DRV4").stdout == FIRST + SECOND
    assert lint(folder, "-q", "--select", "DRV4").stdout == ""


@pytest.mark.parametrize(
    "table",
    ["[tool.derive.lint]\nselct = []\n", '[tool.derive.lint]\nselect = "DRV"\n',
     "[tool.derive]\nlint = 1\n", '[tool.derive.lint]\nselect = ["E"]\n'],
)  # fmt: skip
def test_wrong_settings(folder, table):
    (folder / "pyproject.toml").write_text(table, encoding="utf-8")
    done = lint(folder)
    assert done.returncode == 2
    assert done.stderr.startswith("derive: ")


def test_torch_is_not_imported(folder):
    code = "import sys; sys.argv = ['derive', 'lint', 'a.py']\n"
    code += "from derive.command.cli import main\n"
    code += "try: main()\nexcept SystemExit: assert 'torch' not in sys.modules\n"
    done = run(sys.executable, "-c", code, cwd=folder)
    assert done.returncode == 0, done.stderr
