"""DRV4xx: second derivatives."""

from kit.each import each_row
from kit.written import function, set_up

from derive.linting.lint import lint


def codes(text):
    return [finding.code for finding in lint(text).findings if finding.code > "DRV4"]


SCALE = "s = x.norm()\nctx.save_for_backward(x, s)\nreturn x / s"
USE = "x, s = ctx.saved_tensors\nreturn g / s - x * (g * x).sum() / s**3"
CONSTANT = {
    "an intermediate": function("x", SCALE, "g", USE),
    "a view of the input": function(
        "x",
        "ctx.save_for_backward(x.view(-1))\nreturn x**3",
        "g",
        "x, = ctx.saved_tensors\nreturn g * 3 * x.view(g.shape)**2",
    ),
    "an output before a view": function(
        "x",
        "y = x.exp()\nctx.save_for_backward(y)\nreturn y.t()",
        "g",
        "y, = ctx.saved_tensors\nreturn g.t() * y",
    ),
    "the values of max": function(
        "x",
        "m, i = x.max(0)\nctx.save_for_backward(m, i)\nreturn m * m",
        "g",
        "m, i = ctx.saved_tensors\nreturn 2 * m * g",
    ),
    "by in-place steps": function(
        "x",
        SCALE,
        "g",
        "x, s = ctx.saved_tensors\ny = torch.zeros_like(x)\ny.add_(g / s)\nreturn y",
    ),
    "a part": function(
        "x", SCALE, "g", "x, s = ctx.saved_tensors\ny = torch.empty_like(x)\ny[0] = g * s\nreturn y"
    ),
    "a name bound anew": function(
        "x",
        "y = x.exp()\nctx.save_for_backward(y)\ny = y * 2\nreturn y",
        "g",
        "y, = ctx.saved_tensors\nreturn 2 * y * g",
    ),
    "a view in setup_context": set_up(
        "x",
        "return x**3",
        "ctx.save_for_backward(inputs[0].view(-1))",
        "g",
        "x, = ctx.saved_tensors\nreturn g * 3 * x.view(g.shape)**2",
    ),
}
FINE = {
    "once": function("x", SCALE, "g", USE, mark="once_differentiable"),
    "the input": function(
        "x",
        "ctx.save_for_backward(x)\nreturn x * x",
        "g",
        "x, = ctx.saved_tensors\nreturn 2 * x * g",
    ),
    "the output": function(
        "x",
        "y = x.exp()\nctx.save_for_backward(y)\nreturn y",
        "g",
        "y, = ctx.saved_tensors\nreturn y * g",
    ),
    "the output of a view": function(
        "x",
        "y = x.exp()\ny = y.view(-1)\nctx.save_for_backward(y)\nreturn y",
        "g",
        "y, = ctx.saved_tensors\nreturn y * g",
    ),
    "a mask": function(
        "x",
        "m = (x > 0).float()\nctx.save_for_backward(m)\nreturn x * m",
        "g",
        "m, = ctx.saved_tensors\nreturn g * m",
    ),
    "a sign": function(
        "x",
        "s = x.sign()\nctx.save_for_backward(s)\nreturn x.abs()",
        "g",
        "s, = ctx.saved_tensors\nreturn g * s",
    ),
    "positions": function(
        "x",
        "m, i = x.max(0)\nctx.save_for_backward(i)\nreturn m",
        "g",
        "i, = ctx.saved_tensors\nreturn f(g, i)",
    ),
    "a draw": function(
        "x",
        "m = torch.rand_like(x)\nctx.save_for_backward(m)\nreturn x * m",
        "g",
        "m, = ctx.saved_tensors\nreturn g * m",
    ),
    "of an input without a gradient": function(
        "x, t",
        "s = t.exp()\nctx.save_for_backward(s)\nreturn x * s",
        "g",
        "s, = ctx.saved_tensors\nreturn g * s, None",
    ),
    "not used": function("x", SCALE, "g", "x, s = ctx.saved_tensors\nreturn g * x"),
    "a test": function("x", SCALE, "g", "x, s = ctx.saved_tensors\nreturn g * x * (s > 1)"),
    "a helper's": function(
        "x",
        "y, s = f(x)\nctx.save_for_backward(s)\nreturn y",
        "g",
        "s, = ctx.saved_tensors\nreturn g * s",
    ),
    "maybe the input": function(
        "x",
        "x = x.contiguous()\nctx.save_for_backward(x)\nreturn x * x",
        "g",
        "x, = ctx.saved_tensors\nreturn 2 * x * g",
    ),
    "a graph of its own": function(
        "x",
        "with torch.enable_grad():\n    y = x.exp()\nctx.save_for_backward(y)\nreturn y * 2",
        "g",
        "y, = ctx.saved_tensors\nreturn 2 * y * g",
    ),
    "a guard": function(
        "x", SCALE, "g", "if torch.is_grad_enabled():\n    raise RuntimeError\n" + USE
    ),
    "an odd decorator": function("x", SCALE, "g", USE, mark="mine"),
}


