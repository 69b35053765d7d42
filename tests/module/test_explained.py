"""A wrong call is refused by one condition, and its first fault is found from the signature."""

import random
import re
from functools import cache, partial
from itertools import product

import pytest
import torch
from kit.each import each_row

import derive
from derive import catalog, loaded
from derive.api import source
from derive.check import oracle
from derive.module.public import _condition_lines

TEXTS = {
    "affine": "op affine(x[n,k], w[j,k], b[j]=0) -> y; y[n,j] = sum[k](x[n,k]*w[j,k]) + b[j]",
    "along": (
        "op along(x[*p,k,*q], y[*p,k,*q], w[k]=1; dim=axis(k), keepdim=keep(k)) -> z\n"
        "z[*p,*q] = sum[k](x[*p,k,*q]*y[*p,k,*q]*w[k])"
    ),
    "columns": "op columns(x[*p,i,j]; dim=axis(j)) -> y; y[*p,i] = sum[j](x[*p,i,j])",
    "first": "op first(x[i,*p]; dim=axis(i)) -> y; y[*p] = sum[i](x[i,*p])",
    "between": ("op between(x[*p,a,k,*q]; dim=axis(k)) -> y; y[*p,a,*q] = sum[k](x[*p,a,k,*q])"),
    "two": (
        "op two(x[*p,i,*q,j,*r]; a=axis(i), b=axis(j)) -> y\n"
        "y[*p,*q,*r] = sum[i,j](x[*p,i,*q,j,*r])"
    ),
    "scaled": (
        "op scaled(x[n,(g c),*q], w[(g c)], t[n]: int, b[g]=0; groups=size(g), eps=1, eps > 0, "
        "eps <= 2, reduction=mean|none) -> mean: m | none: y\n"
        "y[n,(g c),*q] = (x[n,(g c),*q]*w[(g c)] + b[g])/(t[n] + eps)\n"
        "m[g] = mean[n,c,*q](y[n,(g c),*q])"
    ),
    "halves": "op halves(x[n,c]; size(t)=2) -> y; y[n,d] = sum[t](x[n,(t d)])",
    "grouped": (
        "op grouped(x[(g r),i], y[g,i], z[r]) -> s; s[g,r] = sum[i](x[(g r),i]*y[g,i])*z[r]"
    ),
    "shares": "op shares(x[(g r),i], y[g,i]) -> s; s[g,r] = sum[i](x[(g r),i]*y[g,i])",
    "norm": "op norm(x[*p,*s], w[*s], b[*s]=0) -> y; y[*p,*s] = x[*p,*s]*w[*s] + b[*s]",
    "middle": "op middle(x[*p,a,*s], w[a,*s]) -> y; y[*p,*s] = sum[a](x[*p,a,*s]*w[a,*s])",
    "square": "op square(x[b,i], A[i,j]) -> y; y[b] = sum[i,j | i != j](x[b,i]*A[i,j]*x[b,j])",
    "trace": "op trace(A[i,i]) -> y; y = sum[i](A[i,i])",
    "masked": ("op masked(x[n,t], m[n,t]: bool, s=2) -> y; y[n] = s*sum[t | m[n,t]](x[n,t])"),
    "fixed": "op fixed(x[n,k], w[k]; size(k)=3) -> y; y[n] = sum[k](x[n,k]*w[k])",
    "picked": "op picked(T[n]: int, x[v,d]) -> y; y[n,d] = x[T[n],d]",
    "strided": (
        "op strided(x[n,t], w[k]; stride=1, padding=0, dilation=1, "
        "size(u)=floor((size(t)+2*padding-dilation*(size(k)-1)-1)/stride)+1) -> y\n"
        "y[n,u] = sum[k | 0 <= stride*u + dilation*k - padding < size(t)]"
        "(x[n,stride*u + dilation*k - padding]*w[k])"
    ),
}

OPS = {name: derive.parse(text) for name, text in TEXTS.items()}


def full(*shape):
    return torch.ones(shape)


