"""Programs written by hand to exact text; the text of code; formatting of every source."""

import ast
import subprocess
import sys
from functools import partial

import pytest
import torch
from kit import texts
from kit.each import each_row
from kit.shared import written

import derive
from derive import catalog
from derive.module.arguments import ArgumentCheck
from derive.module.docstrings import Doc
from derive.module.emit import emit
from derive.module.function_codegen import Variant
from derive.module.name_mangling import coded
from derive.program.cse import Line
from derive.program.program import Program, Saved
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Conditional,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
    Subscript,
    Tuple,
    Unary,
    literal,
    text,
)
from derive.program.torch_ops import count

a, b, c, G = map(Name, "abcG")
DOC = Doc(("title", "", "    y[i] = ..."), ("Returns y.",))


def program(**given):
    """A program of one input x and one output y, whose gradient is G, unless told otherwise."""
    default = {
        "inputs": ("x",),
        "parameters": (),
        "outputs": ("y",),
        "forward": (Line("y", MethodCall(Name("x"), "clone")),),
        "differentiable": ("x",),
        "cotangents": (("y", "G"),),
        "saved": (),
        "kept_parameters": (),
        "kept_shapes": (),
        "backward": (Line("grad_x", G, needs=("x",)),),
        "gradients": {"x": "grad_x"},
    }
    return Program(**(default | given))


HEAD = '''\
"""title

    y[i] = ...
"""
# mypy: ignore-errors

'''
IMPORTS = """\
import torch

from . import _runtime as rt


"""
COPY = """\
class _Copy(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, y):
        pass

    @staticmethod
    def backward(ctx, G):
        grad_x = G
        return grad_x


"""
ONE = (
    HEAD
    + IMPORTS
    + COPY
    + '''\
def copy(x: torch.Tensor) -> torch.Tensor:
    """Returns y."""
    return rt.apply(_Copy, x)
'''
)


def test_the_least_module():
    op = derive.parse("op copy(x[i]) -> y\ny[i] = x[i]")
    assert emit(coded(op), [Variant(None, program())], [], DOC) == ONE


TWO = (
    HEAD
    + IMPORTS
    + '''\
class _ScaledExp(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, w, eps):
        e = torch.exp(x)
        y = e * w
        s = e + eps
        return y, s

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, w, ctx.eps = inputs
        ctx.save_for_backward(x, w if ctx.needs_input_grad[0] else None)

    @staticmethod
    def backward(ctx, G_y, G_s):
        x, w = ctx.saved_tensors
        grad_x = grad_w = None
        e = torch.exp(x)
        if ctx.needs_input_grad[0]:
            part = G_y * w + G_s
            grad_x = part * e * ctx.eps
        if ctx.needs_input_grad[1]:
            grad_w = G_y * e
        return grad_x, grad_w, None


def scaled_exp(
    x: torch.Tensor, w: torch.Tensor, eps: float = 0.5
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns y."""
    size = x.shape[0]
    if w.shape[0] != size:
        raise ValueError(f"w has {w.shape[0]}, not {size}")
    return rt.apply(_ScaledExp, x, w, eps)
'''
)


def test_two_inputs_a_parameter_and_two_outputs():
    op = derive.parse(
        "op scaled_exp(x[i], w[i]; eps=0.5) -> y, s\ny[i] = exp(x[i])*w[i]\ns[i] = exp(x[i]) + eps"
    )
    x, w, e, eps, G_y, G_s = map(Name, ("x", "w", "e", "eps", "G_y", "G_s"))
    made = program(
        inputs=("x", "w"),
        parameters=("eps",),
        outputs=("y", "s"),
        forward=(
            Line("e", FunctionCall("torch.exp", (x,))),
            Line("y", Binary("*", e, w)),
            Line("s", Binary("+", e, eps)),
        ),
        differentiable=("x", "w"),
        cotangents=(("y", "G_y"), ("s", "G_s")),
        saved=(Saved("x", ("x", "w")), Saved("w", ("x",))),
        kept_parameters=("eps",),
        backward=(
            Line("e", FunctionCall("torch.exp", (x,)), needs=("x", "w")),
            Line("part", Binary("+", Binary("*", G_y, w), G_s), needs=("x",)),
            Line("grad_x", Binary("*", Binary("*", Name("part"), e), eps), needs=("x",)),
            Line("grad_w", Binary("*", G_y, e), needs=("w",)),
        ),
        gradients={"x": "grad_x", "w": "grad_w"},
    )
    check = ArgumentCheck(
        "w.shape[0] != size",
        message="w has {w.shape[0]}, not {size}",
        prepare=("size = x.shape[0]",),
    )
    assert emit(coded(op), [Variant(None, made)], [check], DOC) == TWO


