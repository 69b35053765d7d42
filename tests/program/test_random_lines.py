"""Passes over lines of random torch code: values and shapes stay, and types say what shapes are."""

import random
from dataclasses import replace

import pytest
import torch
from kit.torch_code import torch_code

from derive.algebra.poly import constant
from derive.program.buffer_reuse import InPlaceWriter
from derive.program.cse import Line, tidy
from derive.program.reduced_axes import with_kept_axes
from derive.program.shape_rules import TensorType
from derive.program.torch_ir import Name, text
from derive.program.types import Types

SHAPES = {"x": (3, 4), "v": (4,), "u": (3,), "z": (3, 4, 2)}
FORMS = (
    """
{a} + {b}; {a} - {b}; {a} * {b}; -{a}; {a} * 2; 3 - {a}; {a}.exp(); {a}.square(); {a}.amax({d})
{a}.clamp(-1, 1); {a}.unsqueeze({p}); {a}.sum({d}); {a}.mean({d}); {a}.sum((0, 1)); {a}.flip({d})
{a}.sum({d}, keepdim=True); ({a} - {b}).sum({d}); {a}.cumsum({d}); {a}.softmax({d})
{a}.select({d}, 1); {a}.sum({d}).unsqueeze({d}) * {b}; ({a}.mean({d}) - 2).unsqueeze({d}) + {b}
{a}.sum({d}).unsqueeze({p}).unsqueeze({q}); ({a}.unsqueeze({p}) - {b}.unsqueeze({q})) * 2
{a}.sum({d}).cumsum({q}).unsqueeze({p}); {a}.sum({d}).softmax({q}).unsqueeze({p}) - {b}
""".strip()
    .replace("\n", "; ")
    .split("; ")
)
"""Lines of tensors a and b that have axes, with an axis d, and places p and q."""


def drawn(seed):
    """Random tensors, lines that are right for them, and the value of each name."""
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    given = {
        name: torch.rand(shape, generator=generator, dtype=torch.float64)
        for name, shape in SHAPES.items()
    }
    lines, made = [], dict(given)
    while len(lines) < 6:
        a, b = (draw.choice([n for n, t in made.items() if t.dim()]) for _ in "ab")
        d, (p, q) = draw.choice([0, -1, made[a].dim() - 1]), draw.choices([0, 1, -1], k=2)
        code = draw.choice(FORMS).format(a=a, b=b, d=d, p=p, q=q)
        try:
            value = eval(code, {}, made)
        except (IndexError, RuntimeError):
            continue
        if value.numel() <= 400:
            lines.append(Line(f"t{len(lines)}", torch_code(code), kept=len(lines) == 5))
            made[lines[-1].name] = value
    return given, lines, made


def in_place(lines, given):
    """The lines written over temporaries wherever that is possible."""
    writer = InPlaceWriter(
        results=("t5",),
        places={name: n for n, name in enumerate(given)},
        taken={*given, *(line.name for line in lines)},
        is_large=lambda shape: True,
    )
    needed = [replace(line, needs=tuple(given)) for line in lines]
    return list(writer.write(needed, [types_of(given)]))


def types_of(given):
    return Types({}, {n: TensorType(tuple(map(constant, t.shape))) for n, t in given.items()})


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_the_result_stays(first):
    for seed in range(first, first + 50):
        given, lines, made = drawn(seed)
        taken = {*given, *(line.name for line in lines)}
        neat, kept = tidy(lines, set(taken)), with_kept_axes(lines, {"t5"}, ())
        written = in_place(lines, given), in_place(neat, given)
        for found in (neat, kept, tidy(kept, set(taken)), *written):
            names = {name: t.clone() for name, t in given.items()}
            exec(
                "\n".join(f"{line.name} = {text(line.code)}" for line in found),
                {"torch": torch},
                names,
            )
            assert torch.allclose(names["t5"], made["t5"], rtol=1e-9, atol=1e-9), seed
            assert all(torch.equal(names[name], t) for name, t in given.items()), seed


def test_types_say_what_shapes_are():
    for seed in range(150):
        given, lines, made = drawn(seed)
        types = types_of(given)
        types.run(lines)
        for name, value in made.items():
            assert types.shape(Name(name)) == tuple(map(constant, value.shape)), seed