T = torch.ones(2, dtype=torch.int64)
SCALED = (full(2, 6, 5), full(6), T)

WRONG = [
    # types, in the order of the signature
    ("affine", (None, 1), {}, TypeError, "x must be a tensor, not NoneType"),
    ("affine", (full(2, 3), None), {}, TypeError, "w must be a tensor, not NoneType"),
    ("affine", (full(2, 3), full(4, 3), [0]), {}, TypeError, "b must be a tensor, not list"),
    ("affine", (full(2, 3), full(4, 3).long()), {}, TypeError,
     "w must be a floating-point tensor, not torch.int64"),
    ("masked", (full(2, 3), full(2, 3)), {}, TypeError, "m must be bool, not torch.float32"),
    ("picked", (full(2), full(3, 4)), {}, TypeError, "T must be int64, not torch.float32"),
    ("picked", (T, T), {}, ValueError, "x must have 2 axes [v, d], not 1"),
    ("scaled", (*SCALED, full(3).bool()), {"groups": 3}, TypeError,
     "b must be a floating-point tensor, not torch.bool"),
    # devices
    ("affine", (full(2, 3), full(4, 3).to("meta")), {}, ValueError,
     "w is on meta, but x is on cpu"),
    ("affine", (full(2, 3), full(4, 3), full(4).to("meta")), {}, ValueError,
     "b is on meta, but x is on cpu"),
    ("picked", (T, full(3, 4).to("meta")), {}, ValueError, "x is on meta, but T is on cpu"),
    ("masked", (full(2, 3), full(2, 3).bool().to("meta")), {}, ValueError,
     "m is on meta, but x is on cpu"),
    # numbers of axes
    ("affine", (full(2), full(4, 3)), {}, ValueError, "x must have 2 axes [n, k], not 1"),
    ("affine", (full(2, 3), full(4, 3), full()), {}, ValueError, "b must have 1 axis [j], not 0"),
    ("masked", (full(2, 3), full(2, 3).bool(), full(1)), {}, ValueError,
     "s must have 0 axes [], not 1"),
    ("along", (full(), full()), {"dim": 0}, ValueError,
     "x must have at least 1 axis [*p, k, *q], not 0"),
    ("along", (full(2, 3), full(2, 3, 1)), {"dim": 0}, ValueError,
     "y must have 2 axes [*p, k, *q], not 3"),
    ("norm", (full(3), full(2, 3)), {}, ValueError, "x must have 2 axes [*p, *s], not 1"),
    ("norm", (full(2, 3), full(3), full(2, 3)), {}, ValueError, "b must have 1 axes [*s], not 2"),
    # sizes of indices and shapes of groups
    ("affine", (full(2, 3), full(4, 5)), {}, ValueError,
     "index k has size 3 on axis 1 of x but 5 on axis 1 of w"),
    ("affine", (full(2, 3), full(4, 3), full(5)), {}, ValueError,
     "index j has size 4 on axis 0 of w but 5 on axis 0 of b"),
    ("square", (full(2, 3), full(3, 4)), {}, ValueError,
     "index i has size 3 on axis 1 of x but 4 on axis 1 of A"),
    ("trace", (full(3, 4),), {}, ValueError,
     "index i has size 3 on axis 0 of A but 4 on axis 1 of A"),
    ("along", (full(2, 3, 4), full(2, 5, 4)), {"dim": -2}, ValueError,
     "index k has size 3 on axis -2 of x but 5 on axis -2 of y"),
    ("along", (full(2, 3, 4), full(2, 3, 4), full(4)), {"dim": 1}, ValueError,
     "index k has size 3 on axis 1 of x but 4 on axis 0 of w"),
    ("along", (full(2, 3, 4), full(2, 3, 5)), {"dim": 1}, ValueError,
     "index *q has shape (4,) in x but (5,) in y, from axis 2 on"),
    ("norm", (full(2, 3), full(4)), {}, ValueError,
     "index *s has shape (4,) in w but (3,) in x, from axis 1 on"),
    ("middle", (full(2, 3, 4), full(3, 5)), {}, ValueError,
     "index *s has shape (5,) in w but (4,) in x, from axis 2 on"),
    ("middle", (full(2, 3, 4), full(5, 4)), {}, ValueError,
     "index a has size 5 but 3 on axis 1 of x"),
    # composite axes, given and defined sizes
    ("scaled", (full(2, 5), full(5), T), {"groups": 3}, ValueError,
     "axis 1 (g c) of x has size 5, which is not divisible by groups = 3"),
    ("scaled", (full(2, 6), full(9), T), {"groups": 3}, ValueError,
     "axis 0 (g c) of w has size 9, but size(g)*size(c) is 6"),
    ("scaled", (full(2, 6), full(6), T, full(2)), {"groups": 3}, ValueError,
     "axis 0 of b has size 2, but groups is 3"),
    ("halves", (full(2, 5),), {}, ValueError,
     "axis 1 of x has size 5, which is not divisible by size(t) = 2"),
    ("grouped", (full(5, 1), full(2, 1), full(3)), {}, ValueError,
     "axis 0 (g r) of x has size 5, but size(g)*size(r) is 6"),
    ("shares", (full(5, 1), full(2, 1)), {}, ValueError,
     "axis 0 (g r) of x has size 5, which is not divisible by size(g) = 2"),
    ("shares", (full(5, 1), full(0, 1)), {}, ValueError,
     "axis 0 (g r) of x has size 5, which is not divisible by size(g) = 0"),
    ("fixed", (full(2, 3), full(4)), {}, ValueError,
     "axis 0 of w has size 4, but must have size 3"),
    # parameters
    ("along", (full(2, 3), full(2, 3)), {"dim": 2}, ValueError,
     "dim must be in [-2, 2) for x, not 2"),
    ("columns", (full(2, 3, 4),), {"dim": 1}, ValueError,
     "dim must be the position of axis j in x[*p, i, j], not 1"),
    ("first", (full(2, 3),), {"dim": -1}, ValueError,
     "dim must be the position of axis i in x[i, *p], not -1"),
    ("between", (full(2, 3),), {"dim": 0}, ValueError,
     "dim must be the position of axis k in x[*p, a, k, *q], not 0"),
    ("two", (full(2, 3, 4, 5),), {"a": 2, "b": -3}, ValueError,
     "a and b must be the positions of axes i and j in x[*p, i, *q, j, *r], in this order, "
     "not 2 and -3"),
    ("along", (full(2, 3), full(2, 3)), {"dim": 0, "keepdim": 1}, TypeError,
     "keepdim must be True or False, not 1"),
    ("along", (full(2, 3), full(2, 3)), {"dim": 0.5}, TypeError, "dim must be an integer, not 0.5"),
    ("scaled", SCALED, {"groups": 3, "eps": "1"}, TypeError, "eps must be a number, not '1'"),
    ("scaled", SCALED, {"groups": 0}, ValueError, "groups must be positive, not 0"),
    ("scaled", SCALED, {"groups": 3, "eps": 0}, ValueError, "eps must be greater than 0, not 0.0"),
    ("scaled", SCALED, {"groups": 3, "eps": 3}, ValueError, "eps must be at most 2, not 3.0"),
    ("scaled", SCALED, {"groups": 3, "reduction": []}, ValueError,
     "reduction must be one of 'mean', 'none', not []"),
    ("strided", (full(2, 5), full(3)), {"stride": 0}, ValueError, "stride must be positive, not 0"),
    ("strided", (full(2, 5), full(3)), {"dilation": 0}, ValueError,
     "dilation must be positive, not 0"),
    ("strided", (full(2, 5), full(3)), {"padding": -1}, ValueError,
     "padding must not be negative, not -1"),
    ("strided", (full(2, 5), full(9)), {}, ValueError,
     "no value of index u keeps every access in bounds: axis 1 of x has size 5 and axis 0 of w has "
     "size 9"),
    # of two faults the one that comes first: types, axes, numbers, dtypes, devices, sizes, None
    ("affine", (full(2).long(), full(4, 3)), {}, ValueError, "x must have 2 axes [n, k], not 1"),
    ("affine", (full(2, 3).long(), full(4, 3).to("meta")), {}, TypeError,
     "x must be a floating-point tensor, not torch.int64"),
    ("affine", (full(2, 3), full(4, 5).to("meta")), {}, ValueError,
     "w is on meta, but x is on cpu"),
    ("affine", (full(2, 3), full(4, 5), [0]), {}, ValueError,
     "index k has size 3 on axis 1 of x but 5 on axis 1 of w"),
    ("scaled", (full(2, 6), full(5), T.bool()), {"groups": -1, "eps": -1}, ValueError,
     "groups must be positive, not -1"),
    ("scaled", (full(2, 6), full(5), T.bool()), {"groups": 3}, TypeError,
     "t must be int64, not torch.bool"),
    ("scaled", (full(2, 6), full(6), T, 1), {"groups": 3, "reduction": 1}, TypeError,
     "b must be a tensor, not int"),
]  # fmt: skip


