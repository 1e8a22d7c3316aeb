"""Learning from a data set: transitions whose behaviour policy is unknown."""

from mvpi.offline._lstd_dual import policy_dual
from mvpi.offline._residual_error import PolicyDual
from mvpi.offline.dataset import Batch, Dataset
from mvpi.offline.density_ratio import (
    ConvergenceWarning,
    CoverageWarning,
    DensityRatio,
    WeightedDual,
    density_ratio,
    effective_size,
    weighted_dual,
)
from mvpi.offline.evaluation import OfflineEvaluation, evaluate
from mvpi.offline.fitted_q import fitted_q_mean
from mvpi.offline.learn import Iteration, learn, learn_finite
from mvpi.offline.relabel import relabel

__all__ = [
    "Batch",
    "ConvergenceWarning",
    "CoverageWarning",
    "Dataset",
    "DensityRatio",
    "Iteration",
    "OfflineEvaluation",
    "PolicyDual",
    "WeightedDual",
    "density_ratio",
    "effective_size",
    "evaluate",
    "fitted_q_mean",
    "learn",
    "learn_finite",
    "policy_dual",
    "relabel",
    "weighted_dual",
]
