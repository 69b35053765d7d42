"""The seeded mistakes of the corpus are mistakes, by an oracle that is not derive."""

from kit.each import each_row
from kit.right import OF
from kit.right.oracle import arguments
from kit.seeded import seeded
from kit.seeded.oracle import differs
from kit.seeded.tables import CONDITIONS, MISTAKES


def found(function, old, new, name):
    """The uses that differ, for the example and each other valid call."""
    entry, wrong = OF[function], seeded(OF[function].function, old, new)
    return [
        differs(entry, wrong, arguments(example), name)
        for example in (entry.example, *entry.oracle_examples)
    ]


@each_row("function, old, new, name", MISTAKES, turns=4)
def test_a_mistake_gives_another_gradient(function, old, new, name):
    assert any(use.partition(":")[0] == "gradients" for use in found(function, old, new, name)[0])


@each_row("function, old, new, name", CONDITIONS, turns=4)
def test_a_mistake_of_some_uses_shows_in_some_only(function, old, new, name):
    at, *elsewhere = found(function, old, new, name)
    assert "gradients" not in at
    assert at or any(elsewhere)


def test_the_corpus_has_enough_mistakes():
    assert len(MISTAKES) + len(CONDITIONS) >= 200
    assert len({row[:3] for row in MISTAKES}) == len(MISTAKES)
