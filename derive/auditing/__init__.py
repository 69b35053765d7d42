"""Audit a hand-written autograd.Function: which gradient is wrong, and why."""
