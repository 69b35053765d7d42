"""PyTorch code read as an operation: its graph, the values in it, and the text of its equations."""
