"""Tensor arguments of a Function; read as text by ``derive.module.runtime``."""


def distinct(*tensors):
    """Replace a repeated tensor by a view: a compiled Function takes no tensor twice."""
    met = list(tensors[:1])
    for x in tensors[1:]:
        again = x is not None and any(x is y for y in met)
        met.append(x.view_as(x) if again else x)
    return met
