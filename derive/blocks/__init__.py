"""An operation as passes over blocks of one index."""
