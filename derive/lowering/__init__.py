"""Nested equations to torch code: ground, patterns, nodes, and an operation as a whole."""
