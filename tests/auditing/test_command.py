"""``derive audit`` on the command line, and the fixture in a test of one's own."""

import importlib
import json
import sys

import pytest
import torch
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
        "unjudged": "",
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


def test_the_fixture_fails_a_test_with_the_report(folder, derive_audit, caplog):
    products = importlib.import_module("products")
    given = torch.randn(3), torch.randn(3)
    assert derive_audit(products.Product, *given).right
    with pytest.raises(pytest.fail.Exception, match="wrong: the factor 2 is too many") as caught:
        derive_audit(products.Wrong, *given)
    assert not caught.value.pytrace and not caplog.records