@each_row("name, tensors, parameters, error, message", WRONG)
def test_a_wrong_call_is_told_its_first_fault(name, tensors, parameters, error, message):
    with pytest.raises(error, match=f"^{re.escape(f'{name}: {message}')}$"):
        derive.load(OPS[name])(*tensors, **parameters)


@cache
def alone(name):
    """Of a module that imports torch alone: it has the checks that its signature wants."""
    return loaded.function(name, source(OPS[name]))


@each_row("name, tensors, parameters, error, message", WRONG)
def test_a_module_alone_tells_the_same(name, tensors, parameters, error, message):
    with pytest.raises(error, match=f"^{re.escape(f'{name}: {message}')}$"):
        alone(name)(*tensors, **parameters)


def test_a_module_alone_has_no_checks_that_find_nothing():
    alone = source(derive.parse("op f(x[n,k]) -> y; y[n,k] = x[n,k]**3"))
    some = source(derive.parse("op f(x[n,k], w[k]) -> y; y[n,k] = x[n,k]*w[k]"))
    assert "_equals" in some
    words = ("_places(", "_groups", "_optional", "_number_faults", "_quotients", "_products")
    assert not [w for w in words if w in some]
    assert "_equals" not in alone and "_devices" not in alone


RIGHT = {
    "affine": ([(2, 3), (4, 3), (4,)], [{}]),
    "along": ([(2, 3, 4), (2, 3, 4), (3,)], [{"dim": 1}, {"dim": -2}, {"dim": 0}]),
    "columns": ([(2, 3, 4)], [{"dim": 2}, {"dim": -1}]),
    "between": ([(2, 3, 4)], [{"dim": 1}, {"dim": 2}]),
    "scaled": ([(2, 6, 5), (6,), (2,), (3,)], [{"groups": 3}, {"groups": 2}]),
    "halves": ([(2, 4)], [{}]),
    "grouped": ([(6, 2), (3, 2), (2,)], [{}]),
    "shares": ([(6, 2), (3, 2)], [{}]),
    "norm": ([(2, 3), (3,), (3,)], [{}]),
    "middle": ([(2, 3, 4), (3, 4)], [{}]),
    "square": ([(2, 3), (3, 3)], [{}]),
    "trace": ([(3, 3)], [{}]),
    "masked": ([(2, 3), (2, 3), ()], [{}]),
    "fixed": ([(2, 3), (3,)], [{}]),
    "picked": ([(2,), (3, 4)], [{}]),
}
"""Name -> shapes of a right call, and parameters."""


