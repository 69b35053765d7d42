"""Torch's fused kernels as equations, and the recognition of their instances."""
