"""``derive audit`` on the command line, and the fixture in a test of one's own."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from derive.command.cli import app
from derive.errors import DeriveError

FUNCTIONS = """
import torch


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w, g * x


class Wrong(Product):
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w, 2 * g * x
"""

EXAMPLES = """
import torch


def examples():
    return [[torch.randn(3, 4), torch.randn(3, 4)], [torch.randn(5, 2), torch.randn(5, 2)]]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "products.py").write_text(FUNCTIONS)
    (tmp_path / "examples_of_products.py").write_text(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("products", None)


def audit(name, *more):
    return CliRunner().invoke(app, ["audit", name, "--example", "examples_of_products.py", *more])


def test_the_exit_code_says_right_or_wrong(folder):
    right = audit("products:Product")
    assert (right.exit_code, right.stdout.splitlines()[0]) == (0, "Product: right")
    wrong = audit("products.py:Wrong")
    assert wrong.exit_code == 1
    assert "w  wrong: the factor 2 is too many" in wrong.stdout


def test_json(folder):
    found = json.loads(audit("products:Wrong", "--json").stdout)
    assert found["right"] is False
    assert found["verdict"] == "wrong"
    assert found["rows"][1] == {
        "input": "w",
        "right": False,
        "wrong": "the factor 2 is too many",
        "fragile": "",
        "constant": "",
    }


def test_fix_writes_the_derived_backward(folder):
    made = audit("products:Wrong", "--fix", "fixed.py", "--reference", "y[n,k] = x[n,k]*w[n,k]")
    assert made.exit_code == 1
    assert "class " in (folder / "fixed.py").read_text()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("products", "is not a name"),
        ("products:Missing", "has no Missing"),
        ("nowhere_at_all:Wrong", "cannot be imported"),
        ("products:torch", "not a torch.autograd.Function"),
    ],
)
def test_what_cannot_be_judged_is_an_error(folder, name, said):
    made = audit(name)
    assert isinstance(made.exception, DeriveError)
    assert said in str(made.exception)


def test_the_fixture_fails_a_test_with_the_report(folder):
    (folder / "conftest.py").write_text("from derive.auditing.fixture import derive_audit\n")
    (folder / "test_products.py").write_text(
        "import torch\nfrom products import Product, Wrong\n\n"
        "ARGS = torch.randn(3), torch.randn(3)\n"
        "def test_right(derive_audit):\n    derive_audit(Product, *ARGS)\n\n"
        "def test_wrong(derive_audit):\n    derive_audit(Wrong, *ARGS)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout
    assert "1 failed, 1 passed" in ran.stdout
    assert "wrong: the factor 2 is too many" in ran.stdout
    assert "Captured log" not in ran.stdout