def changed(shape, rng):
    """The shape, or one with another size, or an axis more, less or exchanged."""
    shape = list(shape)
    way = rng.randrange(6)
    if way == 0 and shape:
        shape[rng.randrange(len(shape))] += rng.choice((-1, 1, 2))
    elif way == 1:
        shape.insert(rng.randrange(len(shape) + 1), rng.choice((1, 2, 3)))
    elif way == 2 and shape:
        del shape[rng.randrange(len(shape))]
    elif way == 3:
        rng.shuffle(shape)
    return tuple(shape)


@pytest.mark.parametrize("name", RIGHT)
def test_what_fits_the_equations_is_taken_and_no_more(name):
    """The sizes of the reference say what fits; an error always names its fault."""
    op, rng, f = OPS[name], random.Random(name), derive.load(OPS[name])
    shapes, settings = RIGHT[name]
    dtypes = {"float": torch.float32, "int": torch.int64, "bool": torch.bool}
    met = set()
    for _ in range(150):
        given = [changed(shape, rng) for shape in shapes]
        tensors = [
            torch.ones(s, dtype=dtypes[t.kind]) for s, t in zip(given, op.inputs, strict=True)
        ]
        if op.inputs[-1].default is not None and rng.random() < 0.2:
            tensors[-1] = None
        parameters = rng.choice(settings)
        arrays = [None if x is None else x.numpy() for x in tensors]
        named = {t.name: x for t, x in zip(op.inputs, arrays, strict=True)}
        try:
            oracle.sizes(op, {n: x for n, x in named.items() if x is not None}, parameters)
        except (ValueError, IndexError, TypeError):
            fits = False
        else:
            fits = True
        met.add(fits)
        if fits:
            f(*tensors, **parameters)
            continue
        with pytest.raises(ValueError, match=f"^{name}: ") as caught:
            f(*tensors, **parameters)
        assert "do not fit" not in str(caught.value)
    assert met == {True, False}


