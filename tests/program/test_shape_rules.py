"""The shapes of torch's operations are those that torch makes, and a view is what shares memory."""

import torch
from kit.each import each_row

from derive.algebra.expr import Call, Param, Size, num
from derive.algebra.poly import add, atom, constant, mul
from derive.cost.size_formula import Amount, size_of
from derive.program.shape_rules import (
    broadcast,
    extremum,
    flat,
    floor_divided,
    formula,
    number,
    sliced,
    whole,
)
from derive.program.torch_ops import TORCH_OPS

functional, grad = torch.nn.functional, torch.nn.grad
CALLED = {
    **{f"conv{n}d": getattr(functional, f"conv{n}d") for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": getattr(functional, f"conv_transpose{n}d") for n in (1, 2, 3)},
    **{f"{kind}_pool{n}d": getattr(functional, f"{kind}_pool{n}d") for kind in ("avg", "max")
       for n in (1, 2, 3)},
    **{f"conv{n}d_{of}": getattr(grad, f"conv{n}d_{of}") for of in ("input", "weight")
       for n in (1, 2, 3)},
    "pad": functional.pad,
    "linear": functional.linear,
    "rt.unsqueeze": lambda x, axes: x[(..., *(None,) * len(axes))],
    "glu": functional.glu,
}  # fmt: skip
"""Those that are neither methods nor functions of torch itself."""


def x(*sizes: int) -> torch.Tensor:
    return torch.zeros(sizes)


def at(*sizes: int) -> torch.Tensor:
    return torch.zeros(sizes, dtype=torch.int64)


REDUCED = ("sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "logsumexp")
SAMPLES = [
    ("unsqueeze", (x(2, 3), 1), {}),
    ("unsqueeze", (x(2, 3), -1), {}),
    ("squeeze", (x(2, 1, 3), 1), {}),
    ("squeeze", (x(1, 2, 1, 3), (0, -2)), {}),
    ("expand", (x(1, 3), (2, 3)), {}),
    ("select", (x(2, 3, 5), 1, 0), {}),
    ("transpose", (x(2, 3, 5), 0, -1), {}),
    ("permute", (x(2, 3, 5), 2, 0, 1), {}),
    ("movedim", (x(2, 3, 5, 7), (0, 1), (-1, 0)), {}),
    ("movedim", (x(2, 3, 5), 0, 2), {}),
    ("diagonal", (x(2, 3, 2), 0, 0, 2), {}),
    ("reshape", (x(2, 3), (3, 2)), {}),
    ("flatten", (x(2, 3, 5), 0, 1), {}),
    ("flatten", (x(2, 3, 5),), {}),
    ("unflatten", (x(2, 15), -1, (3, 5)), {}),
    ("narrow", (x(2, 7), 1, 2, 3), {}),
    ("unfold", (x(2, 9), 1, 3, 2), {}),
    *((name, (x(2, 3, 5), 1), {}) for name in REDUCED),
    *((name, (x(2, 3, 5), -1), {"keepdim": True}) for name in REDUCED),
    ("sum", (x(2, 3, 5), (0, 2)), {}),
    ("sum", (x(2, 3),), {}),
    ("sum_to_size", (x(2, 3, 5), (3, 5)), {}),
    ("gather", (x(2, 3), 1, at(2, 5)), {}),
    ("index_select", (x(2, 3), 0, at(7)), {}),
    ("flip", (x(2, 3), 0), {}),
    ("diag_embed", (x(2, 3),), {}),
    ("pad", (x(2, 3, 5), (1, 2, 0, 3)), {}),
    ("cat", ((x(2, 3), x(2, 5)), 1), {}),
    ("glu", (x(2, 6, 3), 1), {}),
    ("stack", ((x(2, 3), x(2, 3)), -1), {}),
    ("where", (x(2, 3) > 0, x(3), x(2, 1)), {}),
    ("index_add", (x(2, 3), 1, at(5), x(2, 5)), {}),
    ("new_zeros", (x(2), (3, 5)), {}),
    ("new_full", (x(2), (3,), 7), {}),
    ("arange", (7,), {}),
    ("einsum", ("bij,jk->bik", x(2, 3, 5), x(5, 7)), {}),
    ("linear", (x(2, 3, 5), x(7, 5), x(7)), {}),
    ("rt.unsqueeze", (x(2, 3), (-2, -1)), {}),
    ("tensordot", (x(2, 3, 5), x(3, 5), 2), {}),
    ("tensordot", (x(2, 3, 5), x(3), ((1,), (0,))), {}),
    ("addmm", (x(7), x(2, 3), x(3, 7)), {}),
    ("baddbmm", (x(7), x(2, 3, 5), x(2, 5, 7)), {}),
    ("conv1d", (x(2, 3, 17), x(5, 3, 4)), {"stride": 2, "padding": 1, "dilation": 3}),
    ("conv2d", (x(2, 3, 17, 11), x(5, 3, 4, 2)), {"stride": (2, 1), "padding": (0, 1)}),
    ("conv_transpose1d", (x(2, 3, 7), x(3, 5, 4)), {"stride": 3, "output_padding": 1}),
    ("conv_transpose2d", (x(2, 4, 7, 5), x(4, 3, 4, 2)), {"padding": (1, 0), "groups": 2}),
    ("conv1d_input", ((2, 3, 9), x(5, 3, 4), x(2, 5, 6)), {}),
    ("conv1d_weight", (x(2, 3, 9), (5, 3, 4), x(2, 5, 6)), {}),
    ("avg_pool2d", (x(2, 3, 11, 13), (2, 3)), {}),
    ("avg_pool2d", (x(3, 11, 13), (2, 4), 1), {}),
    ("max_pool3d", (x(3, 11, 13, 7), 2), {}),
    ("max_pool1d", (x(2, 3, 11), 4, 2, 1), {}),
]


def told(value):
    """An argument as the table takes it."""
    if isinstance(value, torch.Tensor):
        return tuple(map(constant, value.shape))
    if isinstance(value, tuple):
        return tuple(map(told, value))
    return constant(value) if type(value) is int else value


@each_row("name, args, given", SAMPLES)
def test_the_shape_is_that_of_torch(name, args, given):
    f = CALLED.get(name) or getattr(torch.Tensor, name, None) or getattr(torch, name)
    f = (
        getattr(torch, name)
        if name in ("where", "einsum", "tensordot", "cat", "stack", "arange")
        else f
    )
    op = TORCH_OPS[name]
    if op.shape is not None:
        shape = op.shape(*told(args), **{key: told(value) for key, value in given.items()})
        assert shape == told(f(*args, **given))


def test_a_view_shares_memory_and_an_operation_does_not():
    for name, args, given in SAMPLES:
        if isinstance(args[0], torch.Tensor) and hasattr(torch.Tensor, name) and name != "where":
            made = getattr(args[0], name)(*args[1:], **given)
            shares = made.untyped_storage().data_ptr() == args[0].untyped_storage().data_ptr()
            assert TORCH_OPS[name].view == shares, name


def test_floors_lose_what_divides():
    n, s = size_of("n"), size_of("s")
    assert floor_divided(mul(n, s), s) is n
    p = floor_divided(add(mul(n, s), n, constant(1)), s)
    assert str(Amount(p)) == "⌊(n + 1)/s⌋ + n"
    for sizes in ({"n": 7, "s": 3}, {"n": 2, "s": 5}):
        assert Amount(p).at(sizes) == (sizes["n"] * sizes["s"] + sizes["n"] + 1) // sizes["s"]


def test_division_takes_out_what_divides():
    i, j = size_of("i"), size_of("j")
    assert floor_divided(mul(constant(6), i, j), mul(constant(2), i)) is mul(constant(3), j)
    assert str(Amount(floor_divided(i, constant(2)))) == "⌊i/2⌋"


def test_shapes_are_aligned_at_the_right():
    i, j = size_of("i"), size_of("j")
    assert broadcast((i, constant(1)), (j,)) == (i, j)
    assert broadcast() == ()


def test_numbers_and_tuples_of_them():
    assert number(constant(3)) == 3 and number(constant(0)) == 0
    assert whole(num(3)) is whole(3) is constant(3)
    assert list(flat((1, (2, (3,))))) == [1, 2, 3]


def test_a_slice_has_so_many_positions():
    assert sliced(constant(10), slice(None, None, constant(3))) is constant(4)
    assert sliced(constant(10), slice(constant(2), constant(7), None)) is constant(5)
    assert sliced(constant(10), slice(None, constant(-1), None)) is constant(9)


def test_an_extremum_with_a_parameter_is_a_formula():
    assert str(Amount(extremum("maximum", (constant(0), whole(Param("p")))))) == "max(0, p)"
    assert extremum("minimum", (constant(5), constant(3))) is constant(3)


def test_a_formula_has_other_sizes_in_place_of_its_own():
    e = Size("n") * Call("maximum", (Param("p"), Size("n") + 1)) - 2
    assert str(Amount(formula(e), ("n",))) == "n·max(p, n + 1) − 2"
    sizes = {Size("n"): constant(3), Param("p"): constant(7)}
    assert formula(e, sizes.__getitem__) is constant(19)
    assert formula(e, lambda x: atom(x) if isinstance(x, Size) else constant(0)) is formula(
        Size("n") * Call("maximum", (constant(0), Size("n") + 1)) - 2
    )
