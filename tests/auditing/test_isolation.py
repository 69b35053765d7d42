"""A part that takes too long is left."""

import time

from derive.auditing.isolation import limited

# --------------------------------------------------------------------------------------- time limit


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
