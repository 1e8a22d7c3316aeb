"""`mvpi frontier DIR`: episodes of an agent along the range it was trained with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import track
from rich.table import Table

from mvpi import stats
from mvpi._bootstrap import interval
from mvpi._checks import check_count
from mvpi._types import Array
from mvpi.cli.display import number, print_json
from mvpi.cli.evaluate import environment
from mvpi.errors import InputError
from mvpi.report.agent_statistics import Estimate
from mvpi.report.risk_choice import KNEE, RETURN, STEP, Candidates, Moments
from mvpi.risk import Risk
from mvpi.risk.extended import RiskRange, range_of, simplified

if TYPE_CHECKING:
    from mvpi.agents.agent import Agent
    from mvpi.rollout.evaluation import Evaluation

_RESAMPLES = 1_000
Exact = Mapping[str, tuple[Array, Array]]


def show(
    directory: Path,
    console: Console,
    *,
    out: Path | None,
    json: bool,
    points: int = 11,
    episodes: int = 100,
    seed: int = 0,
    env: str | None = None,
    action_noise: float | None = None,
) -> None:
    """Evaluate the agent in a run directory along its range, and print and draw its frontier."""
    from mvpi.agents.loading import load
    from mvpi.rollout.evaluation import evaluate

    check_count(points, "points", at_least=2)
    check_count(episodes, "episodes", at_least=2)
    agent = load(directory)
    known = _range(agent, directory)
    where = environment(agent, env, action_noise)
    lams = known.grid(points).tolist()
    progress = Console(stderr=True)
    seen = [
        evaluate(agent.at(lam), where, episodes, seed)
        for lam in track(lams, "evaluating", console=progress, transient=True, disable=json)
    ]
    exact, gamma = _exact(where.id, agent.settings.gamma)
    names = tuple(f"risk aversion {lam:.3g}" for lam in lams)
    values = tuple(
        _value(agent.at(lam).risk, one, gamma) for lam, one in zip(lams, seen, strict=True)
    )
    by_step, by_return = ((), values) if agent.risk.of_return else (values, ())
    panels = (
        Candidates(names, tuple(of_steps(one, gamma) for one in seen), STEP, by_step),
        Candidates(names, tuple(of_returns(one) for one in seen), RETURN, by_return),
    )
    chosen = next(panel for panel in panels if panel.values)
    if out is not None:
        from mvpi.report.frontier_picture import draw

        draw(out, panels, exact, f"{where.id}: {agent.risk.label}, {episodes} episodes at each")
    if json:
        facts = _facts(agent, lams, seen, panels)
        print_json(facts | choice_facts(chosen) | _exact_facts(exact, gamma))
        return
    title = f"{directory}, trained {agent.steps} steps, {episodes} episodes at each risk aversion"
    console.print(title, markup=False, soft_wrap=True)
    for one in tables(panels, [f"{lam:.3g}" for lam in lams], "risk aversion"):
        console.print(one)
    if gamma is not None:
        text = f"Rewards of a step are weighed by the discounted occupancy, discount {gamma:g}."
        console.print(text, soft_wrap=True)
    console.print(verdicts(panels, chosen), soft_wrap=True)
    if out is not None:
        console.print(f"picture: {out}", markup=False, soft_wrap=True)


def _range(agent: Agent[Any], directory: Path) -> RiskRange:
    risk = simplified(agent.risk)
    known = range_of(risk)
    if known is None:
        raise InputError(
            f"{directory} was trained at {risk.label} alone; a frontier needs an agent of a "
            "range (mvpi train td3 --risk range:LOW:HIGH), or agents of several risks (mvpi tune)"
        )
    return known


def _exact(env: str, gamma: float) -> tuple[Exact, float | None]:
    """The exact frontier of an environment with a transition table, and its discount."""
    from mvpi.cli.solve import progress_display
    from mvpi.tabular import MDP, frontier

    try:
        mdp = MDP.from_gymnasium(env, gamma)
    except InputError:
        return {}, None
    with progress_display("exact frontier") as progress:
        means, variances = frontier(mdp, progress=progress).curve()
    kept = np.flatnonzero(variances <= np.minimum.accumulate(variances[::-1])[::-1])
    return {STEP: (np.sqrt(variances[kept]), means[kept])}, gamma


def tables(panels: Sequence[Candidates], labels: Sequence[str], head: str) -> list[Table]:
    """One for each panel, a line for each risk, marked as knee or dominated."""
    found = []
    for panel in panels:
        title = f"Of the {panel.of}"
        one = Table(title=title, box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
        one.add_column(head)
        for i, label in enumerate(labels):
            cells = _cells(panel, i)
            if i == 0:
                for column, _ in cells:
                    one.add_column(column, justify="right")
            one.add_row(f"{label}{_place(panel, i)}", *(text for _, text in cells))
        found.append(one)
    return found


def verdicts(panels: Sequence[Candidates], chosen: Candidates) -> str:
    """The recommendations, that of the optimised quantity first; and the definition of a knee."""
    order = [chosen, *(panel for panel in panels if panel is not chosen)]
    lines = [panel.recommendation() for panel in order]
    return "\n".join([*([KNEE] if any(p.knee is not None for p in panels) else []), *lines])


def _cells(panel: Candidates, i: int) -> list[tuple[str, str]]:
    """Names and texts of the columns; a single run has no intervals of steps."""
    cells = []
    moments = panel.moments[i]
    for name, one, digits in (("mean", moments.mean, 4), ("std. dev.", moments.deviation, 3)):
        cells.append((name, number(one.value)))
        if not math.isnan(one.low):
            cells.append(("95% interval", f"{one.low:.{digits}g} to {one.high:.{digits}g}"))
    if panel.values:
        cells.append(("objective", number(panel.values[i])))
    return cells


def _place(panel: Candidates, i: int) -> str:
    if i == panel.knee:
        return " knee"
    return "" if i in panel.efficient else " dominated"


def _value(risk: Risk, seen: Evaluation, gamma: float | None) -> float:
    """The objective: of the returns, or of the rewards as their moments are taken."""
    if risk.of_return:
        return risk.value(seen.returns)
    return risk.value(seen.rewards) if gamma is None else risk.value(*seen.occupancy(gamma))


def point_facts(panels: Sequence[Candidates], index: int) -> dict[str, Any]:
    """One risk in JSON: moments and intervals of every panel, and the objective."""
    facts: dict[str, Any] = {}
    for panel in panels:
        prefix = "reward_" if panel.of == STEP else ""
        one = panel.moments[index]
        facts |= {
            f"{prefix}mean": one.mean.value,
            f"{prefix}mean_interval": [one.mean.low, one.mean.high],
            f"{prefix}deviation": one.deviation.value,
            f"{prefix}deviation_interval": [one.deviation.low, one.deviation.high],
            **({"value": panel.values[index]} if panel.values else {}),
        }
    return facts


def choice_facts(chosen: Candidates) -> dict[str, Any]:
    """The efficient points and the knee, by index, and the recommendation."""
    return {
        "frontier_of": chosen.of,
        "efficient": chosen.efficient,
        "knee": chosen.knee,
        "recommendation": chosen.recommendation(),
    }


def _facts(
    agent: Agent[Any],
    lams: Sequence[float],
    seen: Sequence[Evaluation],
    panels: Sequence[Candidates],
) -> dict[str, Any]:
    points = [
        {"risk_aversion": lam, **point_facts(panels, i), "returns": one.returns.tolist()}
        for i, (lam, one) in enumerate(zip(lams, seen, strict=True))
    ]
    return {"risk": agent.risk.text, "steps": agent.steps, "points": points}


def _exact_facts(exact: Exact, gamma: float | None) -> dict[str, Any]:
    if gamma is None:
        return {"exact": None}
    deviations, means = exact[STEP]
    curve = {"deviations": deviations.tolist(), "means": means.tolist()}
    return {"exact": {"discount": gamma, **curve}}


def of_returns(seen: Evaluation) -> Moments:
    """Mean and deviation of the return."""
    mean = Estimate(seen.mean, *seen.interval(stats.mean))
    return Moments(mean, Estimate(seen.deviation, *seen.interval(_deviation)))


def of_steps(seen: Evaluation, gamma: float | None = None) -> Moments:
    """Mean and deviation of the reward of a step; the bootstrap draws whole episodes.

    With `gamma` of a step of the discounted occupancy, as for finite MDPs.
    """
    count = len(seen.lengths)
    drawn = np.random.default_rng(0).integers(count, size=(_RESAMPLES, count))
    if gamma is None:
        value, again = _counted_alike(seen, drawn)
    else:
        value = _discounted(seen, gamma)
        again = np.array([_discounted(_redrawn(seen, some), gamma) for some in drawn]).T
    return Moments(*(Estimate(v, *interval(a)) for v, a in zip(value, again, strict=True)))


def _counted_alike(seen: Evaluation, drawn: npt.NDArray[np.int64]) -> tuple[Array, Array]:
    """Moments of all steps, and of those of the drawn episodes."""
    centre = seen.reward_mean
    starts = np.cumsum(seen.lengths) - seen.lengths
    sums = np.add.reduceat(seen.rewards - centre, starts)
    squares = np.add.reduceat(np.square(seen.rewards - centre), starts)
    steps, total, square = (each[drawn].sum(axis=1) for each in (seen.lengths, sums, squares))
    mean = total / steps
    deviation = np.sqrt(np.maximum(square / steps - mean**2, 0.0))
    value = np.array([centre, math.sqrt(seen.reward_variance)])
    return value, np.stack([centre + mean, deviation])


def _redrawn(seen: Evaluation, drawn: npt.NDArray[np.int64]) -> Evaluation:
    assert seen.terminated is not None  # an evaluation of this package knows
    parts = np.split(seen.rewards, np.cumsum(seen.lengths)[:-1])
    return replace(
        seen,
        returns=seen.returns[drawn],
        rewards=np.concatenate([parts[i] for i in drawn]),
        lengths=seen.lengths[drawn],
        terminated=seen.terminated[drawn],
    )


def _discounted(seen: Evaluation, gamma: float) -> Array:
    rewards, weights = seen.occupancy(gamma)
    return np.array([stats.mean(rewards, weights), math.sqrt(stats.variance(rewards, weights))])


def _deviation(values: Array) -> float:
    return float(values.std())