@pytest.mark.filterwarnings("ignore")
def test_a_call_is_compiled_for_any_sizes():
    """No test of a call breaks the graph, also where sizes are symbols."""
    for name, (shapes, settings) in RIGHT.items():
        if any(t.kind != "float" for t in OPS[name].inputs):
            continue
        f, parameters = derive.load(OPS[name]), settings[0]
        torch._dynamo.reset()
        compiled = torch.compile(
            partial(f, **parameters), backend="eager", fullgraph=True, dynamic=True
        )
        for k in (1, 1 if name in ("fixed", "halves", "grouped", "shares") else 2):
            tensors = [torch.rand([k * n for n in shape]) for shape in shapes]
            torch.testing.assert_close(compiled(*tensors), f(*tensors, **parameters))


def test_the_condition_compares_whole_shapes():
    text = source(OPS["affine"], standalone=False)
    assert (
        "    if (\n"
        "        w is None\n"
        "        or not rt.floating_if_given(x, w, b)\n"
        "        or x.dim() != 2\n"
        "        or w.dim() != 2\n"
        "        or w.shape[1] != x.shape[1]\n"
        "        or (b is not None and b.shape != w.shape[:1])\n"
        "    ):\n"
        '        raise rt.explained("affine", "x[n,k], w[j,k], b[j]=None", x, w, b)\n'
    ) in text
    text = source(OPS["norm"], standalone=False)
    assert "or x.dim() < w.dim()\n" in text
    assert "or x.shape[x.dim() - w.dim() :] != w.shape\n" in text


