"""Foundations of the lowering: values with named axes, sizes at run time, views, contractions."""
