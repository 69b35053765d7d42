"""What deriving an operation may take: a limit ends it with an error that says which, and where."""

import gc
import threading

import pytest
from kit.command import derive as command

import derive
from derive import budget

LONG = "op long(x[i], w[i]) -> y\n" + "\n".join(
    f"{'y' if n == 11 else f'h{n}'}[i] = tanh({f'h{n - 1}' if n else 'x'}[i]*w[i])"
    for n in range(12)
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
    assert "derive.limits(seconds=N)" in text


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
    with pytest.raises(
        derive.DeriveError, match="DERIVE_MAX_SECONDS must be a number of at least 0"
    ):
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


def test_the_command_line_sets_limits():
    done = command("--max-code", "500", "show", "softmax", "--format", "code")
    assert (done.returncode, done.stdout) == (2, "")
    assert "above the limit of 500; most of them compute" in done.stderr
    assert "derive --max-code N COMMAND" in done.stderr
    done = command("--max-code", "inf", "show", "softmax", "--format", "code")
    assert done.returncode == 0


@pytest.mark.parametrize("option", ["--max-seconds", "--max-memory", "--max-code", "--version"])
def test_an_option_behind_the_command_is_told_its_place(option):
    done = command("show", "softmax", option, "5")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{option} must precede the command" in done.stderr
    done = command("show", "softmax", "--max-second", "5")
    assert "must precede" not in done.stderr


@pytest.mark.parametrize("amount", ["nan", "-1"])
def test_a_limit_is_a_number_from_0_on(amount, monkeypatch):
    done = command("--max-seconds", amount, "show", "softmax")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--max-seconds must be a number of at least 0" in done.stderr
    with (
        pytest.raises(
            derive.DeriveError, match=r"limits\(code=...\) must be a number of at least 0"
        ),
        derive.limits(code=float(amount)),
    ):
        pass
    monkeypatch.setenv("DERIVE_MAX_MEMORY", amount)
    with pytest.raises(
        derive.DeriveError, match="DERIVE_MAX_MEMORY must be a number of at least 0"
    ):
        derive.source(long())


@pytest.mark.parametrize("given", [True, False])
def test_the_collector_is_as_before_after_work_and_after_an_error(given):
    before = gc.isenabled()
    (gc.enable if given else gc.disable)()
    try:
        with pytest.raises(ZeroDivisionError), budget.working("outer"), budget.working("inner"):
            assert not gc.isenabled()
            raise ZeroDivisionError
        assert gc.isenabled() == given
    finally:
        (gc.enable if before else gc.disable)()
