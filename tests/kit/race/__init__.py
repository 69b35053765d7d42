"""The race of generated functions against torch."""
