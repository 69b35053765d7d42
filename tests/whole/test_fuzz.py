"""Random programs over the whole notation, and the generator that writes them."""

import warnings
from collections import Counter
from collections.abc import Callable
from itertools import product

import pytest
from campaigns.fuzz import summary
from kit.each import some_now
from kit.examine import Result, Run, drawn, examine
from kit.programs import Program, deep_program, random_program
from kit.programs.constructs import EVERY, constructs
from kit.programs.setting import LETTERS, POOL
from kit.programs.shrinking import shrunk

from derive.errors import DeriveError
from derive.notation.specification import parse

COUNT = 120
"""These take turns; the others are a campaign: tests/campaigns/fuzz.py."""
CHUNK = 20
WRITTEN = 400
"""Programs that are read alone."""


@pytest.mark.parametrize("first", some_now(range(0, COUNT, CHUNK), COUNT // CHUNK, 6))
def test_values_and_gradients(first: int) -> None:
    _judge([examine(seed) for seed in range(first, first + CHUNK)])


@pytest.mark.parametrize("first", some_now(range(0, 20, 10), 2, 2))
def test_deep_bodies(first: int) -> None:
    seeds = range(first, first + 10)
    _judge([examine(seed, writer=deep_program) for seed in seeds], deep_program, 0.75)


@pytest.mark.parametrize("first", some_now(range(10_000, 10_016, 8), 2, 2))
def test_second_order(first: int) -> None:
    _judge([examine(seed, second_order=True) for seed in range(first, first + 8)])


@pytest.fixture(scope="module")
def found() -> Counter[str]:
    """How many of the programs have each construct, and how many there are."""
    counted: Counter[str] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(WRITTEN):
            program = random_program(seed)
            try:
                op = parse(program.text)
            except DeriveError:
                continue
            counted.update({"programs", *constructs(program, op)})
    return counted


def test_programs_have_every_construct(found: Counter[str]) -> None:
    """What is rare stands in few of them."""
    missing = [construct for construct in EVERY if not found[construct]]
    assert not missing, "tests/kit/programs writes no program that has them"


def test_nearly_every_text_is_an_operation(found: Counter[str]) -> None:
    assert found["programs"] >= 0.99 * WRITTEN


def test_the_same_seed_writes_the_same_program() -> None:
    for writer, seed in product((random_program, deep_program), (0, 7, 123)):
        first, again = writer(seed), writer(seed)
        assert first.text == again.text
        assert first.parameters == again.parameters
        for name, array in first.tensors.items():
            assert array is again.tensors[name] is None or (array == again.tensors[name]).all()


def test_programs_differ() -> None:
    assert len({random_program(seed).text for seed in range(500)}) > 495


def test_other_samples_share_the_text() -> None:
    assert random_program(3).text == random_program(3, sample=1).text


def test_every_class_has_a_size_of_its_own() -> None:
    assert len(set(POOL)) >= len(LETTERS)


@pytest.mark.long
def test_a_fault_is_told_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generated function that is wrong in every mean is found, and shrunk to one mean."""
    called = Run.called

    def wrong(run: Run, tensors: object) -> object:
        made = called(run, tensors)
        return tuple(m * 1.001 if "mean[" in run.program.text else m for m in made)

    monkeypatch.setattr(Run, "called", wrong)
    failed = next(r for r in map(examine, range(60)) if r.kind == "value")
    program = random_program(failed.seed)
    small = shrunk(program, lambda p: "mean[" in p.text)
    assert len(small.text) < len(program.text)
    assert "mean[" in small.text


def test_checks_are_drawn_by_seed() -> None:
    assert drawn(5) == drawn(5)
    assert len({frozenset(drawn(seed)) for seed in range(100)}) > 5


def _judge(
    results: list[Result], writer: Callable[[int], Program] = random_program, least: float = 0.85
) -> None:
    """No failures, and few that say nothing; the shares stand in the output."""
    kinds = Counter(result.kind for result in results)
    print(summary(kinds))
    failures = [
        f"seed {r.seed}: {r.kind}: {r.detail}\n{writer(r.seed).text}" for r in results if r.failed
    ]
    assert not failures, "\n\n".join(failures)
    assert kinds["ok"] >= least * len(results), summary(kinds)
    assert kinds["undefined"] <= 0.05 * len(results), summary(kinds)
