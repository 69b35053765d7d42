"""Faults of a hand-written ``autograd.Function`` that its source alone shows; nothing is run."""
