"""The figures of the paper's tables: changes relative to TD3."""

from __future__ import annotations

Deltas = tuple[float, float, float, float]
"""Changes relative to TD3, in percent: of J, of the mean, of the variance, of the Sharpe ratio."""

PUBLISHED: dict[float, dict[str, dict[str, Deltas]]] = {
    0.5: {
        "InvertedPendulum": {"TRVO": (-571, -2, 1e8, -100), "MVPI-TD3": (0, 0, 0, 0)},
        "InvertedDoublePendulum": {"TRVO": (-269, -31, 266, -64), "MVPI-TD3": (4, 9, -4, 11)},
        "HalfCheetah": {"TRVO": (81, -82, -81, -59), "MVPI-TD3": (97, -40, -96, 188)},
        "Walker2d": {"TRVO": (-17, -49, 15, -52), "MVPI-TD3": (81, -37, -80, 41)},
        "Swimmer": {"TRVO": (-2, 8, 165, -34), "MVPI-TD3": (1, -3, -69, 76)},
        "Hopper": {"TRVO": (-9, -17, 9, -20), "MVPI-TD3": (94, 27, -93, 364)},
        "Reacher": {"TRVO": (-34, -13, 98, 20), "MVPI-TD3": (-12, -5, 35, 10)},
        "Ant": {"TRVO": (94, -80, -94, -19), "MVPI-TD3": (80, -41, -80, 32)},
    },
    1.0: {
        "InvertedPendulum": {"TRVO": (-321, -1, 3e7, -100), "MVPI-TD3": (0, 0, 0, 0)},
        "InvertedDoublePendulum": {"TRVO": (-367, -17, 365, -62), "MVPI-TD3": (42, 1, -41, 32)},
        "HalfCheetah": {"TRVO": (92, -87, -92, -54), "MVPI-TD3": (99, -44, -98, 285)},
        "Walker2d": {"TRVO": (-1, -61, 0, -61), "MVPI-TD3": (88, -55, -88, 30)},
        "Swimmer": {"TRVO": (-10, -7, 18, -14), "MVPI-TD3": (4, -2, -53, 42)},
        "Hopper": {"TRVO": (57, -25, -57, 13), "MVPI-TD3": (72, -3, -71, 81)},
        "Reacher": {"TRVO": (-48, -12, 102, 21), "MVPI-TD3": (-1, -1, 0, -1)},
        "Ant": {"TRVO": (97, -85, -97, -18), "MVPI-TD3": (96, -53, -96, 130)},
    },
    2.0: {
        "InvertedPendulum": {"TRVO": (-4130, -5, 2e8, -100), "MVPI-TD3": (0, 0, 0, 0)},
        "InvertedDoublePendulum": {"TRVO": (-399, -13, 398, -61), "MVPI-TD3": (77, -31, -77, 44)},
        "HalfCheetah": {"TRVO": (98, -84, -98, 0), "MVPI-TD3": (96, -66, -95, 60)},
        "Walker2d": {"TRVO": (47, -71, -48, -60), "MVPI-TD3": (91, -65, -91, 16)},
        "Swimmer": {"TRVO": (-210, -23, 619, -71), "MVPI-TD3": (-6, -7, -13, -1)},
        "Hopper": {"TRVO": (64, -31, -64, 15), "MVPI-TD3": (90, -18, -89, 152)},
        "Reacher": {"TRVO": (-43, -2, 74, 23), "MVPI-TD3": (0, 1, 1, 1)},
        "Ant": {"TRVO": (97, -94, -97, -65), "MVPI-TD3": (97, -63, -97, 101)},
    },
}
"""The paper's three tables: by risk aversion, task and method. 10 seeds, 10^6 steps."""


def published(task: str, method: str, risk_aversion: float) -> Deltas | None:
    """What the paper reports, whatever the version of the task; None if it does not."""
    tasks = PUBLISHED.get(risk_aversion, {})
    return tasks.get(task.partition("-v")[0], {}).get(method)
