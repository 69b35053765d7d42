"""The right Functions of the corpus are right, by oracles that are not derive."""

import torch
from kit.each import each_row
from kit.right import KINDS, RIGHT
from kit.right.oracle import arguments, gradients, places, prove, same


@each_row("entry", RIGHT, turns=4)
def test_a_function_is_right_at_its_example_and_at_other_sizes(entry):
    assert len(entry.oracle_examples) >= 2
    for example in (entry.example, *entry.oracle_examples):
        prove(entry, arguments(example))


@each_row("entry", RIGHT, turns=4)
def test_a_function_is_right_in_the_dtypes_of_its_example(entry):
    args = arguments(entry.example, torch.float32)
    assert not any(
        x.requires_grad
        for x in args
        if isinstance(x, torch.Tensor) and not isinstance(x, torch.nn.Parameter)
    )
    where, wide = places(entry, args), arguments(entry.example)
    assert where
    same(gradients(entry, args, where), gradients(entry, wide, where), 2e-3)


def test_the_corpus_has_enough_functions_of_different_names():
    assert len(RIGHT) >= 120
    assert len({entry.name for entry in RIGHT}) == len(RIGHT)
    assert all(len(entries) >= 6 for entries in KINDS.values())
