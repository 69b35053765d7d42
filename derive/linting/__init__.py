"""Find faults of a hand-written ``autograd.Function`` in its source; nothing is run."""
