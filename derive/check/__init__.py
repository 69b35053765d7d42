"""Oracles and samples, and what is held against them: generated code, derived formulas."""
