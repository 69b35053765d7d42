"""Under canonical names nothing of a person's is left, and the way back is known."""

import re

from derive import parse
from derive.algebra.expr import Access, Index, Param, Size, walk
from derive.calculus.alpha_renaming import canonical, renamed

TEXT = (
    "op attention(Q[*b,t,d], K[*b,s,d]; scale=2, n=size(s)) -> P\n"
    "L[*b,t,s] = scale*sum[d](Q[*b,t,d]*K[*b,s,d])/n\nP[*b,t,s] = softmax[s](L[*b,t,s])"
)


def names(op):
    """What the equations of op call their tensors, parameters, indices and extents."""
    for e in op.equations:
        yield e.name
        for part in walk(e.body):
            match part:
                case Access(tensor=name) | Param(name) | Size(name):
                    yield name
                case Index(name, extent):
                    yield from (name.rstrip("'"), extent)


def test_names_are_numbers_in_order_and_spoken_gives_them_back():
    made, display_names = canonical(parse(TEXT))
    own = set(names(made))
    assert all(re.fullmatch(r"[tpie]\d{3}", name) for name in own)
    assert [t.name for t in made.inputs] == ["t000", "t001"]
    assert {display_names[name] for name in own} <= {*"Q K L P b t s d scale n".split()}


def test_operations_that_differ_in_names_alone_are_one():
    other = TEXT
    for old, new in (("Q", "A"), ("K", "B"), ("scale", "factor"), ("L", "logits")):
        other = re.sub(rf"\b{old}\b", new, other)
    assert canonical(parse(TEXT))[0] == canonical(parse(other))[0]


def test_every_name_is_said_again():
    i = Index("i000", "e000")
    assert renamed(Access("t000", (i,)), {"t000": "x", "i000": "i", "e000": "n"}.get) is Access(
        "x", (Index("i", "n"),)
    )
