"""DRV4xx: second derivatives."""

from kit.each import each_row
from kit.written import assert_rule, function, set_up


def keeping(before, kept, output, gradient, read=None, inputs="x", **more):
    """A Function whose backward reads what its forward keeps, under the same name or another."""
    names = read or kept
    return function(
        inputs,
        f"{before}\nctx.save_for_backward({kept})\nreturn {output}",
        "g",
        f"{names}{'' if ',' in names else ','} = ctx.saved_tensors\nreturn {gradient}",
        **more,
    )


READ = "x, s = ctx.saved_tensors\n"
USE = "return g / s - x * (g * x).sum() / s**3"


def scaled(backward, start=READ, **more):
    forward = "s = x.norm()\nctx.save_for_backward(x, s)\nreturn x / s"
    return function("x", forward, "g", start + backward, **more)


CONSTANT = {
    "an intermediate": scaled(USE),
    "a view of the input": keeping(
        "", "x.view(-1)", "x**3", "g * 3 * x.view(g.shape)**2", read="x"
    ),
    "an output before a view": keeping("y = x.exp()", "y", "y.t()", "g.t() * y"),
    "the values of max": keeping("m, i = x.max(0)", "m, i", "m * m", "2 * m * g"),
    "by in-place steps": scaled("y = torch.zeros_like(x)\ny.add_(g / s)\nreturn y"),
    "a part": scaled("y = torch.empty_like(x)\ny[0] = g * s\nreturn y"),
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
    "once": scaled(USE, mark="once_differentiable"),
    "the input": keeping("", "x", "x * x", "2 * x * g"),
    "the output": keeping("y = x.exp()", "y", "y", "y * g"),
    "the output of a view": keeping("y = x.exp()\ny = y.view(-1)", "y", "y", "y * g"),
    "a mask": keeping("m = (x > 0).float()", "m", "x * m", "g * m"),
    "a sign": keeping("s = x.sign()", "s", "x.abs()", "g * s"),
    "positions": keeping("m, i = x.max(0)", "i", "m", "f(g, i)"),
    "a draw": keeping("m = torch.rand_like(x)", "m", "x * m", "g * m"),
    "of an input without a gradient": keeping(
        "s = t.exp()", "s", "x * s", "g * s, None", inputs="x, t"
    ),
    "not used": scaled("return g * x"),
    "a test": scaled("return g * x * (s > 1)"),
    "a helper's": keeping("y, s = f(x)", "s", "y", "g * s"),
    "maybe the input": keeping("x = x.contiguous()", "x", "x * x", "2 * x * g"),
    "a graph of its own": keeping(
        "with torch.enable_grad():\n    y = x.exp()", "y", "y * 2", "2 * y * g"
    ),
    "a guard": scaled(USE, "if torch.is_grad_enabled():\n    raise RuntimeError\n" + READ),
    "an odd decorator": scaled(USE, mark="mine"),
}


def squared(backward, **more):
    forward = "ctx.save_for_backward(x)\nreturn x * x"
    return function("x", forward, "g", "x, = ctx.saved_tensors\n" + backward, **more)


LAUNCH = """
    def launch(g, x):
        y = torch.empty_like(x)
        kernel[(x.numel(),)](g, x, y)
        return y

    def twice(g, x):
        return launch(g, x)
"""
LOST = {
    "detach": squared("return 2 * x.detach() * g"),
    "detach of the cotangent": squared("return 2 * x * g.detach()"),
    "data": squared("return 2 * x.data * g"),
    "item": squared("return 2 * x * g.sum().item()"),
    "float": squared("return 2 * x * float(g.sum())"),
    "numpy": squared("return torch.from_numpy(2 * x.numpy() * g.detach().numpy())"),
    "no_grad": squared("with torch.no_grad():\n    y = 2 * x * g\nreturn y"),
    "autograd.grad": squared(
        "with torch.enable_grad():\n    y = f(x)\nreturn torch.autograd.grad(y, x, g)[0]"
    ),
    "a kernel": squared("y = torch.empty_like(x)\nkernel[grid](x, g, y)\nreturn y"),
    "a function with a kernel": squared("return launch(g, x)", above=LAUNCH),
    "two steps away": squared("return twice(g, x)", above=LAUNCH),
}
GUARDED = """
    def guard():
        if torch.is_grad_enabled():
            raise RuntimeError
"""
HELD = {
    "once": squared("return x.detach() * g", mark="once_differentiable"),
    "a test": squared("if g.sum().item() > 0:\n    return g\nreturn g * x"),
    "a sign": squared("return g * x.detach().sign()"),
    "a shape": squared("return g * x.detach().shape[0] * x"),
    "create_graph": squared("y = f(x)\nreturn torch.autograd.grad(y, x, g, create_graph=True)[0]"),
    "of an input without a gradient": keeping(
        "", "w", "x * w", "g * w.detach(), None", inputs="x, w"
    ),
    "a kernel for a constant": keeping(
        "", "w", "x @ f(w)", "g @ launch(w, w), None", inputs="x, w", above=LAUNCH
    ),
    "a kernel for a shape": squared("y = launch(g.shape, g.dtype)\nreturn g * y", above=LAUNCH),
    "a function of the table": squared("return table['f'](g, x)"),
    "None": squared("g.item()\nreturn None"),
    "a guard": squared("guard()\nreturn 2 * x.detach() * g", above=GUARDED),
    "another graph": squared(
        "if torch.is_grad_enabled():\n    return g * f(x)\nreturn launch(g, x)", above=LAUNCH
    ),
}


@each_row("code, wrong, right", [("DRV401", CONSTANT, FINE), ("DRV402", LOST, HELD)])
def test_second_derivatives(code, wrong, right):
    assert_rule(code, wrong, right)
