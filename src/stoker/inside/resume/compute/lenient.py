"""Ops that look at their inputs and raise: a ghost's NaN is no probability, and no index comes out of it.
While a life is a ghost they get another try with inputs that they take;
what they give is never seen, since every value comes from the log.
"""

from __future__ import annotations

import warnings

from ...looks import isinstance
from ..core import internals, phases

OPS = """
    binary_cross_entropy multinomial bernoulli bernoulli.p bernoulli_.Tensor normal.Tensor_float
    normal.float_Tensor normal.Tensor_Tensor poisson binomial _standard_gamma _sample_dirichlet
    nll_loss_forward nll_loss2d_forward multi_margin_loss multilabel_margin_loss_forward embedding
    _embedding_bag _embedding_bag_forward_only gather index_select index.Tensor _index_put_impl_ index_put_
    scatter.src scatter.value scatter_.src scatter_.value scatter_add scatter_add_ index_add_ index_copy_
    index_fill_.int_Scalar take put_ histc _linalg_svd _linalg_eigh linalg_eig linalg_cholesky_ex
    _linalg_solve_ex linalg_inv_ex linalg_lu_factor_ex linalg_qr
""".split()
_library = None


def install() -> None:
    """At the end of set-up: if this life is a ghost, from here on."""
    global _library
    if phases.phase != phases.GHOST:
        return
    import torch
    _library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for device in ("CPU", "CUDA"):
            for name in OPS:
                if internals.has_kernel(f"aten::{name}", device):
                    _replace(torch, name, device)


def remove() -> None:
    """The real tensors are back: so are the real ops."""
    global _library
    if _library is not None:
        _library._destroy()
    _library = None


def _replace(torch: object, name: str, device: str) -> None:
    op, real = internals.kernel(f"aten::{name}", device)
    in_place = name.partition(".")[0].endswith("_")

    def kernel(*args: object, **kwargs: object) -> object:
        try:
            return real(*args, **kwargs)
        except (RuntimeError, IndexError):
            kept = args[:1] if in_place else ()
            kwargs = {name: _harmless(torch, value) for name, value in kwargs.items()}
            return real(*kept, *[_harmless(torch, each) for each in args[len(kept):]], **kwargs)
    _library.impl(op, kernel, device)


def _harmless(torch: object, value: object) -> object:
    """Between 0 and 1 if a float, 0 if an integer."""
    if isinstance(value, (list, tuple)):
        return type(value)([_harmless(torch, each) for each in value])
    if not isinstance(value, torch.Tensor):
        return value
    if value.dim() == 2 and value.shape[0] == value.shape[1] and value.is_floating_point():
        return torch.eye(len(value), dtype=value.dtype, device=value.device)
    return torch.full_like(value, 0.5) if value.is_floating_point() else torch.zeros_like(value)
