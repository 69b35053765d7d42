"""Torch code as a tree, and passes over its statements."""
