"""What becomes of tensors that are given: read as text by ``derive.module.emit``."""


def _distinct(*tensors):
    """The tensors, of one that is there again a view: a Function is compiled with none twice."""
    met = list(tensors[:1])
    for x in tensors[1:]:
        met.append(x.view_as(x) if any(x is y for y in met) else x)
    return met
