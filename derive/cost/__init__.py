"""What the code of an operation costs, as formulas in the sizes."""
