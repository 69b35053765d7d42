"""A pattern is a name, an identity and what applies it; the first that has the form is taken."""

from derive.lowering.ground.pattern import Pattern, first_match


class Notes:
    """A scope that notes patterns and nothing else."""

    def __init__(self):
        self.noted = []

    def note(self, name, states):
        self.noted.append((name, states))


def half(scope, n):
    """n = 2*m."""
    return n // 2 if n % 2 == 0 else None


def same(scope, n):
    """n = n."""
    return n


HALF, ANY = Pattern("half", half), Pattern("any", same)


def test_the_first_that_makes_something_is_taken_and_noted():
    scope = Notes()
    assert first_match((HALF, ANY), scope, 6) == 3
    assert first_match((HALF, ANY), scope, 5) == 5
    assert scope.noted == [("half", "n = 2*m"), ("any", "n = n")]


def test_where_none_has_the_form_nothing_is_made():
    scope = Notes()
    assert first_match((HALF,), scope, 5) is None
    assert scope.noted == []
