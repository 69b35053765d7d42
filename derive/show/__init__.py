"""Expressions as mathematics: in Unicode, LaTeX and MathML."""
