"""All mistakes seeded in the right Functions of the corpus.

Each row is the name of a class, a text of its source, what stands there instead, and the input
whose gradient is wrong. `CONDITIONS` holds mistakes that show in some uses only: a flag, strided
tensors, a second call, one gradient alone.
"""

from kit.seeded import calls, gates, targets, values

MODULES = gates, targets, values, calls

MISTAKES = [row for module in MODULES for row in module.MISTAKES]

CONDITIONS = [row for module in MODULES for row in module.CONDITIONS]
