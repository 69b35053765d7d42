"""What deriving an operation may take: a limit ends it with an error that says which, and where."""

from __future__ import annotations

import threading

import pytest

import derive
from derive import budget

LONG = "op long(x[i], w[i]) -> y\n" + "\n".join(
    f"{'y' if n == 40 else f'h{n}'}[i] = tanh({f'h{n - 1}' if n else 'x'}[i]*w[i])"
    for n in range(41)
)


def long() -> derive.Operation:
    """An operation that no other test has derived: what is derived once is known."""
    long.made = getattr(long, "made", 0) + 1
    return derive.parse(LONG.replace("op long", f"op long{long.made}"))


def test_the_error_of_time_says_the_operation_the_equation_and_what_to_do():
    with (
        derive.limits(seconds=0),
        pytest.raises(derive.LimitError, match="processor time, at") as e,
    ):
        derive.source(long())
    text = str(e.value)
    assert text.startswith("long")
    assert "equation h" in text or "gradient of h" in text
    assert "derive.limits(seconds=...)" in text


def test_the_error_of_code_says_what_the_most_is_for():
    with derive.limits(code=500), pytest.raises(derive.LimitError, match="characters of code"):
        derive.source(long())


def test_the_error_of_memory(monkeypatch):
    taken = iter(range(0, 10**12, 10**9))
    monkeypatch.setattr(budget, "_resident", lambda: next(taken))
    with derive.limits(memory=1e9), pytest.raises(derive.LimitError, match="1 GB of memory"):
        derive.source(long())


def test_no_limit_is_none():
    with derive.limits(seconds=None, memory=None, code=None):
        assert "def long" in derive.source(long())


def test_the_environment_sets_limits(monkeypatch):
    monkeypatch.setenv("DERIVE_MAX_SECONDS", "0")
    with pytest.raises(derive.LimitError, match="more than 0 s"):
        derive.source(long())
    monkeypatch.setenv("DERIVE_MAX_SECONDS", "soon")
    with pytest.raises(derive.DeriveError, match="DERIVE_MAX_SECONDS must be a number, not 'soon'"):
        derive.source(long())


def test_limits_hold_off_the_main_thread_and_for_each_operation_anew():
    found = []

    def work() -> None:
        with derive.limits(seconds=0):
            for _ in range(2):
                try:
                    derive.source(long())
                except derive.LimitError as error:
                    found.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(found) == 2
    assert "def long" in derive.source(long())


def test_a_limit_of_derivation_and_of_a_joint_function():
    with derive.limits(seconds=0):
        with pytest.raises(derive.LimitError):
            derive.derivation(long())
        with pytest.raises(derive.LimitError):
            derive.value_and_grad_source(long())