def test_neighbors_are_compared_with_one_earlier_tensor():
    """What has the rank of another by its shape needs no test of its own for the rank."""
    op = derive.parse(
        "op f(q[*b,i,d], k[*b,j,d], v[*b,j,e], p[j,d,*b], r[*b,j,e]) -> y\n"
        "y[*b,i,e] = sum[j](sum[d](q[*b,i,d]*k[*b,j,d]*p[j,d,*b])*v[*b,j,e]*r[*b,j,e])"
    )
    tests = re.findall(r"(?<=or )[kvpr]\..*", source(op, standalone=False))
    assert tests == [
        "k.dim() != q.dim()",
        "k.shape[:-2] != q.shape[:-2]",
        "k.shape[-1] != q.shape[-1]",
        "v.shape[:-1] != k.shape[:-1]",
        "p.shape != k.shape[-2:] + q.shape[:-2]",
        "r.shape != v.shape",
    ]
    f = derive.load(op)
    shapes = {"q": (2, 3, 4), "k": (2, 5, 4), "v": (2, 5, 6), "p": (5, 4, 2), "r": (2, 5, 6)}
    assert f(*(full(*shape) for shape in shapes.values())).shape == (2, 3, 6)
    for name, n in product(shapes, range(3)):
        whole = shapes[name]
        wrong = [whole[:n]]
        if (name, n) != ("q", 1):  # i is of q alone
            wrong.append((*whole[:n], 7, *whole[n + 1 :]))
        for shape in wrong:
            with pytest.raises(ValueError, match=r"f: .* (axis|axes|\[)"):
                f(*(full(*(shape if x == name else shapes[x])) for x in shapes))


def test_the_product_of_the_parts_of_an_axis_is_its_size():
    op = catalog.find("group_norm")
    assert "weight.shape != (input.shape[1],)" in source(op, standalone=False)
    with pytest.raises(ValueError, match=r"axis 0 of weight has size 4, but .* is 6$"):
        derive.load(op)(full(2, 6, 5), full(4), num_groups=3)


def test_a_parameter_may_have_any_name():
    """Also those of the arguments of the function that finds the fault."""
    op = derive.parse(
        "op f(x[*p,name,*q]; signature=axis(name), values=1, values > 0) -> y\n"
        "y[*p,*q] = values*sum[name](x[*p,name,*q])"
    )
    with pytest.raises(ValueError, match=r"^f: signature must be in"):
        derive.load(op)(full(2), signature=1)
    with pytest.raises(ValueError, match=r"^f: values must be greater than 0, not -1\.0$"):
        derive.load(op)(full(2), signature=0, values=-1)


def test_a_size_that_is_no_product_has_a_check_of_its_own():
    op = derive.parse("op f(x[n], w[m]; size(m)=size(n)+1) -> y; y[n] = x[n]*w[n+1]")
    f = derive.load(op)
    assert f(full(2), full(3)).shape == (2,)
    with pytest.raises(ValueError, match="f: axis 0 of w has size 4, but must have size 3"):
        f(full(2), full(4))


def test_a_size_may_be_given_by_one_that_its_own_axis_limits():
    """n has the axis of x, as far as o[n + 1] exists; o is one longer."""
    f = derive.load(derive.parse("op f(x[t], o[k]; size(k)=size(n)+1) -> y\ny[n] = x[n]*o[n+1]"))
    o = torch.arange(4.0)
    for size in (3, 5):
        x = torch.randn(size)
        torch.testing.assert_close(f(x, o), x[:3] * o[1:])
    with pytest.raises(ValueError, match="axis 0 of o has size 4, but must have size 3"):
        f(torch.randn(2), o)


def test_one_tensor_of_a_long_name_is_no_list_of_values():
    name = "an_operation_with_a_name_that_takes_more_than_half_a_line"
    op = derive.parse(f"op {name}(tensor[n,m,k]) -> y\ny[n,m,k] = tensor[n,m,k]*tensor[n,m,k]")
    with pytest.raises(ValueError, match=r"tensor must have 3 axes \[n, m, k\], not 2$"):
        derive.load(op)(full(2, 2))


def test_a_test_that_begins_with_a_parenthesis_is_whole():
    """What follows (a) in (a) * (b) % c != 0 was left out of a long one."""
    size = "x.shape[0] - x.shape[0] - 2 * (-1 * x.shape[0] // 2)"
    for test in (f"({size}) * ({size}) % 4 != 0", f"x.shape != ({size}, {size})"):
        text = "\n".join(_condition_lines(["x.dim() != 2", test], 88))
        assert re.sub(r"[\s,]", "", f"if(x.dim()!=2or{test}):") == re.sub(r"[\s,]", "", text)
