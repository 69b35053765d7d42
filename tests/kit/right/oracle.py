"""Judges a Function without derive: gradcheck, or autograd of a plain forward."""

import inspect

import torch
from torch import Tensor, nn

WIDE = {torch.float32: torch.float64, torch.complex64: torch.complex128}


def widened(value):
    """Cast an argument to float64; parameters stay those of their module."""
    if isinstance(value, nn.Module):
        return value.double()
    if isinstance(value, nn.Parameter):
        return value
    if isinstance(value, Tensor):
        return value.to(WIDE.get(value.dtype, value.dtype))
    if isinstance(value, list | tuple):
        return type(value)(map(widened, value))
    return value


def arguments(example, dtype=torch.float64):
    torch.manual_seed(0)
    args = example()
    if dtype == torch.float64:
        for each in args:
            widened(each)
        args = tuple(map(widened, args))
    return args


def named(function, args):
    """The names of forward's parameters, one per argument."""
    names = list(inspect.signature(function.forward).parameters)
    if function.setup_context is torch.autograd.Function.setup_context:
        names = names[1:]
    return (names + names[-1:] * len(args))[: len(args)]


def places(entry, args):
    """The positions of arguments with a gradient."""
    return [
        place
        for place, (name, value) in enumerate(zip(named(entry.function, args), args, strict=True))
        if isinstance(value, Tensor) and value.is_floating_point() and name not in entry.constants
    ]


def strided(value):
    """A strided copy: the first axis is innermost, and a nan follows each number."""
    back = tuple(reversed(range(value.dim())))
    turned = value.permute(back)
    return torch.stack((turned, torch.full_like(turned, torch.nan)), -1)[..., 0].permute(back)


def leaves(args, where, made=torch.clone):
    """Copies of the arguments; those at the given positions need a gradient."""
    return [
        value
        if isinstance(value, nn.Parameter)
        else made(value).detach().requires_grad_()
        if place in where
        else value
        for place, value in enumerate(args)
    ]


def outputs_of(function, args, in_place=False):
    """The outputs that may have a gradient."""
    if in_place:
        args = [a.clone() if isinstance(a, Tensor) else a for a in args]
    made = function(*args)
    made = made if isinstance(made, tuple) else (made,)
    return [y for y in made if isinstance(y, Tensor) and y.is_floating_point()]


def cotangents(outputs, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(y.shape, generator=generator).to(y.dtype) for y in outputs]


def pulled(outputs, inputs, given, **more):
    """The gradients of the inputs, 0 where autograd has none."""
    pairs = [(y, g) for y, g in zip(outputs, given, strict=True) if y.requires_grad]
    if not pairs:
        return [torch.zeros_like(x) for x in inputs]
    ys, gs = zip(*pairs, strict=True)
    found = torch.autograd.grad(ys, inputs, gs, allow_unused=True, **more)
    return [torch.zeros_like(x) if d is None else d for d, x in zip(found, inputs, strict=True)]


def gradients(entry, args, where, given=None, made=torch.clone, function=None):
    """Gradients of the Function, or of another function, at copies of the arguments."""
    args = leaves(args, where, made)
    outputs = outputs_of(function or entry.function.apply, args, entry.in_place)
    given = cotangents(outputs) if given is None else given
    return pulled(outputs, [args[place] for place in where], given)


def same(found, wanted, tolerance):
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, check_dtype=False)


def prove_values(entry, args):
    """Assert that values and gradients equal those of the plain or reference function."""
    plain = entry.reference or entry.plain
    where = places(entry, args)
    same(outputs_of(entry.function.apply, args), outputs_of(plain, args), entry.tolerance)
    wanted = gradients(entry, args, where, function=plain)
    same(gradients(entry, args, where), wanted, entry.tolerance)


def prove_gradients(entry, args):
    """Assert gradcheck; `structured` keeps the structure of arguments."""
    args = leaves(args, places(entry, args))

    def valid(*given):
        if entry.structured is not None:
            given = entry.structured(*given)
            given = given if isinstance(given, tuple) else (given,)
        return tuple(outputs_of(entry.function.apply, given, entry.in_place))

    assert torch.autograd.gradcheck(valid, args, rtol=1e-6, atol=1e-7)


def prove(entry, args):
    """Assert that gradients are right, linear in cotangents, and equal in every use."""
    tolerance, where = entry.tolerance, places(entry, args)
    if entry.reference or entry.plain:
        prove_values(entry, args)
    else:
        prove_gradients(entry, args)
    wanted = gradients(entry, args, where)

    args = leaves(args, where)
    inputs = [args[place] for place in where]
    kept = [x.detach().clone() for x in inputs]
    outputs = outputs_of(entry.function.apply, args, entry.in_place)
    given = cotangents(outputs)
    for _ in range(2):
        same(pulled(outputs, inputs, given, retain_graph=True), wanted, tolerance)
    same(given, cotangents(outputs), 0)
    same(inputs, kept, 0)

    alone = [
        pulled(outputs, inputs, [g * (k == n) for k, g in enumerate(given)], retain_graph=True)
        for n in range(len(outputs))
    ]
    same([sum(parts) for parts in zip(*alone, strict=True)], wanted, 10 * tolerance)
    others = cotangents(outputs, 2)
    mixed = [2 * a - 3 * b for a, b in zip(given, others, strict=True)]
    more = pulled(outputs, inputs, others, retain_graph=True)
    linear = [2 * a - 3 * b for a, b in zip(wanted, more, strict=True)]
    same(pulled(outputs, inputs, mixed, retain_graph=True), linear, 10 * tolerance)

    ones = [torch.ones_like(y) for y in outputs]
    spread = [torch.ones((), dtype=y.dtype).expand(y.shape) for y in outputs]
    same(gradients(entry, args, where, spread), gradients(entry, args, where, ones), tolerance)
    apart = [strided(g) for g in given]
    same(gradients(entry, args, where, apart, strided), wanted, tolerance)
    for n, place in enumerate(where):
        same(gradients(entry, args, [place], given), wanted[n : n + 1], tolerance)
