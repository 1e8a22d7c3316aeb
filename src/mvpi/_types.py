"""Types that several modules name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import gymnasium as gym

Array = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float32]
"""Inputs and outputs of networks."""
Env: TypeAlias = "gym.Env[Any, Any]"
Step = tuple[Any, float, bool, bool, dict[str, Any]]
"""Observation, reward, terminated, truncated, info."""
