"""DRV2xx: what backward takes and returns."""

from kit.each import each_row
from kit.written import assert_rule, function, set_up

SAVE = "ctx.save_for_backward(x, y)\nreturn x * y"
NUMBER = {
    "one of two": function("x, n", "return x * n", "g", "return g * 2"),
    "two of three": function("x, y, n", "return x * y * n", "g", "return g, g"),
    "three of two": function("x, y", "return x * y", "g", "return g, g, g * 2"),
    "a list": function("x, y", "return x * y", "g", "return [g, g]"),
    "None": function("x, y", "return x * y", "g", "if f():\n    return None\nreturn g, g"),
    "a sum of tuples": function("x, *rest", "return x * 2", "g", "return ()"),
    "a product of tuples": function("x, a, b, c", "return x", "g", "return (g,) + (None,) * 2"),
    "by a name": function("x, y", "return x * y", "g", "grads = (g,)\nreturn grads"),
    "setup_context": set_up("x, n", "return x * n", "ctx.n = inputs[1]", "g", "return g * ctx.n"),
    "before defaults": function("x, y, n=1", "return x * y", "g", "return g * 2"),
}
RIGHT = {
    "all": function("x, n", "return x * n", "g", "return g * 2, None"),
    "more, of None": function("x", "return x * 2", "g", "return g * 2, None, None"),
    "without defaults": function("x, n=2", "return x * n", "g", "return g * 2"),
    "with defaults": function("x, n=2", "return x * n", "g", "return g * 2, None"),
    "a helper's": function("x, y", "return x * y", "g", "return f(g)"),
    "starred": function("x, *ys", "return f(x, *ys)", "g", "return (g, *f(g))"),
    "several": function("x, *ys", "return f(x, *ys)", "g", "return g, g, g"),
    "no tensor": function("x, y", "return x * y", "g", "return tuple(f(g))"),
    "raises": function("x, y", "return x * y", "g", "raise NotImplementedError"),
    "an odd decorator": function("x, y", "return x * y", "g", "return g", mark="doubled"),
    "no derivative": function(
        "x, y", "i = f(x)\nctx.mark_non_differentiable(i)\nreturn i", "g", "return None"
    ),
    "a product": function("x, a, b", "return x", "g", "return (g,) + (None,) * 2"),
    "a count": function("x, *a", "ctx.n = len(a)\nreturn x", "g", "return (g,) + (None,) * ctx.n"),
}


TAKEN = {
    "too few": function("x", "return 2 * x, 3 * x", "g", "return g"),
    "too many": function("x", "return 2 * x", "g, h", "return g + h"),
    "no tensor": function("x", "return x.exp(), None, 3", "g, h", "return g + h"),
    "setup_context": set_up("x", "return x.exp(), x.exp()", "pass", "g", "return g"),
}
TAKES = {
    "two": function("x", "return 2 * x, 3 * x", "g, h", "return g + h"),
    "starred": function("x", "return 2 * x, 3 * x", "*g", "return g[0] + g[1]"),
    "a default": function("x", "return 2 * x, 3 * x", "g, h, k=None", "return g + h"),
    "a helper's": function("x", "return f(x)", "g, h", "return g + h"),
    "it depends": function(
        "x, n", "return (x, x) if n else x.exp()", "g, h=None", "return g, None"
    ),
    "raises": function("x", "return 2 * x, 3 * x", "g", "raise NotImplementedError"),
}


