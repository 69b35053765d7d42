"""DRV3xx: what backward does with cotangents and saved tensors."""

from kit.each import each_row
from kit.written import assert_rule, codes, function

SAVE = "ctx.save_for_backward(x)\n"
READ = "x, = ctx.saved_tensors\n"
UNREAD = {
    "a loss": function("x", SAVE + "return (x * x).sum()", "g", READ + "return 2 * x"),
    "a saved gradient": function(
        "x", "ctx.save_for_backward(f(x))\nreturn f(x)", "g", "d, = ctx.saved_tensors\nreturn d"
    ),
    "starred": function("x", SAVE + "return x * x", "*gs", READ + "return 2 * x"),
    "the second of two": function(
        "x", SAVE + "return x * x, x.exp()", "g, h", READ + "return 2 * x * g"
    ),
    "deleted": function("x", SAVE + "return x * x", "g", READ + "del g\nreturn 2 * x"),
    "ones": function("x", SAVE + "return x.sum()", "g", READ + "return torch.ones_like(x)"),
}
MEANT = {
    "read": function("x", SAVE + "return x * x", "g", READ + "return 2 * x * g"),
    "named so": function("x", SAVE + "return x * x, x.exp()", "g, _h", READ + "return 2 * x * g"),
    "marked": function(
        "x",
        SAVE + "y = x.abs()\nctx.mark_non_differentiable(y)\nreturn x * x, y",
        "g, h",
        READ + "return 2 * x * g",
    ),
    "positions": function(
        "x", SAVE + "v, i = x.max(0)\nreturn v, i", "g, h", READ + "return x * g"
    ),
    "a helper's output": function("x", SAVE + "return f(x)", "g, h", READ + "return 2 * x * g"),
    "zeros": function("x", SAVE + "return x * x", "g", READ + "return torch.zeros_like(x)"),
    "None": function("x", "return x.round()", "g", "return None"),
    "raises": function("x", "return x * x", "g", "raise NotImplementedError"),
    "an empty output": function(
        "x", SAVE + "send(x)\nreturn x.new_empty(0)", "g", READ + "return receive(x)"
    ),
    "a depending output": function(
        "x", SAVE + "return x * x, x > 0", "g, h", READ + "return 2 * x * g"
    ),
}


TWO = "ctx.save_for_backward(x)\nreturn loss.clone()"
WITHOUT = {
    "a penalty": "return g, 2.0 * x",
    "scattered": "y = torch.zeros_like(x)\ny.scatter_(0, x.argmax(0), x)\nreturn g, y",
    "the other": "return x.sum(), g * x",
    "only its shape": "return g, x * torch.ones_like(x) * x.shape[0]",
}
WITH = {
    "both": "return g, g * x",
    "in place": "y = x.clone()\ny.mul_(g)\nreturn g, y",
    "out": "y = torch.empty_like(x)\ntorch.mul(x, g, out=y)\nreturn g, y",
    "a part": "y = x * 2\ny[0] = g\nreturn g, y",
    "a helper writes": "y = x * 2\nf(g, y)\nreturn g, y",
    "a view of it": "y = x * 2\nz = y.view(-1)\nz.mul_(g)\nreturn g, y",
    "by a test": "if torch.equal(g, one):\n    return g, x * 2\nreturn g, g * x * 2",
    "handed on": "return g, x",
    "a global factor": "return g, x * scale",
    "zeros": "return g, torch.zeros_like(x)",
    "in a tuple": "ys = (x * 2, x)\nf(g, ys)\nreturn g, ys[0]",
}


