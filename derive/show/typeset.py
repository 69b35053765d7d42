"""Styles for Unicode and LaTeX: how each construct is put together from texts.

A style decides nothing: `derive.show.formula` settles order, signs and parentheses, and hands
over the texts of the parts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_SMALL = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau "
    "upsilon phi chi psi omega"
)
_LARGE = "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
GREEK = dict(zip(_SMALL.split(), "αβγδεζηθικλμνξπρστυφχψω", strict=True))
_CAPITALS = dict(zip(_LARGE.split(), "ΓΔΘΛΞΠΣΥΦΨΩ", strict=True))
_LETTERS = {letter: name for name, letter in (GREEK | _CAPITALS).items()}
"""The commands of Greek letters."""


class Style:
    """The Unicode style, and the base class of the others."""

    encloses = False
    """True if fractions, roots and exponents show their extent without parentheses."""
    times, plus, minus, negative = "·", " + ", " − ", "−"
    conjunction, disjunction, negation = " and ", " or ", "not "
    comma = ", "
    modulo = " mod "
    relations: Mapping[str, str] = {
        "==": " = ",
        "!=": " ≠ ",
        "<": " < ",
        "<=": " ≤ ",
        ">": " > ",
        ">=": " ≥ ",
    }
    constants: Mapping[str, str] = {"pi": "π", "inf": "∞"}
    operators: Mapping[str, str] = {"sum": "Σ", "prod": "Π"}
    functions: Mapping[str, str] = {}
    fences: Mapping[str, tuple[str, str]] = {"abs": ("|", "|"), "floor": ("⌊", "⌋")}

    def whole(self, text: str) -> str:
        return text

    def number(self, text: str) -> str:
        return text

    def name(self, name: str) -> str:
        return name.replace("'", "′")

    def group(self, letter: str) -> str:
        return "*" + letter

    def fence(self, text: str, left: str = "(", right: str = ")") -> str:
        return left + text + right

    def fraction(self, top: str, bottom: str) -> str:
        return f"{top}/{bottom}"

    def power(self, base: str, exponent: str, atomic: bool) -> str:
        if exponent.isdecimal():
            return base + exponent.translate(_SUPERSCRIPTS)
        return f"{base}^{exponent if atomic else self.fence(exponent)}"

    def root(self, text: str, atomic: bool) -> str:
        return "√" + (text if atomic else self.fence(text))

    def subscript(self, name: str, positions: Sequence[str]) -> str:
        return f"{name}[{','.join(positions)}]"

    def access(self, tensor: str, positions: Sequence[str]) -> str:
        name = self.name(tensor)
        return self.subscript(name, positions) if positions else name

    def composite(self, parts: Sequence[str]) -> str:
        return self.fence(" ".join(parts))

    def size(self, letter: str) -> str:
        return f"size({letter})"

    def delta(self, positions: Sequence[str]) -> str:
        return self.subscript("δ", positions)

    def call(self, name: str, args: Sequence[str]) -> str:
        if name in self.fences and len(args) == 1:
            return self.fence(args[0], *self.fences[name])
        return self.functions.get(name, name) + self.fence(self.comma.join(args))

    def operator(self, kind: str, letters: Sequence[str], condition: str | None) -> str:
        """Return the sign of a reduction with its indices, as subscripts where Unicode has them."""
        sign = self.operators.get(kind, kind)
        if condition is None and all(_has_subscript(letter) for letter in letters):
            return sign + "".join(letters).translate(_SUBSCRIPTS)
        inside = ",".join(letters)
        return sign + f"[{inside if condition is None else f'{inside} | {condition}'}]"

    def prefix(self, operator: str, body: str) -> str:
        return f"{operator} {body}"

    def where(self, condition: str, then: str, other: str) -> str:
        return f"where({condition}, {then}, {other})"


_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_SUBSCRIPTS = str.maketrans("aehijklmnoprstuvx", "ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ")


def _has_subscript(letter: str) -> bool:
    bare = letter.rstrip("′")
    return len(bare) == 1 and ord(bare) in _SUBSCRIPTS


class Latex(Style):
    encloses = True
    times, minus, negative = r" \, ", " - ", "-"
    conjunction, disjunction, negation = r" \land ", r" \lor ", r"\lnot "
    modulo = r" \bmod "
    relations: Mapping[str, str] = {
        **Style.relations,
        **{"!=": r" \ne ", "<=": r" \le ", ">=": r" \ge "},
    }
    constants: Mapping[str, str] = {"pi": r"\pi", "inf": r"\infty"}
    operators: Mapping[str, str] = {"sum": r"\sum", "prod": r"\prod"} | {
        kind: rf"\{kind}" for kind in ("max", "min")
    }
    functions: Mapping[str, str] = {
        **{name: rf"\{name}" for name in "exp log sin cos tan sinh cosh tanh".split()},
        **{"asin": r"\arcsin", "acos": r"\arccos", "atan": r"\arctan", "sigmoid": r"\sigma"},
        **{"maximum": r"\max", "minimum": r"\min", "max": r"\max", "min": r"\min"},
        "digamma": r"\psi",
    }
    fences: Mapping[str, tuple[str, str]] = {"abs": ("|", "|"), "floor": (r"\lfloor ", r"\rfloor")}

    def number(self, text: str) -> str:
        digits, _, exponent = text.partition("e")
        if not exponent:
            return digits
        times = "" if digits == "1" else rf"{digits} \cdot "
        return f"{times}10^{{{exponent}}}"

    def name(self, name: str) -> str:
        bare = name.rstrip("'")
        primes = name[len(bare) :]
        if bare.startswith("Σ[") and "] " in bare:
            letters, _, summed = name.removeprefix("Σ[").partition("] ")
            own = [self.group(x[1:]) if x.startswith("*") else x for x in letters.split(",")]
            return self.prefix(self.operator("sum", own, None), self.name(summed))
        if bare.startswith("∂"):
            above, below = (self.name(part.removeprefix("∂")) for part in name.split("/"))
            return self.fraction(rf"\partial {above}", rf"\partial {below}")
        if letter := _LETTERS.get(bare, bare if bare in GREEK else ""):
            return f"\\{letter}{primes}"
        if not bare.isascii():
            return _command("text", "".join(_in_text(c) for c in bare)) + primes
        return (bare if len(bare) == 1 else _command("mathrm", bare)) + primes

    def group(self, letter: str) -> str:
        return r"{*}" + letter

    def fence(self, text: str, left: str = "(", right: str = ")") -> str:
        return rf"\left{left}{text}\right{right}"

    def fraction(self, top: str, bottom: str) -> str:
        return rf"\frac{{{top}}}{{{bottom}}}"

    def power(self, base: str, exponent: str, atomic: bool) -> str:
        return f"{base}^{{{exponent}}}"

    def root(self, text: str, atomic: bool) -> str:
        return rf"\sqrt{{{text}}}"

    def subscript(self, name: str, positions: Sequence[str]) -> str:
        return f"{name}_{{{','.join(positions)}}}"

    def composite(self, parts: Sequence[str]) -> str:
        return "(" + r" \, ".join(parts) + ")"

    def size(self, letter: str) -> str:
        return f"N_{{{letter}}}"

    def delta(self, positions: Sequence[str]) -> str:
        return self.subscript(r"\delta", positions)

    def call(self, name: str, args: Sequence[str]) -> str:
        if name in self.functions or name in self.fences:
            return super().call(name, args)
        return _command("operatorname", name) + self.fence(self.comma.join(args))

    def operator(self, kind: str, letters: Sequence[str], condition: str | None) -> str:
        sign = self.operators.get(kind) or _command("operatorname*", kind)
        under = ",".join(letters) + ("" if condition is None else f" : {condition}")
        return f"{sign}_{{{under}}}"

    def where(self, condition: str, then: str, other: str) -> str:
        rows = rf"{then} & \text{{if }} {condition} \\ {other} & \text{{otherwise}}"
        return rf"\begin{{cases}} {rows} \end{{cases}}"


def _command(command: str, text: str) -> str:
    """The text as the argument of a LaTeX command."""
    return f"\\{command}{{" + re.sub(r"(?<!\\)_", r"\\_", text) + "}"


_LATEX = Latex()


# LaTeX beyond formulas


def name_in_latex(name: str) -> str:
    """Return a name within a formula."""
    return _LATEX.name(name)


def plain(text: str) -> str:
    """Return text outside formulas, names and signs in it included, for LaTeX."""
    parts = re.split(rf"([{''.join(_LOW)}]+|[{''.join(_HIGH)}]+)", text)
    found = "".join(_script(part) or "".join(map(_in_text, part)) for part in parts)
    return re.sub(r"(?<!\\)\$\$", " ", found)


def _script(text: str) -> str:
    """Return raised or lowered letters as LaTeX, or nothing for other text."""
    for letters, sign in ((_LOW, "_"), (_HIGH, "^")):
        if text and set(text) <= {*letters}:
            return f"${sign}{{{''.join(letters[c] for c in text)}}}$"
    return ""


def _in_text(letter: str) -> str:
    """Return a letter or sign as text in LaTeX."""
    if letter in _SPECIAL:
        return _SPECIAL[letter]
    if letter in _SIGNS:
        return f"${_SIGNS[letter].strip()}$"
    return rf"$\{_LETTERS[letter]}$" if letter in _LETTERS else letter


_SPECIAL = {
    **{sign: f"\\{sign}" for sign in "_&%#$"},
    **{"{": r"\{", "}": r"\}", "\\": r"\textbackslash{}"},
    **{"^": r"\^{}", "~": r"\~{}", "<": "$<$", ">": "$>$", "|": "$|$"},
    **{"−": "$-$", "·": r"$\cdot$", "√": r"$\surd$", "…": r"\ldots{}", "×": r"$\times$"},
    **{"⌊": r"$\lfloor$", "⌋": r"$\rfloor$", "∧": r"$\land$"},
}
_SIGNS = {
    **{"Σ": r"\sum ", "δ": r"\delta ", "∂": r"\partial ", "π": r"\pi ", "∞": r"\infty "},
    **{"·": r" \, ", "−": "-", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "′": "'"},
}
_LOW = dict(zip("ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ", "aehijklmnoprstuvx", strict=True))
_HIGH = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻ᵖ", "0123456789-p", strict=True))
_TOKEN = re.compile(
    rf"[{''.join(_LOW)}]+|[{''.join(_HIGH)}]+|[A-Za-z][\w']*(?<![{''.join(_LOW)}])|."
)


def identity_in_latex(identity: str) -> str:
    """Return an identity (Unicode and words) as LaTeX mathematics."""
    if not set(identity) & {*_SIGNS, *_LOW, *_HIGH, "="}:
        return rf"\text{{{plain(identity)}}}"
    found = ""
    words: list[str] = []
    tokens = _TOKEN.findall(identity)
    for n, token in enumerate(tokens):
        following = tokens[n + 1] if n + 1 < len(tokens) else ""
        called = following in ("(", "[") or following[:1] in tuple(_LOW)
        if token == " " and words:
            continue
        if token[0].isascii() and len(token) > 1 and not called:
            words.append(plain(token))
            continue
        found, words = found + _in_words(words), []
        if token[0] in _LOW:
            found += f"_{{{''.join(map(_LOW.__getitem__, token))}}}"
        elif token[0] in _HIGH:
            found += f"^{{{''.join(map(_HIGH.__getitem__, token))}}}"
        elif len(token) > 1:
            found += _command("operatorname", token)
        else:
            found += _SIGNS.get(token, token)
    return found + _in_words(words)


def _in_words(words: Sequence[str]) -> str:
    return rf"\text{{ {' '.join(words)} }}" if words else ""
