"""Reports of a derivation: formulas, steps and cost as text, JSON, LaTeX or HTML."""
