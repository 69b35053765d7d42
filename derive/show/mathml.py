"""The style for MathML Core, which browsers draw themselves.

Factors are a thin space apart, brackets grow with what they hold, and limits stand below their
sign. `aligned` puts equations below one another, at the equals sign.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from derive.show.typeset import GREEK, Style

NAMESPACE = "http://www.w3.org/1998/Math/MathML"

_THIN = '<mspace width="0.17em"/>'


@dataclass(frozen=True)
class Partial:
    """What a name stands for: the derivative of ``above``, whose axes come first, by ``below``."""

    above: str
    below: str
    rank: int = 0
    """The number of axes of ``above``."""


class MathML(Style):
    """The style for MathML; names in ``partials`` are printed as derivatives."""

    encloses = True
    times, plus = f"<mo>&#x2062;</mo>{_THIN}", '<mo form="infix">+</mo>'
    minus, negative = '<mo form="infix">−</mo>', '<mo form="prefix">−</mo>'
    conjunction, disjunction = "<mo>∧</mo>", "<mo>∨</mo>"
    negation = "<mo>¬</mo>"
    comma = '<mo separator="true">,</mo>'
    modulo = '<mo form="infix">mod</mo>'
    relations: Mapping[str, str] = {
        op: f'<mo form="infix">{escape(sign.strip())}</mo>' for op, sign in Style.relations.items()
    }
    constants: Mapping[str, str] = {"pi": "<mi>π</mi>", "inf": "<mi>∞</mi>"}
    operators: Mapping[str, str] = {
        kind: f'<mo movablelimits="false">{sign}</mo>'
        for kind, sign in (("sum", "∑"), ("prod", "∏"))
    }

    def __init__(self, partials: Mapping[str, Partial] | None = None) -> None:
        self.partials = partials or {}

    def whole(self, text: str) -> str:
        return f'<math xmlns="{NAMESPACE}"><mrow>{text}</mrow></math>'

    def number(self, text: str) -> str:
        digits, _, exponent = text.partition("e")
        if not exponent:
            return f"<mn>{digits}</mn>"
        power = self.power("<mn>10</mn>", f"<mn>{exponent.replace('-', '−')}</mn>", True)
        return power if digits == "1" else f"<mn>{digits}</mn><mo>×</mo>{power}"

    def name(self, name: str) -> str:
        bare = name.rstrip("'")
        if bare.startswith("Σ[") and "] " in bare:
            letters, _, summed = name.removeprefix("Σ[").partition("] ")
            own = [
                self.group(self.name(x[1:])) if x[0] == "*" else self.name(x)
                for x in letters.split(",")
            ]
            return self.prefix(self.operator("sum", own, None), self.name(summed))
        if bare.startswith("∂") and "/" in bare:
            above, below = (self.name(part.removeprefix("∂")) for part in name.split("/"))
            return _partial(above, below)
        letter = f"<mi>{escape(GREEK.get(bare, bare))}</mi>"
        primes = "′" * (len(name) - len(bare))
        # Fonts have the prime raised, so that it is no superscript.
        return f'<mrow>{letter}<mo lspace="0" rspace="0">{primes}</mo></mrow>' if primes else letter

    def group(self, letter: str) -> str:
        return f'<mrow><mo form="prefix" lspace="0" rspace="0">∗</mo>{letter}</mrow>'

    def fence(self, text: str, left: str = "(", right: str = ")") -> str:
        return f"<mrow>{_bracket(left, 'prefix')}{text}{_bracket(right, 'postfix')}</mrow>"

    def fraction(self, top: str, bottom: str) -> str:
        return f"<mfrac><mrow>{top}</mrow><mrow>{bottom}</mrow></mfrac>"

    def power(self, base: str, exponent: str, atomic: bool) -> str:
        return f"<msup><mrow>{base}</mrow><mrow>{exponent}</mrow></msup>"

    def root(self, text: str, atomic: bool) -> str:
        return f"<msqrt>{text}</msqrt>"

    def subscript(self, name: str, positions: Sequence[str]) -> str:
        between = '<mo separator="true" lspace="0" rspace="0.1em">,</mo>'
        return f"<msub><mrow>{name}</mrow><mrow>{between.join(positions)}</mrow></msub>"

    def access(self, tensor: str, positions: Sequence[str]) -> str:
        known = self.partials.get(tensor)
        if known is None:
            return super().access(tensor, positions)
        above = Style.access(self, known.above, positions[: known.rank])
        return _partial(above, Style.access(self, known.below, positions[known.rank :]))

    def composite(self, parts: Sequence[str]) -> str:
        return self.fence('<mspace width="0.2em"/>'.join(parts))

    def size(self, letter: str) -> str:
        return f"<msub><mi>N</mi><mrow>{letter}</mrow></msub>"

    def delta(self, positions: Sequence[str]) -> str:
        return self.subscript("<mi>δ</mi>", positions)

    def call(self, name: str, args: Sequence[str]) -> str:
        if name in self.fences:
            return super().call(name, args)
        inside = self.fence(self.comma.join(args))
        return f"<mrow><mi>{escape(name)}</mi><mo>&#x2061;</mo>{inside}</mrow>"

    def operator(self, kind: str, letters: Sequence[str], condition: str | None) -> str:
        sign = self.operators.get(kind) or f"<mi>{escape(kind)}</mi>"
        under = self.comma.join(letters)
        if condition is not None:
            under += f"<mo>:</mo>{condition}"
        return f"<munder>{sign}<mrow>{under}</mrow></munder>"

    def prefix(self, operator: str, body: str) -> str:
        return f"<mrow>{operator}{_THIN}{body}</mrow>"

    def where(self, condition: str, then: str, other: str) -> str:
        rows = ((then, "if", condition), (other, "otherwise", ""))
        left = 'style="text-align: left"'
        table = "".join(
            f"<mtr><mtd {left}><mrow>{value}</mrow></mtd>"
            f"<mtd {left}><mtext>{word}&#xa0;</mtext>{case}</mtd></mtr>"
            for value, word, case in rows
        )
        return f"<mrow>{_bracket('{', 'prefix')}<mtable>{table}</mtable></mrow>"


def _bracket(sign: str, form: str) -> str:
    return f'<mo form="{form}" fence="true" stretchy="true">{sign}</mo>'


def _partial(above: str, below: str) -> str:
    sign = '<mo form="prefix" lspace="0" rspace="0">∂</mo>'
    return f"<mfrac><mrow>{sign}{above}</mrow><mrow>{sign}{below}</mrow></mfrac>"


def parts(equation: tuple[str, str]) -> tuple[str, str]:
    """Return an equation as two elements, its left side, and the equals sign with the right."""
    left, right = equation
    return _displayed(left), _displayed(f"{_EQUALS}{right}")


def aligned(equations: Iterable[tuple[str, str]]) -> str:
    """Return equations, each as its two sides, below one another, aligned at the equals sign."""
    table = "".join(
        f'<mtr><mtd style="text-align: right"><mrow>{left}</mrow></mtd>'
        f'<mtd style="text-align: left"><mrow>{_EQUALS}{right}</mrow></mtd></mtr>'
        for left, right in equations
    )
    return _displayed(f'<mtable displaystyle="true">{table}</mtable>')


_EQUALS = '<mo form="infix">=</mo>'


def _displayed(text: str) -> str:
    return f'<math xmlns="{NAMESPACE}" display="block"><mrow>{text}</mrow></math>'
