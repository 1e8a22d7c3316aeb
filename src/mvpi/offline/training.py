"""Learning from data in a directory: the files of a run, and exact resume.

    config.json            what is learned: data, discount, risk, seed, settings
    metrics.csv            a row per estimate of `y`
    policy.safetensors     the policy, at every such row
    checkpoint.safetensors everything needed to go on, replaced atomically every `ratio_every`
                           updates, and when Ctrl-C or SIGTERM ask for a stop

The same settings and data on the same directory resume from the last checkpoint and end with the
same bytes as a run that was never interrupted. So does a longer run: what a shorter one made after
its last checkpoint is made anew.

Finite data need no checkpoint: there are config.json, metrics.csv with a row for the uniform policy
and one for the result with its upper bound, and at the end policy.npz.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from mvpi._checks import check_count, check_number
from mvpi._storage.arrays import FORMAT, Arrays, refusing_damage
from mvpi._storage.interrupts import Interrupted, Stop, tell_made_again
from mvpi._storage.names import CONFIG
from mvpi._storage.npz import write_npz
from mvpi._storage.run_directory import RunDirectory
from mvpi._types import Array
from mvpi._version import __version__
from mvpi.agents.networks import arrays_of, with_arrays
from mvpi.errors import InputError
from mvpi.offline._extended_dual import ExtendedDuals
from mvpi.offline.dataset import Dataset
from mvpi.offline.learn import Iteration, check_y, learn_finite
from mvpi.offline.td3_bc import TD3BC, OnRow, Row
from mvpi.risk import Risk, risk_text
from mvpi.risk.extended import simplified


def learn_in(out: str | Path, learner: TD3BC, updates: int, on_row: OnRow | None = None) -> TD3BC:
    """Go on until `updates` updates have been made in all, from where the directory's run is."""
    learner.settings.check_updates(updates)
    directory = RunDirectory(Path(out), _network_config(learner))
    every = learner.settings.ratio_every
    try:
        checkpoint = directory.checkpoint()
        if checkpoint is not None:
            _restore(learner, *checkpoint)
        done = max(learner.updates, directory.last_count())
        if done > updates:
            raise InputError(
                f"{out} already holds {done} updates, more than the {updates} asked for; use "
                "another directory"
            )
        tell_made_again(directory, done, learner.updates, updates, "update")
        directory.keep_rows(learner.updates, updates, every)
        stop = Stop(directory)

        def keep(row: Row) -> None:
            directory.add_row(row)
            if learner.updates % every == 0:  # a longer run would not stop anywhere else
                directory.write_state(*_state(learner))
            learner.save(directory.policy)
            if on_row is not None:
                on_row(row)

        with stop.listening():
            learner.learn(updates, keep, lambda: stop.wanted)
        if learner.updates < updates:
            directory.write_state(*_state(learner))
            raise Interrupted(stop.message(learner.updates, "update"))
        learner.save(directory.policy)
    finally:
        directory.close()
    return learner


def learn_finite_in(
    out: str | Path, data: Dataset, risk: Risk, discount: float, y: float | None = None
) -> Array | None:
    """The policy learned from finite data; None if the directory holds it already."""
    risk = simplified(risk)
    check_y(risk, y)  # nothing is written if that cannot be
    if risk.columns:
        raise InputError(
            f"a directory of finite data is for one risk aversion of the per-step reward, got "
            f"{risk}; in Python, mvpi.offline.learn takes it"
        )
    check_number(discount, "discount", at_least=0.0, at_most=1.0)
    policy = Path(out) / "policy.npz"
    if policy.exists() and not (Path(out) / CONFIG).exists():
        raise InputError(f"{policy} does not say how it was learned; use another directory")
    sizes = {"states": data.n_states, "actions": data.n_actions}
    config = _config("finite", data, risk, discount, y) | sizes
    directory = RunDirectory(Path(out), config, policy.name)
    try:
        if policy.exists() and directory.is_finished(None, can_go_back=True):
            return None
        directory.keep_rows(-1, -1, 1)  # none of a run that was killed
        found: list[Iteration] = []
        learned: Array = learn_finite(data, risk, discount, y=y, on_iteration=found.append)
        for i, iteration in enumerate(found):
            if i > 0 or risk.variance_limit is None:  # the uniform policy may exceed a budget
                directory.add_row(_row(i, iteration))
        write_npz(policy, {"policy": learned})
        directory.finish(None)
        return learned
    finally:
        directory.close()


def _row(iterations: int, found: Iteration) -> Row:
    facts: Row = {name: getattr(found, name) for name in ("y", "value", "effective_size")}
    bound = found.upper_bound if math.isfinite(found.upper_bound) else None
    return {"iterations": iterations, **facts, "upper_bound": bound}


def _config(
    algorithm: str, data: Dataset, risk: Risk, discount: float, y: float | None
) -> dict[str, Any]:
    """What determines the result, but for the settings of the algorithm."""
    given = {} if y is None else {"y": float(y)}  # a run without it is one of before there was any
    return {
        "format": FORMAT,
        "mvpi": __version__,
        "algorithm": algorithm,
        "data": {"rows": len(data), "fingerprint": data.fingerprint()},
        "discount": discount,
        "risk": risk_text(risk),
        **given,
    }


def _network_config(learner: TD3BC) -> dict[str, Any]:
    settings, box = learner.settings.record(), learner.box
    facts = (learner.data, learner.risk, learner.ratio.discount, learner.given_y)
    return _config("td3-bc", *facts) | {
        "seed": learner.seed,
        "low": box.low.tolist(),
        "high": box.high.tolist(),
        "settings": settings | {"hidden": list(learner.settings.hidden)},
    }


def _state(learner: TD3BC) -> tuple[Arrays, dict[str, Any]]:
    record = {
        "updates": learner.updates,
        "y": learner.y,
        "losses": learner.losses.tolist(),
        "risk_aversion": learner.risk.price,
        "random": learner.rng.bit_generator.state,
    }
    ratio = learner.ratio
    if isinstance(ratio, ExtendedDuals):
        frontier = None if ratio.frontier is None else ratio.frontier.record()
        record |= {"duals": ratio.values.tolist(), "frontier": frontier}
        record["ratio_random"] = ratio.random
    else:
        record["ratio_random"] = ratio.rng.bit_generator.state
    return arrays_of((learner.net, ratio.state)), record


def _restore(learner: TD3BC, arrays: Arrays, record: dict[str, Any], path: Path) -> None:
    with refusing_damage(path):
        both = (learner.net, learner.ratio.state)
        learner.net, learner.ratio.state = with_arrays(both, arrays, path)
        learner.updates = check_count(record["updates"], "updates")
        learner.y = float(record["y"])
        learner.losses = np.array(record.get("losses", 0.0), np.float64) + np.zeros(2)
        learner.risk = learner.risk.with_price(record["risk_aversion"])
        learner.rng.bit_generator.state = record["random"]
        if isinstance(learner.ratio, ExtendedDuals):
            learner.ratio.restore(record["duals"], record["frontier"], record["ratio_random"])
        else:
            learner.ratio.rng.bit_generator.state = record["ratio_random"]
