"""The text of a generated module: its documentation, its checks of arguments, its functions."""
