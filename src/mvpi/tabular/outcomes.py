"""An MDP as a list of outcomes.

An outcome is one possible result of an action: in `state`, after `action`, with `probability`, the
`reward` is paid and the next state is `next_state`. All outcomes of a pair of state and action
together are its joint distribution of reward and next state: outcomes that lead to the same next
state keep their own rewards. A pair without outcomes is an action that the state does not have.

The rewards must be those that are paid, not their means: `E[R^2]` and everything else about risk
is computed from them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from mvpi._checks import check_flag, shown
from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.tabular.labels import Labels, listed, plain, unique
from mvpi.tabular.masks import Mask
from mvpi.tabular.outcome_columns import outcome_columns
from mvpi.tabular.tables import LARGEST_REWARD, SUM_TOLERANCE

_MOST_PAIRS = 10**8
"""Of states and actions; each takes some memory, whether it is allowed or not."""

Numbers = npt.NDArray[np.int64]


class Model(NamedTuple):
    """The arguments of `MDP.from_rows`, but for the discount."""

    transitions: csr_array
    rewards: Array
    start: Array | None
    allowed: Mask
    labels: Labels


class Outcomes(NamedTuple):
    """Outcomes by the numbers of their states and actions."""

    state: Numbers
    action: Numbers
    probability: Array
    reward: Array
    next_state: Numbers


def read_outcomes(columns: Sequence[Any], start: Any, *, normalise: bool, absorbing: bool) -> Model:
    """The model in five columns, or in the first of them, a table or rows."""
    normalise, absorbing = check_flag(normalise, "normalise"), check_flag(absorbing, "absorbing")
    state, action, probability, reward, next_state = outcome_columns(columns)
    states, actions = unique(state, "state"), unique(action, "action")
    missing = [label for label in unique(next_state, "next_state") if label not in states]
    if missing:
        states |= _entered(next_state, probability, set(missing), absorbing)
    labels = Labels(_ordered(states), _ordered(actions))
    known = labels.state_numbers
    outcomes = Outcomes(
        _numbers(state, known),
        _numbers(action, labels.action_numbers),
        probability,
        reward,
        _numbers(next_state, {**dict.fromkeys(missing, -1), **known}),
    )
    distribution = None
    if start is not None:
        shares = start_by_label(start, known)
        distribution = np.zeros(len(known))
        distribution[[known[label] for label in shares]] = list(shares.values())
    return assemble(outcomes, labels, distribution, normalise=normalise)


def _entered(
    next_state: list[Any], probability: Array, missing: set[Hashable], absorbing: bool
) -> dict[Hashable, None]:
    """The next states that are possible and have no outcomes."""
    found: dict[Hashable, None] = {}
    for i in np.flatnonzero(probability).tolist():
        if next_state[i] not in missing:
            continue
        if not absorbing:
            raise InputError(
                f"next_state[{i}] must appear as a state, {shown(next_state[i])} has no outcomes: "
                "add them, or absorbing=True makes such states ones to stay in with reward 0"
            )
        found[next_state[i]] = None
    return found


def _ordered(labels: Iterable[Any]) -> tuple[Hashable, ...]:
    """Sorted if they can be compared with each other, else as they came."""
    values = [plain(label) for label in labels]
    try:
        return tuple(sorted(values))
    except TypeError:
        return tuple(values)


def _numbers(column: list[Any], numbers: Mapping[Hashable, int]) -> Numbers:
    return np.fromiter(map(numbers.__getitem__, column), np.int64, len(column))


def assemble(
    outcomes: Outcomes, labels: Labels, start: Array | None, *, normalise: bool | None
) -> Model:
    """Outcomes sorted into rows; equal ones become one, states without any become absorbing.

    `normalise` is None where the user has no such choice.
    """
    _check_numbers(outcomes, labels)
    n, a = labels.shape
    if n * a > _MOST_PAIRS:
        raise InputError(
            f"states times actions must be <= {_MOST_PAIRS:,}, got {n:,} times {a:,}: give "
            "actions of different states the same labels, such as 0, 1, 2"
        )
    pairs = outcomes.state * a + outcomes.action
    sums = np.bincount(pairs, outcomes.probability, n * a).astype(np.float64)
    counts = np.bincount(pairs, minlength=n * a)
    probability = outcomes.probability
    _check_sums(
        sums, counts, labels, normalise=bool(normalise), can_normalise=normalise is not None
    )
    if normalise:
        probability = probability / sums[pairs]
    allowed = (counts > 0).reshape(n, a)
    alone = np.flatnonzero(~allowed.any(axis=1))
    allowed[alone] = True
    possible = probability > 0
    stays = (alone[:, None] * a + np.arange(a)).ravel()
    rows = np.concatenate([pairs[possible], stays])
    after = np.concatenate([outcomes.next_state[possible], stays // a])
    rewards = np.concatenate([outcomes.reward[possible], np.zeros(len(stays))])
    chances = np.concatenate([probability[possible], np.ones(len(stays))])
    return Model(*table_of(rows, after, rewards, chances, (n, a)), start, allowed, labels)


def table_of(
    rows: Numbers, after: Numbers, rewards: Array, chances: Array, shape: tuple[int, int]
) -> tuple[csr_array, Array]:
    """The stored table of outcomes, and its rewards; `rows` are pairs `s * A + a`.

    Those with the same next state and reward become one, with the sum of their chances.
    """
    n, a = shape
    places = rows * n + after
    order = np.lexsort((rewards, places))
    places, rewards = places[order], rewards[order]
    new = np.ones(len(places), dtype=bool)
    new[1:] = (places[1:] != places[:-1]) | (rewards[1:] != rewards[:-1])
    first = np.flatnonzero(new)
    chances = np.add.reduceat(chances[order], first)
    rows, after = np.divmod(places[first], n)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n * a))])
    return csr_array((chances, after, indptr), shape=(n * a, n)), rewards[first]


def _check_numbers(outcomes: Outcomes, labels: Labels) -> None:
    """Probabilities and rewards of single outcomes."""

    def place(at: int) -> str:
        s, a, t = outcomes.state[at], outcomes.action[at], outcomes.next_state[at]
        after = f", next state {labels.state(t)}" if t >= 0 else ""
        return f"outcome {at} (state {labels.state(s)}, action {labels.action(a)}{after})"

    wrong = ~(np.isfinite(outcomes.probability) & (outcomes.probability >= 0))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(
            f"probability must be finite and >= 0, {place(at)} has {outcomes.probability[at]}"
        )
    never = np.isneginf(outcomes.reward)
    wrong = ~(np.abs(outcomes.reward) <= LARGEST_REWARD) & ~never
    if never.any():
        pairs = outcomes.state * len(labels.actions) + outcomes.action
        wrong |= never & np.isin(pairs, pairs[~never & (outcomes.probability > 0)])
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(
            f"reward must be finite and at most {LARGEST_REWARD:g} in size, {place(at)} has "
            f"{outcomes.reward[at]}; leave out the outcomes of an action that a state does not have"
        )


def _check_sums(
    sums: Array, counts: Numbers, labels: Labels, *, normalise: bool, can_normalise: bool
) -> None:
    if normalise:
        wrong = (counts > 0) & ~((sums > 0) & np.isfinite(sums))
        worst, rule, remedy = int(np.argmax(wrong)), "have a finite sum > 0", "leave the pair out"
    else:
        off = np.where(counts > 0, np.abs(sums - 1.0), 0.0)
        worst, rule, remedy = int(np.argmax(off)), "sum to 1", "add what is missing"
        wrong = off > SUM_TOLERANCE
        if can_normalise:
            remedy += ", or normalise=True divides by the sum"
    if wrong.any():
        raise InputError(
            f"the probabilities of {labels.pair(worst)} must {rule}, got {sums[worst]:.10g} over "
            f"{counts[worst]} outcomes: {remedy}"
        )


def start_by_label(start: Any, numbers: Mapping[Hashable, int] | None = None) -> dict[Any, float]:
    """A start distribution by label: from one state, a list of states, or state -> probability.

    With `numbers` every label must be one of these.
    """
    if isinstance(start, Mapping):
        shares = dict(start)
    elif isinstance(start, list | set | np.ndarray):
        states = unique(listed(start, "start"), "start")
        shares = {label: 1.0 / len(states) for label in states}
    else:
        shares = dict.fromkeys(unique([start], "start"), 1.0)
    for label, share in shares.items():
        if numbers is not None and label not in numbers:
            known = ", ".join(shown(one) for one in list(numbers)[:5])
            raise InputError(
                f"start must be a state, a list of states or a dict of their probabilities; "
                f"{shown(label)} is no state, states are {known}{', ...' * (len(numbers) > 5)}"
            )
        if not isinstance(share, int | float | np.number) or not 0.0 <= share <= 1.0:
            raise InputError(
                f"start must be probabilities from 0 to 1, state {shown(label)} has {shown(share)}"
            )
    total = float(sum(shares.values()))
    if abs(total - 1.0) > 1e-6:
        raise InputError(f"start must sum to 1, got a sum of {total:.10g}")
    return shares
