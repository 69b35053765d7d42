"""What becomes of tensors that are given: read as text by ``derive.module.emit``."""


def _distinct(*tensors):
    """The tensors, of one that is there again a view: a Function is compiled with none twice."""

    def again(n):
        return any(tensors[n] is x for x in tensors[:n])

    return [x.view_as(x) if again(n) else x for n, x in enumerate(tensors)]
