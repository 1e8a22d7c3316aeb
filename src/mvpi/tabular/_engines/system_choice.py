"""Which linear solver suits a chain: a banded LU, or a preconditioned Krylov method."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from mvpi.tabular._engines import banded, krylov
from mvpi.tabular._engines.linear_systems import Evaluation, System, has_few_successors


def make_system(
    matrix: csr_array, *, bordered: bool = False, evaluation: Evaluation = "auto"
) -> System:
    """The kind of system that suits the pattern of `matrix`.

    A `bordered` one has a full column: the unknown there is subtracted from all others.
    """
    widths = (0, 0) if bordered else banded.bandwidths(matrix)
    if not bordered and evaluation != "krylov" and banded.is_narrow(widths):
        return banded.Banded(matrix, np.arange(matrix.shape[0]), widths)
    if bordered or not has_few_successors(matrix):
        return krylov.GaussSeidelKrylov(matrix)
    return krylov.SweepKrylov(matrix)
