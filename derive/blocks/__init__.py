"""Evaluate an operation in passes over blocks of one index."""
