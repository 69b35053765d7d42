"""Lowers nested equations to torch code: ground, patterns, nodes, and whole operations."""
