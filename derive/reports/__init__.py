"""What a derivation tells: formulas, steps, cost; as text, JSON, LaTeX or HTML."""
