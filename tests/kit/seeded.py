"""A Function whose source has one text in place of another."""

import inspect
import textwrap

from kit import functions


def seeded(function, old, new):
    """The class with the text replaced where it last stands."""
    source = textwrap.dedent(inspect.getsource(function))
    head, found, tail = source.rpartition(old)
    assert found, f"{function.__name__} has no {old!r}"
    names = dict(vars(functions))
    exec(head + new + tail, names)
    return names[function.__name__]
