"""Learning from a data set: transitions whose behaviour policy is unknown."""

from mvpi.offline.dataset import Batch, Dataset
from mvpi.offline.density_ratio import (
    CoverageWarning,
    DensityRatio,
    WeightedDual,
    density_ratio,
    effective_size,
    weighted_dual,
)
from mvpi.offline.learn import Iteration, learn

__all__ = [
    "Batch",
    "CoverageWarning",
    "Dataset",
    "DensityRatio",
    "Iteration",
    "WeightedDual",
    "density_ratio",
    "effective_size",
    "learn",
    "weighted_dual",
]