READ = "x, y = ctx.saved_tensors\n"
UNBOUND = {
    "one": "if ctx.needs_input_grad[0]:\n    a = g * y\nreturn a, g * x",
    "both": "if ctx.needs_input_grad[0]:\n    a = g * y\nb = g * x\nreturn a, b",
    "the other branch": "if not ctx.needs_input_grad[0]:\n    f()\nelse:\n    a = g\nreturn a, g",
    "an and": (
        "if ctx.needs_input_grad[0] and ctx.needs_input_grad[1]:\n    a = g * y\nreturn a, g * x"
    ),
}
BOUND = {
    "before": "a = None\nif ctx.needs_input_grad[0]:\n    a = g * y\nreturn a, g * x",
    "else": "if ctx.needs_input_grad[0]:\n    a = g * y\nelse:\n    a = None\nreturn a, g * x",
    "under the same test": (
        "if ctx.needs_input_grad[0]:\n    a = g * y\n"
        "if ctx.needs_input_grad[0]:\n    return a, g * x\nreturn None, g * x"
    ),
    "by choice": (
        "if ctx.needs_input_grad[0]:\n    a = g * y\n"
        "return a if ctx.needs_input_grad[0] else None, g * x"
    ),
    "another test": "if f():\n    a = g * y\nreturn a, g * x",
    "any": "if any(ctx.needs_input_grad):\n    a = g * y\nreturn a, g * x",
    "one gradient": "if ctx.needs_input_grad[0]:\n    a = g * y\nreturn a, None",
    "a return before": "if not ctx.needs_input_grad[0]:\n    return None, g\na = g\nreturn a, g",
}


NONE = READ + "a = b = None\n"
OTHER = {
    "under the first": "if ctx.needs_input_grad[0]:\n    a = g * y\n    b = g * x\nreturn a, b",
    "swapped": ("if ctx.needs_input_grad[1]:\n    a = g * y\nb = g * x\nreturn a, b"),
    "an elif": (
        "if f():\n    pass\nif ctx.needs_input_grad[0]:\n    b = g * x\na = g * y\nreturn a, b"
    ),
}
OWN = {
    "each its own": (
        "if ctx.needs_input_grad[0]:\n    a = g * y\n"
        "if ctx.needs_input_grad[1]:\n    b = g * x\nreturn a, b"
    ),
    "either": (
        "if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:\n    a = g * y\n    b = g * x\n"
        "return a, b"
    ),
    "in two places": (
        "if ctx.needs_input_grad[0]:\n    a = g * y\n    b = g\nelse:\n    b = g * x\nreturn a, b"
    ),
    "a part": "if ctx.needs_input_grad[0]:\n    c = g * y\n    a = c * 2\nb = g * x\nreturn a, b",
    "used in both": "c = g\nif ctx.needs_input_grad[0]:\n    c = g * y\nreturn c, c * x",
    "a loop": (
        "if ctx.needs_input_grad[0]:\n    a = g * y\n    b = g\nfor i in range(2):\n    b = g * x\n"
        "return a, b"
    ),
}


def asking(forward, question="x.requires_grad"):
    backward = f"x, = ctx.saved_tensors\nif {question}:\n    return 2 * x * g\nreturn None"
    return function("x", f"{forward}\nctx.save_for_backward(x)\nreturn x * x", "g", backward)


COPIES = {
    "contiguous": asking("x = x.contiguous()"),
    "a cast": asking("x = x.float()"),
    "a view": asking("x = x.flatten(0, 1)"),
    "an intermediate": asking("x = torch.sigmoid(x)"),
    "beside another test": asking("x = x.contiguous()", "x.requires_grad and g.sum() > 0"),
}
ORIGINALS = {
    "the input itself": asking("pass"),
    "needs_input_grad": asking("x = x.contiguous()", "ctx.needs_input_grad[0]"),
    "a copy of the flag": asking("r = x.requires_grad\nx = x.contiguous()\nx.requires_grad_(r)"),
    "the cotangent": asking("x = x.contiguous()", "g.requires_grad"),
    "a helper's": asking("x = f(x)"),
    "a name bound anew": asking("x = x.contiguous()", "f(x) and ctx.x.requires_grad"),
}


@each_row(
    "code, wrong, right, text",
    [
        ("DRV201", NUMBER, RIGHT, str),
        ("DRV203", UNBOUND, BOUND, lambda b: function("x, y", SAVE, "g", READ + b)),
        ("DRV204", OTHER, OWN, lambda b: function("x, y", SAVE, "g", NONE + b)),
        ("DRV205", COPIES, ORIGINALS, str),
    ],
)
def test_what_backward_takes_and_returns(code, wrong, right, text):
    assert_rule(code, wrong, right, text)


def test_the_number_of_cotangents():
    assert_rule("DRV202", TAKEN, TAKES, alone=False)
