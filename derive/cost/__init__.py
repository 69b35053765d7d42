"""The cost of an operation's code, as formulas in the sizes."""
