"""DRV1xx: what forward keeps for backward."""

from kit.each import each_row
from kit.written import assert_rule, codes, function, set_up

KEPT = {
    "an input": function("x", "ctx.x = x\nreturn x.exp()", "g", "return g * ctx.x.exp()"),
    "an output": function("x", "y = x.exp()\nctx.y = y\nreturn y", "g", "return g * ctx.y"),
    "an intermediate": function(
        "x", "s = torch.sigmoid(x)\nctx.s = s\nreturn x * s", "g", "return g * ctx.s"
    ),
    "a view": function("x", "ctx.x = x.view(-1)\nreturn x * 2", "g", "return g * 2 * ctx.x.sum()"),
    "in a tuple": function(
        "x, n", "ctx.kept = (x.abs(), n)\nreturn x * n", "g", "return g * ctx.kept[1], None"
    ),
    "annotated": function("x, w: torch.Tensor", "ctx.w = w\nreturn f(x, w)", "g", "return g, None"),
    "or None": function(
        "x, b: torch.Tensor | None", "ctx.b = b\nreturn f(x, b)", "g", "return g, None"
    ),
    "by its gradient": function("x, w", "ctx.w = w\nreturn f(x, w)", "g", "return h(g), h(g)"),
    "in setup_context": set_up("x", "return x.exp()", "ctx.y = output", "g", "return g * ctx.y"),
    "an input in setup_context": set_up(
        "x", "return x.exp()", "x, = inputs\nctx.x = x", "g", "return g * ctx.x.exp()"
    ),
}
NUMBERS = {
    "a number": function("x, n", "ctx.n = n\nreturn x * n", "g", "return g * ctx.n, None"),
    "a shape": function("x", "ctx.s = x.shape\nreturn x.sum()", "g", "return g.expand(ctx.s)"),
    "a size": function("x", "ctx.n = x.size(0)\nreturn x.sum()", "g", "return g * ctx.n"),
    "a dtype": function("x", "ctx.t = x.dtype\nreturn x * 2", "g", "return (g * 2).to(ctx.t)"),
    "a device": function("x", "ctx.d = x.device\nreturn x * 2", "g", "return g * 2"),
    "a flag": function(
        "x, b", "ctx.b = b is not None\nctx.save_for_backward(b)\nreturn x", "g", "return g, None"
    ),
    "an item": function("x", "ctx.m = x.max().item()\nreturn x * 2", "g", "return g * 2"),
    "a group": function(
        "x, group", "ctx.n = group.size()\nctx.group = group\nreturn x.exp()", "g", "return g, None"
    ),
    "a rebound name": function(
        "x, flag",
        "ctx.flag = flag\nflag = torch.empty(0)\nreturn x + flag.sum()",
        "g",
        "return g, None",
    ),
    "an empty buffer": function("x", "ctx.b = x.new_empty(0)\nreturn x * 2", "g", "return g * 2"),
    "maybe a tensor": function(
        "x, n: 'int | torch.Tensor'", "ctx.n = n\nreturn x", "g", "return g, None"
    ),
    "a result of a helper": function("x", "y, s = f(x)\nctx.s = s\nreturn y", "g", "return g"),
    "None": function("x", "ctx.y = None\nreturn x * 2", "g", "return g * 2"),
}


TWICE = {
    "one after the other": "ctx.save_for_backward(x)\nctx.save_for_backward(y)\nreturn x * y",
    "with a line between": "ctx.save_for_backward(x)\nz = x\nctx.save_for_backward(y)\nreturn z",
    "in a branch": (
        "if True:\n    ctx.save_for_backward(x)\n    ctx.save_for_backward(y)\nreturn x * y"
    ),
}
ONCE = {
    "once": "ctx.save_for_backward(x, y)\nreturn x * y",
    "in two branches": (
        "if n:\n    ctx.save_for_backward(x, y)\nelse:\n    ctx.save_for_backward(y, x)\nreturn x"
    ),
    "for forward mode": "ctx.save_for_backward(x, y)\nctx.save_for_forward(x)\nreturn x * y",
    "of another object": "ctx.save_for_backward(x, y)\nother.save_for_backward(x)\nreturn x * y",
    "in a nested branch": (
        "if n:\n    if m:\n        ctx.save_for_backward(x, y)\n    else:\n"
        "        ctx.save_for_backward(y, x)\nreturn x * y"
    ),
}


CHANGED = {
    "a method": "x.mul_(2)\nreturn x",
    "an operator": "x.exp()\nx += 1\nreturn x",
    "a part": "x.exp()\nx[0] = 0\nreturn x",
    "a view": "x.view(-1).add_(1)\nreturn x",
    "inplace": "return F.relu(x, inplace=True)",
    "a collective": "dist.all_reduce(x)\nreturn x.exp()",
    "not returned": "x.sub_(x.max())\nreturn x.exp()",
}
UNCHANGED = {
    "marked": "x.mul_(2)\nctx.mark_dirty(x)\nreturn x",
    "a clone": "x = x.clone()\nx.mul_(2)\nreturn x",
    "a copy": "y = x.contiguous()\ny.mul_(2)\nreturn y",
    "a result": "y = x.exp()\ny.mul_(2)\nreturn y",
    "around autograd": "x.data.mul_(2)\nreturn x.exp()",
    "itself": "x.copy_(x)\nreturn x.exp()",
    "a flag": "x.requires_grad_(False)\nreturn x.exp()",
}


def test_a_buffer_may_change():
    """It has no gradient, and is no output."""
    text = function(
        "x, mean", "mean.mul_(0.9).add_(x.mean())\nreturn x - mean", "g", "return g, None"
    )
    assert codes(text) == []


@each_row(
    "code, wrong, right, text",
    [
        ("DRV101", KEPT, NUMBERS, str),
        ("DRV103", CHANGED, UNCHANGED, lambda f: function("x", f, "g", "return g * 2")),
    ],
)
def test_what_forward_keeps(code, wrong, right, text):
    assert_rule(code, wrong, right, text)


def test_saves_on_each_path():
    back = ("g", "x, y = ctx.saved_tensors\nreturn g * y, g * x")
    assert_rule("DRV102", TWICE, ONCE, lambda f: function("x, y", f, *back), alone=False)
