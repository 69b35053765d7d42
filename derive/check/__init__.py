"""Check generated code and derived formulas against oracles, on samples."""
