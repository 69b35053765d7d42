"""Both orders of a backward in one text: either runs the lines of its own body."""

import pytest
from kit.definitions import NAMES

import derive
from derive import catalog
from derive.program.cse import Line
from derive.program.merged_bodies import merge_bodies
from derive.program.torch_ir import text
