"""Lowers each kind of node to code."""
