"""Learning from data in a directory: the files of a run, and exact resume.

    config.json            what is learned: data, discount, risk, seed, settings
    metrics.csv            a row per estimate of `y`
    policy.safetensors     the policy, at every such row
    checkpoint.safetensors everything needed to go on, replaced atomically at every row

The same settings and data on the same directory resume from the last checkpoint and end with the
same bytes as a run that was never interrupted.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import mvpi
from mvpi.agents.files import FORMAT, Arrays
from mvpi.agents.networks import arrays_of, with_arrays
from mvpi.agents.run import RunDirectory
from mvpi.errors import InputError
from mvpi.offline.td3_bc import TD3BC, OnRow, Row
from mvpi.risk import VarianceBudget, risk_text
from mvpi.stats import check_count


def learn_in(out: str | Path, learner: TD3BC, updates: int, on_row: OnRow | None = None) -> TD3BC:
    """Go on until `updates` updates have been made in all, from where the directory's run is."""
    directory = RunDirectory(Path(out), _config(learner))
    try:
        checkpoint = directory.checkpoint()
        if checkpoint is not None:
            _restore(learner, *checkpoint)
        if learner.updates > updates:
            raise InputError(
                f"{out} already holds {learner.updates} updates, more than the {updates} asked "
                "for; use another directory"
            )
        directory.keep_rows(learner.updates, updates, learner.settings.ratio_every)

        def keep(row: Row) -> None:
            directory.add_row(row)
            directory.write_state(*_state(learner))
            learner.save(directory.policy)
            if on_row is not None:
                on_row(row)

        learner.learn(updates, keep)
        learner.save(directory.policy)
    finally:
        directory.close()
    return learner


def _config(learner: TD3BC) -> dict[str, Any]:
    """What determines the result."""
    settings, box = asdict(learner.settings), learner.box
    return {
        "format": FORMAT,
        "mvpi": mvpi.__version__,
        "algorithm": "td3-bc",
        "data": {"rows": len(learner.data), "fingerprint": learner.data.fingerprint()},
        "discount": learner.ratio.discount,
        "risk": risk_text(learner.risk),
        "seed": learner.seed,
        "low": box.low.tolist(),
        "high": box.high.tolist(),
        "settings": settings | {"hidden": list(learner.settings.hidden)},
    }


def _state(learner: TD3BC) -> tuple[Arrays, dict[str, Any]]:
    record = {
        "updates": learner.updates,
        "y": learner.y,
        "risk_aversion": getattr(learner.risk, "risk_aversion", None),
        "random": learner.rng.bit_generator.state,
        "ratio_random": learner.ratio.rng.bit_generator.state,
    }
    return arrays_of((learner.net, learner.ratio.state)), record


def _restore(learner: TD3BC, arrays: Arrays, record: dict[str, Any], path: Path) -> None:
    try:
        both = (learner.net, learner.ratio.state)
        learner.net, learner.ratio.state = with_arrays(both, arrays, path)
        learner.updates = check_count(record["updates"], "updates")
        learner.y = float(record["y"])
        if isinstance(learner.risk, VarianceBudget):
            learner.risk = replace(learner.risk, risk_aversion=record["risk_aversion"])
        learner.rng.bit_generator.state = record["random"]
        learner.ratio.rng.bit_generator.state = record["ratio_random"]
    except InputError:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path} is damaged: {type(error).__name__} {reason}") from None
