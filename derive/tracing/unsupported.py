"""Advice for operations that index notation cannot express."""

from __future__ import annotations

from typing import Any

_ORDER = (
    "the order of elements depends on the values; pass the positions as an integer argument, "
    "x.gather(dim, positions)"
)
_RANDOM = (
    "it draws random numbers; call the module in eval mode, or pass the drawn mask or noise as "
    "an argument"
)
_COUNT = (
    "the number of elements depends on the values; pass the positions as an integer argument, or "
    "use a mask, torch.where(mask, x, 0)"
)
COMPLEX = "complex tensors are not supported; write the real and the imaginary part as two tensors"
_FOURIER = (
    "a Fourier transform is not an index expression; compute it outside and pass its result as "
    "an argument, or multiply by the cosine and sine matrices"
)
_MATRIX = (
    "a matrix decomposition or linear solve is not an index expression; compute it outside and "
    "pass its result as an argument"
)
NO_READING = (
    "it has no equivalent in index notation; use arithmetic, reductions, matrix products, gather "
    "or where, or compute it outside and pass its result as an argument"
)

_NAMES = {
    _ORDER: (
        "topk sort argsort msort kthvalue median nanmedian mode quantile searchsorted bucketize"
    ),
    _RANDOM: (
        "rand randn randint randperm rand_like randn_like randint_like normal normal_ uniform_ "
        "bernoulli bernoulli_ multinomial exponential_ geometric_ log_normal_ poisson rrelu "
        "rrelu_with_noise alpha_dropout"
    ),
    _COUNT: (
        "nonzero nonzero_numpy argwhere unique_dim _unique _unique2 unique_consecutive bincount"
    ),
    COMPLEX: "complex polar view_as_complex view_as_real real imag angle",
    _MATRIX: (
        "inverse cholesky cholesky_solve cholesky_inverse svd _linalg_svd qr lu_solve lstsq det "
        "slogdet logdet pinverse matrix_exp triangular_solve _linalg_det _linalg_slogdet "
        "_linalg_solve_ex _linalg_eigh"
    ),
}
_ADVICE = {name: text for text, names in _NAMES.items() for name in names.split()}
_FAMILIES = {"fft_": _FOURIER, "_fft_": _FOURIER, "linalg_": _MATRIX}


def is_refused(name: str) -> bool:
    """True if an operation has no reading, not even by torch's decomposition."""
    return name in _ADVICE


def advice(name: str) -> str | None:
    """Return what to do instead of an operation; None if nothing is known."""
    found = _ADVICE.get(name)
    families = (text for start, text in _FAMILIES.items() if name.startswith(start))
    return found or next(families, None)


def is_complex(made: Any) -> bool:
    """True if the result of a node is complex."""
    return bool(getattr(getattr(made, "dtype", None), "is_complex", False))
