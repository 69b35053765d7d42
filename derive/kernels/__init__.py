"""Torch's fused kernels as equations, and the equations that they stand for in code."""