THREE = (
    HEAD
    + "from typing import Literal\n\n"
    + IMPORTS
    + COPY.replace("_Copy", "_PickAll")
    + '''\
class _PickSum(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.sum()

    @staticmethod
    def setup_context(ctx, inputs, s):
        x = inputs[0]
        ctx.x_shape = x.shape

    @staticmethod
    def backward(ctx, G):
        grad_x = G.expand(ctx.x_shape)
        return grad_x


_OPTIONS = {
    "all": _PickAll,
    "sum": _PickSum,
}


def pick(x: torch.Tensor, reduction: Literal["all", "sum"] = "all") -> torch.Tensor:
    """Returns y."""
    if reduction not in ("all", "sum"):
        raise rt.explained("pick", "x[i]; reduction in all|sum", x, reduction)
    function = _OPTIONS[reduction]
    return rt.apply(function, x)
'''
)


def test_a_choice_of_two_options():
    op = derive.parse(
        "op pick(x[i]; reduction=all|sum) -> all: y | sum: s\ny[i] = x[i]\ns = sum[i](y[i])"
    )
    expanded = MethodCall(G, "expand", (Name("x_shape"),))
    total = program(
        outputs=("s",),
        forward=(Line("s", MethodCall(Name("x"), "sum")),),
        cotangents=(("s", "G"),),
        kept_shapes=("x",),
        backward=(Line("grad_x", expanded, needs=("x",)),),
    )
    assert emit(coded(op), [Variant("all", program()), Variant("sum", total)], [], DOC) == THREE


def test_an_output_without_gradient_is_marked():
    op = derive.parse("op top(x[i]) -> y, k\ny = max[i](x[i])\nk = argmax[i](x[i])")
    both = MethodCall(Name("x"), "max", (literal(0),))
    made = program(
        outputs=("y", "k"),
        forward=(Line("y", Attribute(both, "values")), Line("k", Attribute(both, "indices"))),
        cotangents=(("y", "G"), ("k", None)),
        saved=(Saved("k", ("x",)),),
        backward=(Line("grad_x", Binary("*", G, Name("k")), needs=("x",)),),
    )
    source = emit(coded(op), [Variant(None, made)], [], DOC)
    assert (
        "        k = output[1]\n"
        "        ctx.mark_non_differentiable(k)\n"
        "        ctx.set_materialize_grads(False)\n"
        "        ctx.save_for_backward(k)\n"
    ) in source
    given = (
        "def backward(ctx, G, _grad_k):\n"
        "        if G is None:\n"
        "            return None\n"
        "        (k,) = ctx.saved_tensors\n"
    )
    assert given in source


def test_a_long_message_is_split_between_words_and_a_long_check_may_be_a_line():
    op = derive.parse("op copy(x[i]) -> y\ny[i] = x[i]")
    message = "copy: " + "word " * 30 + "{x.dim()}"
    check = ArgumentCheck("x.dim() != 1", message=message)
    source = emit(coded(op), [Variant(None, program())], [check], DOC)
    (raised,) = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Raise)]
    assert max(map(len, source.splitlines())) <= 88
    texts = [n.value for n in ast.walk(raised) if isinstance(n, ast.Constant)]
    assert "".join(texts) == message.replace("{x.dim()}", "")
    long = "x" * 90
    source = emit(coded(op), [Variant(None, program())], [ArgumentCheck(long, message="x")], DOC)
    (test,) = [ast.unparse(n.test) for n in ast.walk(ast.parse(source)) if isinstance(n, ast.If)]
    assert test == long


