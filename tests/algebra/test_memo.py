"""Recursion that no depth of a network can exhaust."""

from __future__ import annotations

import sys

import pytest

from derive.algebra.substitution import Recursion

DEEP = 20 * sys.getrecursionlimit()


def test_a_value_far_away_is_found():
    steps = Recursion(lambda n: 0 if n == 0 else steps(n - 1) + 1)
    assert steps(DEEP) == DEEP


def test_each_value_is_found_once_and_kept():
    done = []

    def find(n: int) -> int:
        value = 1 if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
        done.append(n)
        return value

    known: dict[int, int] = {}
    fibonacci = Recursion(find, known)
    assert fibonacci(90) == 4660046610375530309
    assert sorted(done) == list(range(91)) and known[90] == fibonacci(90)
    assert len(done) == 91


def test_values_are_found_in_the_order_of_plain_recursion():
    def order(deepest: int) -> list[int]:
        found: list[int] = []

        def find(n: int) -> int:
            if n:
                visit(n // 2)
                visit(n - 1)
            found.append(n)
            return n

        visit = Recursion(find)
        visit(deepest)
        return found

    def plainly(n: int, found: list[int]) -> list[int]:
        if n not in found:
            if n:
                plainly(n // 2, found)
                plainly(n - 1, found)
            found.append(n)
        return found

    assert order(100) == plainly(100, [])


def test_two_recursions_may_call_each_other():
    even = Recursion(lambda n: n == 0 or odd(n - 1))
    odd = Recursion(lambda n: n != 0 and even(n - 1))
    assert even(100) and not odd(100)


def test_an_error_is_passed_on_and_the_recursion_stays_usable():
    def find(n: int) -> int:
        if n == 7:
            raise ValueError("seven")
        return 0 if n == 0 else down(n - 1) + 1

    down = Recursion(find)
    with pytest.raises(ValueError, match="seven"):
        down(100)
    assert down(6) == 6
    with pytest.raises(ValueError, match="seven"):
        down(8)