CHANGED = {
    "a method": "return g.mul_(2)",
    "an operator": "g *= 2\nreturn g",
    "a part": "g[x > 0] = 0\nreturn g",
    "a part by an operator": "g[0] *= 2\nreturn g",
    "out": "torch.mul(g, 2, out=g)\nreturn g",
    "inplace": "return F.relu(g, inplace=True)",
    "a view": "h = g.t()\nh.add_(1)\nreturn g",
    "contiguous": "g = g.contiguous()\ng.mul_(2)\nreturn g",
    "data": "g.data.mul_(2)\nreturn g",
    "a collective": "dist.all_reduce(g)\nreturn g",
    "by a name": "h = g\nh += x\nreturn h",
}
LEFT = {
    "a clone": "g = g.clone()\ng.mul_(2)\nreturn g",
    "a product": "h = g * 2\nh.add_(1)\nreturn h",
    "not in place": "return g.mul(2)",
    "a copy on one way": "if f():\n    g = g.clone()\n    g *= 2\nreturn g",
    "a part that is a copy": "h = g[x > 0]\nh.mul_(2)\nreturn g",
    "a cast": "h = g.float()\nh.mul_(2)\nreturn g",
    "another": "h = torch.zeros_like(g)\nh.add_(g)\nreturn h",
    "a number": "n = g.shape[0]\nn *= 2\nreturn g * n",
    "bound anew": "g = g * x\ng *= 2\nreturn g",
    "a shared name": "h = g if f() else g.clone()\nh.mul_(2)\nreturn h",
}


SAVED = {
    "a method": READ + "return x.mul_(g)",
    "an operator": READ + "x *= g\nreturn x",
    "a part": READ + "x[0] = 0\nreturn x * g",
    "by its position": "return ctx.saved_tensors[0].mul_(g)",
    "by a name": "saved = ctx.saved_tensors\ny = saved[0]\ny.mul_(g)\nreturn y",
    "a view": READ + "y = x.view(-1)\ny.sub_(1)\nreturn x * g",
    "out": READ + "torch.mul(x, g, out=x)\nreturn x",
}
KEPT = {
    "not in place": READ + "return x.mul(g)",
    "a clone": READ + "y = x.clone()\ny *= g\nreturn y",
    "a product": READ + "y = x * 2\ny *= g\nreturn y",
    "a cast": READ + "y = x.float()\ny *= g\nreturn y",
    "a copy on one way": READ + "if f():\n    x = x * 2\n    x *= g\nreturn x * g",
    "a flag": READ + "x.requires_grad_(True)\nreturn x * g",
}


def test_a_changed_tensor_on_ctx():
    text = function("x", "ctx.d = x.exp()  # noqa: DRV101\nreturn x", "g", "return ctx.d.mul_(g)")
    assert codes(text) == ["DRV304"]


VIEWED = {
    "all axes": "return g.view(-1) @ x",
    "all but the last": "return g.view(-1, g.shape[-1]) @ x",
    "a product": "b, t, d = g.shape\nreturn g.view(b * t, d) @ x",
    "a tuple": "b, t, d = g.shape\nreturn g.view((b * t, d)) @ x",
    "all but the first": "return g.view(g.size(0), -1) @ x",
}
SHAPED = {
    "reshape": "return g.reshape(-1, g.shape[-1]) @ x",
    "contiguous": "return g.contiguous().view(-1) @ x",
    "contiguous before": "g = g.contiguous()\nreturn g.view(-1) @ x",
    "an axis of one": "return g.view(-1, 1) @ x",
    "its own shape": "return g.view(*x.shape)",
    "broadcast": "return g.view(1, -1, 1, 1) * x",
    "a result": "return (g * x).view(-1)",
    "a saved tensor": "return g * x.view(-1)",
    "checked": "assert g.is_contiguous()\nreturn g.view(-1) @ x",
}


def test_a_decorator_that_copies():
    text = function("x", "return f(x)", "g", "return g.view(-1)", mark="ensure_contiguous")
    assert codes(text) == []


@each_row(
    "code, wrong, right, text",
    [
        ("DRV301", UNREAD, MEANT, str),
        ("DRV302", WITHOUT, WITH, lambda b: function("loss, x", TWO, "g", READ + b)),
        ("DRV303", CHANGED, LEFT, lambda b: function("x", SAVE + "return x * 2", "g", READ + b)),
        ("DRV304", SAVED, KEPT, lambda b: function("x", SAVE + "return x * 2", "g", b)),
        ("DRV305", VIEWED, SHAPED, lambda b: function("x", SAVE + "return f(x)", "g", READ + b)),
    ],
)
def test_what_backward_does_with_cotangents_and_saved_tensors(code, wrong, right, text):
    assert_rule(code, wrong, right, text)