def test_names_of_which_no_two_fit_a_line_have_a_line_each():
    long = "the_values_of_a_tensor_with_quite_a_long_name_"
    op = derive.parse(
        f"op product({long}a[n], {long}b[n], {long}c[n]) -> y\n"
        f"y[n] = exp({long}a[n]*{long}b[n]*{long}c[n])"
    )
    inputs = [torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    assert torch.autograd.gradcheck(derive.load(op), inputs)
    source = derive.source(op)
    assert f"return (\n            grad_{long}a,\n" in source


def test_a_size_that_is_longer_than_a_line_is_computed_before_its_check():
    """That of the output by all that torch's transposed convolution has."""
    op = derive.parse(
        "op f(x[n,c,t], w[c,k], part; stride=1, padding=0, output_padding=0, dilation=1, "
        "size(u)=(size(t)-1)*stride-2*padding+dilation*(size(k)-1)+output_padding+1) -> y\n"
        "y[n,u] = part*sum[c,t,k | u == stride*t+dilation*k-padding](x[n,c,t]*w[c,k])"
    )
    assert (
        "    size = (\n"
        "        (x.shape[2] - 1) * stride\n"
        "        + dilation * (w.shape[1] - 1)\n"
        "        + output_padding\n"
        "        + 1\n"
        "        - 2 * padding\n"
        "    )\n"
        "    if size < 0:\n"
    ) in texts.source(op)
    x, w = torch.ones(2, 3, 4), torch.ones(3, 2)
    f = derive.load(op)
    assert f(x, w, torch.ones(()), padding=2).shape == (2, 1)
    with pytest.raises(ValueError, match="no value of index u keeps every access in bounds"):
        f(x, w, torch.ones(()), padding=4)


def test_a_long_size_may_read_the_shape_of_a_group():
    text = (
        "op f(x[*p,t,*q], w[k]; dim=axis(t), stride=1, padding=0, more=0, dilation=1, "
        "size(u)=floor((size(t)+2*padding+more-dilation*(size(k)-1)-1)/stride)+1) -> y\n"
        "y[*p,u,*q] = sum[k | 0 <= stride*u+dilation*k-padding < size(t)]"
        "(x[*p,stride*u+dilation*k-padding,*q]*w[k])"
    )
    f = derive.load(derive.parse(text))
    x, w = torch.ones(2, 5, 3), torch.ones(2)
    assert f(x, w, dim=1, padding=1, stride=2).shape == (2, 3, 3)
    with pytest.raises(ValueError, match="no value of index u"):
        f(x, w, dim=1, dilation=7)


def test_the_shape_of_a_group_behind_two_others_is_checked():
    op = derive.parse(
        "op f(x[*p,l,*q,i,*r], z[*p,l,*q,i,*r,j]; dim0=axis(l), dim1=axis(i)) -> y\n"
        "y[*p,*q,*r] = sum[l,i,j](x[*p,l,*q,i,*r]*z[*p,l,*q,i,*r,j])"
    )
    f = derive.load(op)
    x, z = torch.rand(2, 3, 4, 5, 6, 7), torch.rand(2, 3, 4, 5, 6, 7, 8)
    assert torch.allclose(f(x, z, dim0=1, dim1=3), (x * z.sum(6)).sum((1, 3)))
    message = r"\*r has shape \(6, 7\) in x but \(6, 6\) in z, from axis 4 on"
    with pytest.raises(ValueError, match=message):
        f(x, z[:, :, :, :, :, :6], dim0=1, dim1=3)


def test_what_a_person_wrote_cannot_leave_the_docstring():
    doc = Doc(('"""', "import os", "\\"), ('"""; x = 1; """',))
    op = derive.parse("op copy(x[i]) -> y\ny[i] = x[i]")
    tree = ast.parse(emit(coded(op), [Variant(None, program())], [], doc))
    assert ast.get_docstring(tree).splitlines()[1:] == ["import os", "\\"]
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.Import) and n.names[0].name == "os"]


