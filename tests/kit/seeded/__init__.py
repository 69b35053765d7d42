"""Functions with one text of their source replaced, and tables of replacements."""

import inspect
import sys
import textwrap


def seeded(function, old, new):
    """The class with the last occurrence of a text replaced."""
    source = textwrap.dedent(inspect.getsource(function))
    head, found, tail = source.rpartition(old)
    assert found, f"{function.__name__} has no {old!r}"
    names = dict(vars(sys.modules[function.__module__]))
    exec(head + new + tail, names)
    return names[function.__name__]
