"""The errors of PyTorch code that has no reading, wherever it is met."""

from __future__ import annotations

from derive.errors import DeriveError


def unread(what: str) -> DeriveError:
    """Return the error of a call, or of an argument of it, that has no reading."""
    return DeriveError(what, kind="torch-call")


class SizesUnread(DeriveError):
    """The sizes of a function have no reading, if all of them may be any numbers."""

    kind = "torch-call"


def many() -> DeriveError:
    """Return the error of elements whose number depends on the values of a mask."""
    return DeriveError(
        "the number of elements depends on the values of a mask, which is not supported; use "
        "torch.where, or sum or average over all elements",
        kind="data-dependent",
    )


def extracted() -> DeriveError:
    """Return the error of a number that is taken out of a tensor."""
    return DeriveError(
        "the function computes with a number extracted from a tensor (item(), float(), tolist()); "
        "keep it as a tensor",
        kind="data-dependent",
    )