@each_row(
    "code, written",
    [
        (Binary("*", Binary("+", a, b), c), "(a + b) * c"),
        (Binary("+", Binary("*", a, b), c), "a * b + c"),
        (Binary("-", a, Binary("-", b, c)), "a - (b - c)"),
        (Binary("-", Binary("-", a, b), c), "a - b - c"),
        (Binary("/", a, Binary("*", b, c)), "a / (b * c)"),
        (Binary("@", a, Binary("@", b, c)), "a @ (b @ c)"),
        (Binary("**", Unary("-", a), literal(2)), "(-a) ** 2"),
        (Unary("-", Binary("**", a, literal(2))), "-(a**2)"),
        (Binary("**", Binary("**", a, b), c), "(a**b) ** c"),
        (Binary("*", a, Unary("-", b)), "a * -b"),
        (Unary("-", Binary("+", a, b)), "-(a + b)"),
        (Unary("-", Binary("*", a, b)), "-(a * b)"),
        (MethodCall(Binary("+", a, b), "sum", (literal(0),)), "(a + b).sum(0)"),
        (MethodCall(Unary("-", a), "exp"), "(-a).exp()"),
        (MethodCall(literal(-1), "bit_length"), "(-1).bit_length()"),
        (Attribute(Binary("@", a, b), "mT"), "(a @ b).mT"),
        (Binary("&", Binary("==", a, b), Binary("<", b, c)), "(a == b) & (b < c)"),
        (Unary("~", Binary("==", a, b)), "~(a == b)"),
        (Conditional(a, b, c), "b if a else c"),
        (Binary("*", Conditional(a, b, c), a), "(b if a else c) * a"),
        (Tuple((a,)), "(a,)"),
        (Tuple(()), "()"),
        (Tuple((Unary("*", a), literal(1))), "(*a, 1)"),
        (Subscript(Attribute(a, "shape"), (literal(-1),)), "a.shape[-1]"),
        (
            MethodCall(a, "sum", (literal(1), Keyword("keepdim", Literal("True")))),
            "a.sum(1, keepdim=True)",
        ),
        (FunctionCall("torch.where", (Binary("<", a, b), a, b)), "torch.where(a < b, a, b)"),
    ],
)
def test_code_is_written_with_the_parentheses_it_needs(code, written):
    assert text(code) == written
    ast.parse(written, mode="eval")


def test_code_is_written_as_a_formatter_leaves_it():
    powers = [Binary("**", a, literal(2)), Binary("**", Attribute(a, "x"), literal(-3))]
    assert [text(p) for p in powers] == ["a**2", "a.x**-3"]
    assert text(Binary("**", MethodCall(a, "exp"), literal(2))) == "a.exp() ** 2"


def test_operations_are_counted_and_views_are_free():
    seen = Binary("@", Attribute(a, "mT"), MethodCall(b, "unsqueeze", (literal(0),)))
    assert count([seen]) == (0, 1)
    assert count([MethodCall(Binary("*", a, b), "sum", (literal(0),))]) == (2, 0)


