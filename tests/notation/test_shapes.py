"""How many axes a tensor has is one number, and a group stays a group."""

from derive import parse
from derive.algebra.affine import affine
from derive.algebra.expr import Access, Call, Composite, Index, Mul, Num, Param, Size, num
from derive.notation.shapes import (
    atoms,
    compared_letters,
    composite_size,
    composition,
    factors,
    letters,
    places,
    shown,
)


def test_axes_follow_from_use():
    op = parse("y[*p,i] = sum[k](x[*p,k]*w[k,i])")
    assert {t.name: [a.name for a in t.axes] for t in op.inputs} == {
        "x": ["p", "k"],
        "w": ["k", "i"],
    }
    assert [a.group for a in op.inputs[0].axes] == [True, False]


t, d, i = (Index(name, name) for name in "tdi")
AXIS = Composite((t, num(0), d))


def test_a_composite_is_its_letters_and_their_product():
    assert letters(AXIS) == ["t", "d"]
    assert composite_size(AXIS) is Mul((Size("t"), Size("d")))
    assert composition(AXIS) == "(t 0 d)"


def test_products_are_the_same_in_any_order_and_with_numbers_known():
    known = {"t": Num(num(2).value)}.get
    one = factors(Mul((Size("t"), Size("d"))), known)
    assert one == factors(Mul((Size("d"), num(2))), known)
    assert one != factors(Mul((Size("d"), num(3))), known)


def test_a_range_depends_on_letters_and_on_sizes_in_it():
    position = affine(num(2) * i + Size("t") - num(1))
    assert position is not None
    assert set(atoms(position)) == {Size("t"), Size("i")}
    assert list(compared_letters(i + num(2) * t)) == ["i", "t"]
    assert list(compared_letters(Access("x", (i,)))) == []


def test_sizes_and_axes_are_said():
    size = Call("floordiv", (Size("t") + Param("pad"), num(2)))
    assert shown(size) == "floor((size(t) + pad)/2)"
    assert shown(Size("t") + num(-2) * Size("d") + num(-1)) == "size(t) - 2*size(d) - 1"
    assert places(["x@0", "y@1", "x@0"]) == "axis 0 of x and axis 1 of y"
    assert places([f"x@{n}" for n in range(6)]).endswith("and 3 others")
