"""A part that takes too long is left."""

import time

from derive.auditing import isolation
from derive.auditing.isolation import isolated, limited


def test_a_loop_without_end_is_left():
    done = False
    with limited(0.1):
        while True:
            pass
        done = True
    assert not done


def test_code_that_catches_all_errors_is_left_too():
    start = time.process_time()
    with limited(0.1):
        while True:
            try:
                sum(range(1000))
            except Exception:
                continue
    assert time.process_time() - start < 5


def test_what_ends_in_time_ends():
    found = []
    with limited(5.0):
        found.append(1)
    assert found == [1]


def test_what_precedes_the_parts_has_time_after_a_part_that_hangs(monkeypatch):
    monkeypatch.setattr(isolation, "_LEAST_SECONDS", 0.01)

    def run(enter):
        time.sleep(0.5)  # as the examples take
        for part in ("here", "there"):
            if enter(part) and part == "here":
                time.sleep(60)
        return "done"

    found, ended = isolated(run, 1.2)
    assert found == "done" and ended == {"here": "does not end within 1.2 s"}


def test_a_part_that_hangs_leaves_time_for_others_and_for_the_explanation(monkeypatch):
    monkeypatch.setattr(isolation, "_LEAST_SECONDS", 0.5)

    def run(enter):
        if enter("here"):
            time.sleep(60)
        if enter(isolation.LAST):
            time.sleep(1)  # as a search takes
        return "done"

    start = time.monotonic()
    found, ended = isolated(run, 4.0)
    assert found == "done" and ended == {"here": "does not end within 0.5 s"}
    assert time.monotonic() - start < 4