WRITTEN = {
    "many inputs": (
        "op many(first[i,j], second[j,k], third[k,l], fourth[l,m]; epsilon=1e-5) -> result\n"
        "result[i,m] = sum[j,k,l](first[i,j]*second[j,k]*third[k,l]*fourth[l,m]) + epsilon"
    ),
    "powers": "op powers(x[i]) -> y\ny[i] = x[i]**(-3) + (1 + x[i]**2)**(-3/2) + x[i]**(1/3)",
    "negative powers": "op signs(x[i]; a=2) -> y\ny[i] = -x[i]**3 - a**2*(-x[i])**(1/3)",
    "a chain": "op chain(x[i]) -> y\n"
    + "".join(f"u{n}[i] = tanh({'x' if n == 0 else f'u{n - 1}'}[i])*x[i]\n" for n in range(8))
    + "y[i] = u7[i]",
    "guards": "op guards(x[i], T[i]: int) -> y\ny[i] = where(T[i] >= 0 and x[i] < 1, x[T[i]], 0)",
    "a choice with a long test": (
        "op total(a[i,j], b[j,i], c[j,i], d[j,i], e[j,i], f[j,i]) -> y\n"
        "y[i,j] = a[i,j] + b[j,i] + c[j,i] + d[j,i] + e[j,i] + f[j,i]"
    ),
    "run-time axes": (
        "op axes(A[*p,k,*q], w[k]; dim=axis(k, -1), keepdim=keep(k)) -> y\n"
        "y[*p,*q] = sum[k](A[*p,k,*q]*w[k])"
    ),
}


@pytest.fixture(scope="module")
def sources():
    found = {op.name: written(op) for op in catalog.operations()}
    return found | {name: texts.source(derive.parse(t)) for name, t in WRITTEN.items()}


def test_every_source_is_python_of_one_class_for_each_option(sources):
    for name, source in sources.items():
        tree = ast.parse(source)
        assert ast.get_docstring(tree), name
        every = [n for n in tree.body if isinstance(n, ast.ClassDef)]
        classes = [n for n in every if n.name not in ("_InPlace", "_Dual")]
        # What only rearranges is views, which autograd of torch follows.
        assert classes or "rt.apply" not in source, name
        for made in classes:
            methods = [n.name for n in made.body if isinstance(n, ast.FunctionDef)]
            moves = made.name.endswith("Dual")
            assert methods == (["tangent"] if moves else ["forward", "setup_context", "backward"])
        imported = {
            n.module if isinstance(n, ast.ImportFrom) else n.names[0].name
            for n in ast.walk(tree)
            if isinstance(n, ast.Import | ast.ImportFrom)
        }
        assert imported <= {"contextlib", "math", "typing", "torch", "torch.autograd", None}
        public = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name[0] != "_"]
        assert len(public) == 1


@pytest.mark.parametrize("command", [("format", "--check"), ("check",)], ids=["format", "lint"])
def test_a_formatter_leaves_every_source_alone(sources, tmp_path, command):
    for name, source in sources.items():
        (tmp_path / f"{name.replace(' ', '_')}.py").write_text(source, encoding="utf-8")
    config = ["--isolated", "--no-cache", "--line-length", "88", "--target-version", "py311"]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *command, *config, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_option_of_a_choice_gives_its_outputs_alone():
    """One option calls a kernel, the other keeps a statistic: both have a body of torch's own."""
    op = derive.parse(
        "op g(q[i,d], k[j,d], v[j,e]; reduction=none|sum) -> none: y | sum: m\n"
        "y[i,e] = sum[j](softmax[j](sum[d](q[i,d]*k[j,d]))*v[j,e])\n"
        "m = sum[i,e](y[i,e])"
    )
    tensors = tuple(torch.randn(s, dtype=torch.float64) for s in ((3, 4), (5, 4), (5, 2)))
    for option in ("none", "sum"):
        f = partial(derive.load(op), reduction=option)
        y, moved = torch.func.jvp(f, tensors, tensors)
        slopes = torch.func.jacrev(f, (0, 1, 2))(*tensors)
        whole = sum((s * x).flatten(y.dim()).sum(-1) for s, x in zip(slopes, tensors, strict=True))
        torch.testing.assert_close(moved, whole)


def test_the_default_of_a_number_is_written_as_its_type():
    source = derive.source(derive.parse("op f(x[n]; a=2, b=-1, c=0.5) -> y\ny[n] = a*x[n] + b*c"))
    assert "a: float = 2.0, b: float = -1.0, c: float = 0.5" in source
