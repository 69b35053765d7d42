"""Write sizes, which are SymPy expressions in torch, in the notation."""

from __future__ import annotations

import sympy
from sympy.printing.str import StrPrinter


class FloorQuotient(sympy.Function):  # type: ignore[misc]
    """A quotient rounded down."""


def size_text(e: sympy.Expr, level: int = 0) -> str:
    """Return a size in the notation: added terms, subtracted terms, then the number."""
    from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

    match e:
        case sympy.Add():
            terms = [(t.could_extract_minus_sign(), t) for t in e.as_ordered_terms()]
            terms.sort(key=lambda t: (bool(t[1].is_number), t[0]))
            text = " ".join(
                f"{'-' if minus else '+'} {size_text(-t if minus else t, 6)}" for minus, t in terms
            )
            made, own = text.removeprefix("+ ").replace("- ", "-", text.startswith("- ")), 5
        case FloorQuotient() | FloorDiv():
            made, own = f"{size_text(e.args[0], 6)}//{size_text(e.args[1], 7)}", 6
        case sympy.Min():
            made, own = f"minimum({', '.join(map(size_text, e.args))})", 9
        case Mod() | PythonMod() | sympy.Mod():
            made, own = f"{size_text(e.args[0], 6)} % {size_text(e.args[1], 7)}", 6
        case sympy.Mul() if e.is_integer and not e.could_extract_minus_sign():
            made, own = "*".join(size_text(f, 7) for f in e.as_ordered_factors()), 6
        case _:
            made, own = _Exact().doprint(e), 9 if e.is_Atom else 5
    return f"({made})" if own < level else made


class _Exact(StrPrinter):  # type: ignore[misc]
    """Prints floats with all their digits, and functions by their names in the notation."""

    def _print_Float(self, e: sympy.Float) -> str:
        return repr(float(e))

    def _print_Function(self, e: sympy.Function) -> str:
        name = _NAMES.get(type(e).__name__, e.func.__name__)
        return f"{name}({', '.join(map(self._print, e.args))})"

    _print_Abs = _print_Function


_NAMES = {
    "Abs": "abs",
    "FloorToInt": "floor",
    "CeilToInt": "ceil",
    "TruncToInt": "trunc",
    "RoundToInt": "round",
}


def number_text(e: sympy.Expr) -> str:
    """Return a number without symbols in the notation."""
    if e.is_Integer:
        return str(e)
    if e.is_Rational and e.q < 100:
        return f"{e.p}/{e.q}"
    return repr(float(e))
