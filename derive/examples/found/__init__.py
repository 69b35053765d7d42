"""Ten mistakes that ``derive audit`` finds, for ``python -m derive.examples.found``.

Each module has the smallest Function with the mistake, a corrected Function, and ``examples()``.
The mistakes are those of public code and published derivations; the guide describes them.
"""
