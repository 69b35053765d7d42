"""Tensors, parameters and operations that are called as the code calls something of its own."""

import builtins
import subprocess
import symtable
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from kit.each import each_row

from derive.api import derivation, load, source
from derive.check.checks import verify_source
from derive.joint import value_and_grad
from derive.memory import imported
from derive.module.name_mangling import OWN, coded
from derive.module.runtime import FILE, runtime
from derive.notation.advice import WORDS
from derive.notation.specification import parse

NAMES = sorted(OWN)
NUMBERS = [name for name in NAMES if name not in WORDS]
"""Words of the notation are no parameters."""

ODD = (
    "op torch(len[i,j], math[j]; norm=2, tuple=axis(j), type=mean|sum) -> mean: slice | sum: ctx\n"
    "max[i] = logsumexp[j](norm*len[i,j]*math[j])\nslice = mean[i](max[i]**2)\n"
    "ctx[j] = sum[i](max[i]*exp(len[i,j]))"
)


def globals_of(table: symtable.SymbolTable) -> Iterator[str]:
    for symbol in table.get_symbols() if table.get_type() == "function" else ():
        if symbol.is_global():
            yield symbol.get_name()
    for inner in table.get_children():
        yield from globals_of(inner)


def test_every_name_that_the_generated_modules_use_is_known():
    shared = symtable.symtable(runtime(), FILE, "exec")
    known = {*shared.get_identifiers(), *dir(builtins)}
    assert {name for name in globals_of(shared) if name[:2] != "__"} <= known
    for path in sorted((Path(__file__).parents[2] / "generated").glob("*.py")):
        found = set(globals_of(symtable.symtable(path.read_text(), str(path), "exec")))
        names = {name for name in found if not name.startswith("_")}
        assert path.name == FILE or names <= OWN, path.name


def test_ordinary_names_are_the_same_in_the_code():
    op = parse("y[i] = input[i]*output[i]")
    assert coded(op).operation is op


@pytest.mark.parametrize("style", ["production", "plain"])
def test_tensors_that_are_called_as_shapes_are(style):
    """The shape of x is x_shape in code, that of an output in a group *p is p_shape."""
    op = parse(
        "op f(x[*p,k], x_shape[k], p_shape) -> shape\n"
        "mean_shape = mean[k](x_shape[k])\n"
        "shape[*p] = sum[k](x[*p,k]*x_shape[k])*mean_shape + p_shape"
    )
    given = [torch.randn(sizes, dtype=torch.float64) for sizes in ([2, 3, 4], [4], [])]
    leaves = [t.requires_grad_() for t in given]
    f = imported("f", source(op, style=style)).f

    def plain(x, w, b):
        return x @ w * w.mean() + b

    assert torch.autograd.gradcheck(f, leaves)
    assert torch.autograd.gradgradcheck(f, leaves)
    torch.testing.assert_close(f(*given), plain(*given))


def test_tensors_of_every_such_name():
    text = " + ".join(f"{n + 1}*{name}[i]**2" for n, name in enumerate(NAMES))
    f = load(parse(f"op f({', '.join(f'{name}[i]' for name in NAMES)}) -> y\ny[i] = {text}"))
    tensors = [torch.tensor([1.0, n], requires_grad=True) for n in range(len(NAMES))]
    y = f(*tensors)
    assert torch.allclose(y, sum((n + 1) * t**2 for n, t in enumerate(tensors)))
    for n, gradient in enumerate(torch.autograd.grad(y.sum(), tensors)):
        assert torch.equal(gradient, torch.tensor([2.0 * (n + 1), 2.0 * (n + 1) * n]))


def test_equations_of_every_such_name():
    before = ["x", *NAMES]
    lines = [f"{a}[i] = {b}[i]*cos(x[i])" for b, a in zip(before, NAMES, strict=False)]
    op = parse(f"op f(x[i]) -> y, {NAMES[-1]}\n" + "\n".join(lines) + "\ny[i] = cos(x[i])")
    x = torch.tensor([0.3, 0.4, 0.5], requires_grad=True)
    (found,) = torch.autograd.grad(sum(t.sum() for t in load(op)(x)), x)
    wanted = (x * x.cos() ** len(NAMES) + x.cos()).sum()
    torch.testing.assert_close(found, torch.autograd.grad(wanted, x)[0])


