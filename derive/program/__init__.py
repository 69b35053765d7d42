"""Torch code as a tree, and what makes its statements readable."""
