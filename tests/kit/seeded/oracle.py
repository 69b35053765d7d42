"""Find the uses in which a seeded Function differs from the right one, without derive."""

from functools import partial

import torch
from kit.right.oracle import cotangents, leaves, named, outputs_of, places, pulled, strided


def _plain(function, args, where, in_place):
    args = leaves(args, where)
    outputs = outputs_of(function.apply, args, in_place)
    return pulled(outputs, [args[n] for n in where], cotangents(outputs))


def _twice(function, args, where, in_place):
    args = leaves(args, where)
    outputs = outputs_of(function.apply, args, in_place)
    inputs = [args[n] for n in where]
    pulled(outputs, inputs, cotangents(outputs), retain_graph=True)
    return pulled(outputs, inputs, cotangents(outputs))


def _strided(function, args, where, in_place):
    args = leaves(args, where, strided)
    outputs = outputs_of(function.apply, args, in_place)
    given = [strided(g) for g in cotangents(outputs)]
    return pulled(outputs, [args[n] for n in where], given)


def _kept(function, args, where, in_place):
    args = leaves(args, where)
    outputs = outputs_of(function.apply, args, in_place)
    given = cotangents(outputs)
    pulled(outputs, [args[n] for n in where], given)
    return [*given, *(args[n].detach() for n in where)]


def _output_alone(number, function, args, where, in_place):
    args = leaves(args, where)
    outputs = outputs_of(function.apply, args, in_place)
    given = cotangents(outputs)
    part = slice(number, number + 1)
    return pulled(outputs[part], [args[n] for n in where], given[part])


def _input_alone(number, function, args, where, in_place):
    return _plain(function, args, where[number : number + 1], in_place)


USES = {
    "gradients": _plain,
    "a second call": _twice,
    "strided tensors": _strided,
    "what is changed": _kept,
    **{f"output {n} alone": partial(_output_alone, n) for n in range(3)},
    **{f"input {n} alone": partial(_input_alone, n) for n in range(3)},
}


def differs(entry, wrong, args, name=None):
    """The uses with a different gradient or an error.

    With a name, the gradient of that argument alone is compared.
    """
    found = []
    where = places(entry, args)
    names = [named(entry.function, args)[n] for n in where]
    if name is not None:
        assert name in names, f"{entry.name} has no gradient of {name}"
    for use, of in USES.items():
        right = of(entry.function, args, where, entry.in_place)
        try:
            made = of(wrong, args, where, entry.in_place)
        except Exception as error:
            found.append(f"{use}: {type(error).__name__}")
            continue
        pairs = list(zip(made, right, strict=True))
        if name is not None and len(pairs) == len(names):
            pairs = [pair for pair, own in zip(pairs, names, strict=True) if own == name]
        if not all(torch.allclose(a, b, rtol=1e-5, atol=1e-7) for a, b in pairs):
            found.append(use)
    return found
