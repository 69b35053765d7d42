"""Specs with mistakes end in a DeriveError or are derived: a part of the campaign."""

import pytest
from campaigns.mutations import campaign, examined, mutated, texts


def test_the_catalog_is_among_what_is_mutated():
    assert sum(text.startswith("op batch_norm(") for text in texts()) == 1
    assert mutated(7) == mutated(7) != mutated(8)


def test_every_mistake_is_an_error_of_ours():
    wrong = [outcome for outcome in map(examined, range(100)) if outcome.failed]
    assert not wrong


@pytest.mark.long
def test_twenty_thousand_mistakes():
    wrong = [outcome for outcome in campaign(range(20_000)) if outcome.failed]
    assert not wrong
