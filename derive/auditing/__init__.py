"""A hand-written autograd.Function judged: which gradient is wrong, and what is wrong with it."""
