"""Programs that train on generated backward code: ``python -m derive.examples.makemore``.

They use what anyone can use, the public names of `derive`, and need the ``examples`` extra.
"""
