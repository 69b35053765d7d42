"""What all lowering stands on: values and their axes, sizes at run time, views, contractions."""
