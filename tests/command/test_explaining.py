"""The command ``explain``: codes in any form, a list of all, and what is near an unknown one."""

import pytest
from kit.command import derive

from derive.errors import KINDS, code_of


@pytest.mark.parametrize(
    "given", ("D009", "d9", "9", "[D009]", "unknown-function", "Unknown function")
)
def test_a_code_is_explained_in_any_form(given):
    done = derive("explain", given)
    assert done.returncode == 0, done.stderr
    first, blank, *rest = done.stdout.splitlines()
    assert (first, blank) == ("D009: unknown function", "")
    assert "    y[i] = gelu(x[i])" in rest
    # A terminal shows neither fences nor addresses.
    assert "```" not in done.stdout and "](" not in done.stdout


def test_all_codes_are_listed_with_a_line_each():
    lines = derive("explain").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [code_of(kind) for kind in KINDS]


@pytest.mark.parametrize(
    ("given", "meant"),
    (
        ("D061", "`derive explain` lists all codes"),
        ("D000", "`derive explain` lists all codes"),
        ("unknwn-function", "did you mean D009 (unknown-function)"),
    ),
)
def test_an_unknown_code_is_an_error_with_near_ones(given, meant):
    done = derive("explain", given)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"derive: no error has the code {given}; {meant}")
    assert done.stderr.endswith("[D045]\n")