@each_row("text", CONSTANT.values())
def test_a_saved_intermediate(text):
    assert codes(text) == ["DRV401"]


@each_row("text", FINE.values())
def test_no_saved_intermediate(text):
    assert codes(text) == []


SAVE = "ctx.save_for_backward(x)\nreturn x * x"
READ = "x, = ctx.saved_tensors\n"
LAUNCH = """
    def launch(g, x):
        y = torch.empty_like(x)
        kernel[(x.numel(),)](g, x, y)
        return y

    def twice(g, x):
        return launch(g, x)
"""
LOST = {
    "detach": function("x", SAVE, "g", READ + "return 2 * x.detach() * g"),
    "detach of the cotangent": function("x", SAVE, "g", READ + "return 2 * x * g.detach()"),
    "data": function("x", SAVE, "g", READ + "return 2 * x.data * g"),
    "item": function("x", SAVE, "g", READ + "return 2 * x * g.sum().item()"),
    "float": function("x", SAVE, "g", READ + "return 2 * x * float(g.sum())"),
    "numpy": function(
        "x", SAVE, "g", READ + "return torch.from_numpy(2 * x.numpy() * g.detach().numpy())"
    ),
    "no_grad": function(
        "x", SAVE, "g", READ + "with torch.no_grad():\n    y = 2 * x * g\nreturn y"
    ),
    "autograd.grad": function(
        "x",
        SAVE,
        "g",
        READ + "with torch.enable_grad():\n    y = f(x)\nreturn torch.autograd.grad(y, x, g)[0]",
    ),
    "a kernel": function(
        "x", SAVE, "g", READ + "y = torch.empty_like(x)\nkernel[grid](x, g, y)\nreturn y"
    ),
    "a function with a kernel": function(
        "x", SAVE, "g", READ + "return launch(g, x)", above=LAUNCH
    ),
    "two steps away": function("x", SAVE, "g", READ + "return twice(g, x)", above=LAUNCH),
}
GUARDED = """
    def guard():
        if torch.is_grad_enabled():
            raise RuntimeError
"""
HELD = {
    "once": function("x", SAVE, "g", READ + "return x.detach() * g", mark="once_differentiable"),
    "a test": function("x", SAVE, "g", READ + "if g.sum().item() > 0:\n    return g\nreturn g * x"),
    "a sign": function("x", SAVE, "g", READ + "return g * x.detach().sign()"),
    "a shape": function("x", SAVE, "g", READ + "return g * x.detach().shape[0] * x"),
    "create_graph": function(
        "x", SAVE, "g", READ + "y = f(x)\nreturn torch.autograd.grad(y, x, g, create_graph=True)[0]"
    ),
    "of an input without a gradient": function(
        "x, w",
        "ctx.save_for_backward(w)\nreturn x * w",
        "g",
        "w, = ctx.saved_tensors\nreturn g * w.detach(), None",
    ),
    "a kernel for a constant": function(
        "x, w",
        "ctx.save_for_backward(w)\nreturn x @ f(w)",
        "g",
        "w, = ctx.saved_tensors\nreturn g @ launch(w, w), None",
        above=LAUNCH,
    ),
    "a kernel for a shape": function(
        "x", SAVE, "g", READ + "y = launch(g.shape, g.dtype)\nreturn g * y", above=LAUNCH
    ),
    "a function of the table": function("x", SAVE, "g", READ + "return table['f'](g, x)"),
    "None": function("x", SAVE, "g", READ + "g.item()\nreturn None"),
    "a guard": function("x", SAVE, "g", READ + "guard()\nreturn 2 * x.detach() * g", above=GUARDED),
    "another graph": function(
        "x",
        SAVE,
        "g",
        READ + "if torch.is_grad_enabled():\n    return g * f(x)\nreturn launch(g, x)",
        above=LAUNCH,
    ),
}


@each_row("text", LOST.values())
def test_a_step_without_a_derivative(text):
    assert codes(text) == ["DRV402"]


@each_row("text", HELD.values())
def test_every_step_has_a_derivative(text):
    assert codes(text) == []
