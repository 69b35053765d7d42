"""What becomes of tensors that are given: read as text by ``derive.module.templating``."""


def _distinct(*tensors):
    """The tensors, of one that is there again a view: a Function is compiled with none twice."""
    met = list(tensors[:1])
    for x in tensors[1:]:
        again = x is not None and any(x is y for y in met)
        met.append(x.view_as(x) if again else x)
    return met
