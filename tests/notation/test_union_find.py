"""Classes of letters and axes of one size: known by their first key, in order."""

from __future__ import annotations

import pytest

from derive import SpecError
from derive.algebra.expr import Param, Size, num
from derive.notation.union_find import Classes, SizeClasses


def classes(kind=Classes):
    made = kind()
    for key in ("i", "x@0", "j", "x@1", "k"):
        made.add(key)
    return made


def test_a_class_is_known_by_its_first_key_however_it_is_joined():
    c = classes()
    assert c.union("x@1", "j") == ("j", "x@1")
    assert c.union("x@1", "i") == ("i", "j")
    assert c.union("j", "i") is None
    assert {c.root(key) for key in ("i", "j", "x@1")} == {"i"}
    assert c.members("i") == ["i", "j", "x@1"]
    assert c.roots() == ["i", "x@0", "k"]


def test_a_size_goes_with_its_class():
    c = classes(SizeClasses)
    c.set("j", num(3), None, "size(j)=3")
    c.join("x@0", "j")
    assert c.given == {"x@0": num(3)}
    assert c.display_name("x@0") == "j"
    assert c.canonical(Size("j") + Size("k")) is Size("x@0") + Size("k")


def test_two_sizes_of_one_class_are_an_error_that_says_both():
    c = classes(SizeClasses)
    c.set("i", num(3), None, "size(i)=3")
    c.set("x@0", Param("n"), None, "n=size(i)")
    with pytest.raises(SpecError, match=r"index i has two sizes: 3 \(size\(i\)=3\) and n") as error:
        c.join("i", "x@0")
    assert "axis 0 of x" in str(error.value)
