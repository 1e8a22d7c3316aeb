"""The finite MDP that a command is given: a file, or the id of an environment."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from mvpi.cli.display import json_label
from mvpi.errors import InputError

if TYPE_CHECKING:
    from mvpi.tabular import MDP

_DISCOUNT = 0.99
"""Of a model that has none of its own."""


@dataclass(frozen=True)
class CsvOptions:
    """How a .csv file of outcomes is read; other models know all this themselves."""

    start: Annotated[tuple[str, ...], tyro.conf.arg(help_behavior_hint="")] = ()
    """Of a .csv file: the state to start in, or several equally likely ones; left out, all."""
    normalise: bool = False
    """Of a .csv file: make probabilities of every state and action sum to 1; they may be counts."""
    absorbing: bool = False
    """Of a .csv file: stay for ever, with reward 0, in next states without outcomes."""

    def refuse(self, what: str) -> None:
        """An `InputError` if one of them is given for anything but a .csv file."""
        for name, value in asdict(self).items():
            if value:
                raise InputError(f"--{name} is for .csv files of outcomes, not for {what}")


OfCsv = Annotated[CsvOptions, tyro.conf.arg(name="")]


def read_model(model: str, discount: float | None, csv: CsvOptions) -> MDP:
    """The MDP in a file, or that of an environment id; `discount` replaces its own."""
    from mvpi.tabular import MDP
    from mvpi.tabular.outcome_columns import WORKBOOKS

    if model.lower().endswith((".csv", *WORKBOOKS)):
        return MDP.from_outcomes(
            model,
            discount=_DISCOUNT if discount is None else discount,
            start=list(csv.start) or None,
            normalise=csv.normalise,
            absorbing=csv.absorbing,
        )
    csv.refuse(model)
    if model.endswith(".npz") or Path(model).exists():
        mdp = MDP.load(model)
        return mdp if discount is None else mdp.with_discount(discount)
    return MDP.from_gymnasium(model, _DISCOUNT if discount is None else discount)


def model_facts(mdp: MDP) -> dict[str, Any]:
    """The size of an MDP, its discount and its labels, for JSON."""
    facts: dict[str, Any] = {
        "states": mdp.n_states,
        "actions": mdp.n_actions,
        "discount": mdp.discount,
    }
    if mdp.labels.given:
        for kind, labels in (("state", mdp.state_labels), ("action", mdp.action_labels)):
            facts[f"{kind}_labels"] = [json_label(label) for label in labels]
    return facts
