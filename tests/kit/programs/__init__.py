"""Random operations over the whole text notation, the same ones for the same seed.

A program starts from a setting (`setting`): classes of indices, groups, composites, parameters and
inputs. Equations are written on it (`equations`, from `expressions`, `conditions` and `reading`),
and arguments are drawn for it (`writing`). Single indices of different classes have different
sizes, so that a transposition or a wrong batch axis changes the result. `constructs` tells which
parts of the notation a program has.

`bodies` writes other programs, deeper ones over a few small tensors: masks in masks, and
reductions of one body side by side.
"""

from kit.programs.bodies import deep_program
from kit.programs.parts import Program
from kit.programs.writing import random_program

__all__ = ["Program", "deep_program", "random_program"]
