"""Read PyTorch code into an operation: graph capture, symbolic values, notation text."""
