"""Functions with one text of their source replaced, and tables of replacements."""

import inspect
import linecache
import sys
import textwrap


def seeded(function, old, new):
    """The class with the text replaced where it last stands; its source can be read."""
    source = textwrap.dedent(inspect.getsource(function))
    head, found, tail = source.rpartition(old)
    assert found, f"{function.__name__} has no {old!r}"
    text = head + new + tail
    names = dict(vars(sys.modules[function.__module__]))
    file = f"<{function.__name__} with {new!r} for {old!r}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), names)
    return names[function.__name__]
