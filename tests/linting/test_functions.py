"""Which classes are Functions, by every form of import."""

import pytest
from kit.each import each_row
from kit.written import function

from derive.linting.lint import lint

BODY = """
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.x * g
"""
FORMS = {
    "torch.autograd": "import torch\nclass A(torch.autograd.Function):",
    "torch.autograd.function": "import torch\nclass A(torch.autograd.function.Function):",
    "the name": "from torch.autograd import Function\nclass A(Function):",
    "the module": "from torch import autograd\nclass A(autograd.Function):",
    "the function module": "from torch.autograd.function import Function\nclass A(Function):",
    "another name": "from torch.autograd import Function as F\nclass A(F):",
    "another name of torch": "import torch as t\nclass A(t.autograd.Function):",
    "another name of the module": "import torch.autograd as ag\nclass A(ag.Function):",
    "a star": "from torch.autograd import *\nclass A(Function):",
    "an assignment": "import torch\nF = torch.autograd.Function\nclass A(F):",
    "within a function": "def f():\n    from torch.autograd import Function\nclass A(Function):",
    "when it is there": "try:\n    import torch\nexcept ImportError:\n    torch = None\n"
    "class A(torch.autograd.Function):",
    "a base of the file": "import torch\nclass B(torch.autograd.Function):\n    pass\nclass A(B):",
    "a base of a base": "import torch\nclass C(torch.autograd.Function):\n    pass\n"
    "class B(C):\n    pass\nclass A(B):",
}
OTHERS = {
    "another class": "import torch\nclass A(torch.nn.Module):",
    "no base": "class A:",
    "another library": "from paddle.autograd import Function\nclass A(Function):",
    "an unknown base": "from mine import Function\nclass A(Function):",
    "two meanings": "from torch.autograd import Function\nfrom mine import Function\n"
    "class A(Function):",
    "itself": "class A(A):",
    "two bases": "import torch\nclass A(torch.autograd.Function, Mixin):",
}


@each_row("head", FORMS.values())
def test_a_function(head):
    linted = lint(head + BODY)
    assert [f.code for f in linted.findings] == ["DRV101"]
    assert linted.findings[0].function == "A"


@each_row("head", OTHERS.values())
def test_another_class(head):
    linted = lint(head + BODY)
    assert not linted.findings
    assert not linted.functions


def test_methods_of_a_base_are_read_once():
    text = "import torch\nclass B(torch.autograd.Function):" + BODY
    text += "class A(B):\n    @staticmethod\n    def backward(ctx, g):\n        return ctx.x * g\n"
    linted = lint(text)
    assert [f.code for f in linted.findings] == ["DRV101"]
    assert linted.functions == 2


def test_a_function_without_backward_is_counted():
    linted = lint("import torch\nclass A(torch.autograd.Function):\n    pass\n")
    assert linted == ([], 1)


@pytest.mark.parametrize(
    "backward",
    [
        "if FAST:\n        def backward(ctx, g):\n            return g.mul_(2)",
        "backward = staticmethod(mine)",
        "async def backward(ctx, g):\n        return g.mul_(2)",
    ],
)
def test_a_backward_that_is_no_plain_method(backward):
    text = "import torch\nclass A(torch.autograd.Function):\n    @staticmethod\n"
    text += f"    def forward(ctx, x):\n        return x\n    {backward}\n"
    assert not lint(text).findings


def test_nested_functions_and_matches_are_left_alone():
    """A Function that the linter cannot follow has no findings that depend on it."""
    text = function(
        "x, n",
        "match n:\n    case 1:\n        y = x\n    case _:\n        y = x * 2\nreturn y",
        "g",
        "def inner():\n    return g.mul_(2)\nh = [inner() for _ in range(2)]\nreturn h[0], None",
    )
    assert not lint(text).findings


@each_row(
    "forward",
    [
        "for i in range(3):\n    x = x * 2\nelse:\n    x = x + 1\nreturn x",
        "while n > 0:\n    n -= 1\n    x = x + n\nreturn x",
        "try:\n    y = f(x)\nexcept ValueError as error:\n    y = x\nfinally:\n    f(x)\nreturn y",
        "with f(x) as y:\n    z = x * y\nreturn z",
        "y, *rest = f(x)\n(a, b), c = rest\nreturn y + a",
        "if (m := f(x)) is None:\n    return x\nreturn x * m",
        "ys = []\nfor y in x.unbind(0):\n    ys.append(y * 2)\nreturn torch.stack(ys)",
        "y = {**f(x)}['a']\nreturn lambda: y",
        "assert x.dim() == 2, f'{x}'\nglobal n\ndel n\nreturn x[:, None, ..., 1:2] @ x.T",
    ],
)
def test_every_statement_is_followed(forward):
    assert not lint(function("x, n=1", forward, "g", "return f(g), None")).findings


OPERATOR = """
import torch

@torch.library.custom_op("mine::product", mutates_args=())
def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * w

def keep(ctx, inputs, output):
    ctx.x, w = inputs
    ctx.save_for_backward(w)

def back(ctx, g):
    (w,) = ctx.saved_tensors
    return g * w
"""


@pytest.mark.parametrize(
    ("registered", "codes"),
    [
        ("product.register_autograd(back, setup_context=keep)", ["DRV101", "DRV201"]),
        (
            "torch.library.register_autograd(product, back, setup_context=keep)",
            ["DRV101", "DRV201"],
        ),
        ("torch.library.register_autograd('mine::product', back)", ["DRV201"]),
        ("product.register_autograd(lambda ctx, g: g)", []),
        ("other.register_autograd(back, setup_context=keep)", []),
        ("torch.library.register_autograd()", []),
    ],
)
def test_a_custom_operator(registered, codes):
    linted = lint(f"{OPERATOR}\n{registered}\n")
    assert [f.code for f in linted.findings] == codes
    assert linted.functions == bool(codes)
    assert all(f.function == "product" for f in linted.findings)