def test_parameters_of_every_such_name():
    given = ", ".join(f"{name}={n}.5" for n, name in enumerate(NUMBERS))
    op = parse(f"op f(x[i]; {given}) -> y\ny[i] = sin(x[i])*({' + '.join(NUMBERS)})")
    x = torch.tensor([0.3, 0.4], requires_grad=True)
    total = sum(n + 0.5 for n in range(len(NUMBERS)))
    y = load(op)(x, **{NUMBERS[1]: 10})
    torch.testing.assert_close(y, x.sin() * (total + 8.5))
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], x.cos() * (total + 8.5))


@each_row("name", [n for n in NAMES if hasattr(builtins, n)] + ["torch", "math"], turns=3)
def test_an_operation_of_such_a_name(name):
    op = parse(
        f"op {name}(x[*p,k], w[u]=1; n=size(u), c=2, r=mean|sum) -> mean: m | sum: s\n"
        "l[*p] = logsumexp[k](x[*p,k]*c)\nm = mean[*p](l[*p])\ns = sum[*p](l[*p])*w[0]*pi"
    )
    x = torch.rand(2, 3, 4, requires_grad=True)
    (found,) = torch.autograd.grad(load(op)(x, n=2, r="sum"), x)
    wanted = (x * 2).logsumexp(-1).sum() * torch.pi
    torch.testing.assert_close(found, torch.autograd.grad(wanted, x)[0])


def test_an_index_of_such_a_name():
    op = parse("op f(x[torch,*len], w[torch]) -> y; y[*len] = sum[torch](x[torch,*len]*w[torch])")
    verify_source(op, source(op))


def test_a_module_of_such_names_is_right_and_says_the_names_that_were_given():
    op = parse(ODD)
    verify_source(op, source(op))
    f = load(op)
    with pytest.raises(TypeError, match=r"^torch: len must be a tensor, not list$"):
        f([1], torch.ones(3), tuple=1)
    with pytest.raises(ValueError, match=r"^torch: index j has size 3 on axis 1 of len but 4 on"):
        f(torch.ones(2, 3), torch.ones(4), tuple=1)
    with pytest.raises(TypeError, match=r"^torch: tuple must be an integer, not 'a'$"):
        f(torch.ones(2, 3), torch.ones(3), tuple="a")
    with pytest.raises(ValueError, match=r"^torch: type must be one of 'mean', 'sum', not 'max'$"):
        f(torch.ones(2, 3), torch.ones(3), tuple=1, type="max")
    assert derivation(op).saved == ("len", "math", "max")


def test_the_module_is_formatted():
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--check", "-"]
    text = source(parse(ODD))
    assert subprocess.run(command, input=text, text=True, capture_output=True).returncode == 0


def test_outputs_and_gradients_by_the_names_that_were_given():
    op = parse("op f(len[i,j], math[j]) -> ctx\nmax[j] = sum[i](len[i,j])\nctx[j] = max[j]*math[j]")
    x, w = torch.rand(2, 3), torch.rand(3)
    G = torch.rand(3)
    y, gradients = value_and_grad(op, wrt=["math", "max"], of="ctx")(x, w, G=G)
    torch.testing.assert_close(y, x.sum(0) * w)
    assert list(gradients) == ["math", "max"]
    torch.testing.assert_close(gradients["math"], G * x.sum(0))
    torch.testing.assert_close(gradients["max"], G * w)


@pytest.mark.parametrize("name", ["output", "inputs", "result"])
def test_an_input_of_a_name_that_setup_context_has(name):
    more = [f"a_tensor_with_a_long_name_{n}" for n in range(4)]
    given = ", ".join(f"{n}[i]" for n in (name, *more, "silent"))
    op = parse(
        f"op f({given}) -> y, z\ns = sum[i](abs({name}[i]))\n"
        f"y[i] = exp({'*'.join(f'{n}[i]' for n in (name, *more))})*s + silent[i]\nz = s**2"
    )
    verify_source(op, source(op))


@pytest.mark.parametrize("name", ["forms", "formed", "function", "forward", "values"])
def test_a_tensor_of_a_name_that_blocks_of_a_choice_have(name):
    op = parse(
        f"op f({name}[n,d], w[d]; reduction=mean|none) -> mean: m | none: y\n"
        f"y[n] = sum[d]({name}[n,d]*w[d])**2\nm = mean[n](y[n])"
    )
    x, w = torch.rand(5, 3), torch.rand(3)
    for reduction, want in {"mean": ((x @ w) ** 2).mean(), "none": (x @ w) ** 2}.items():
        torch.testing.assert_close(load(op, blocks="n")(x, w, reduction=reduction), want)
