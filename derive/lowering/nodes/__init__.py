"""One kind of node after the other, to code."""
