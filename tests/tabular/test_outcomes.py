"""MDPs written down outcome by outcome, and those of a function.

Answers are compared with enumeration of policies, evaluated from the outcomes by dense linear
algebra that shares nothing with the package.
"""

from __future__ import annotations

import math
from collections import namedtuple
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from helpers.problems import cvar, entropic, mean_and_variance, state_occupancy
from hypothesis import given
from hypothesis import strategies as st

import mvpi
from mvpi import cli
from mvpi.errors import InputError
from mvpi.tabular import NotUnichain
from mvpi.tabular.mdp import MDP

COLUMNS = ("state", "action", "probability", "reward", "next_state")
Row = tuple
SHOP = [
    ("shop", "order", 0.5, 10.0, "shop"),
    ("shop", "order", 0.5, -2.0, "shop"),
    ("shop", "close", 1.0, 0.0, "home"),
    ("home", "rest", 0.75, 0.0, "home"),
    ("home", "rest", 0.25, 1.0, "shop"),
]


def random_rows(seed: int) -> list[Row]:
    """Outcomes of 4 states with 1 to 3 actions each, with repeated next states, in any order.

    Every action may lead to the first state, so that there is one closed class.
    """
    rng = np.random.default_rng(seed)
    states, rows = ["a", ("b", 1), 7, 2.5], []
    for state in states:
        for action in rng.choice(["left", "right", "stay"], int(rng.integers(1, 4)), replace=False):
            after = ["a", *(states[k] for k in rng.integers(4, size=rng.integers(0, 5)))]
            chances = rng.dirichlet(np.ones(len(after)))
            rows += [
                (state, str(action), p, float(rng.normal()), t)
                for p, t in zip(chances, after, strict=True)
            ]
            rows.append((state, str(action), 0.0, 1e9, "nowhere"))
    return [rows[i] for i in rng.permutation(len(rows))]


def enumerated(
    rows: list[Row], discount: float, start: dict
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The law of the reward of a step, for all deterministic policies."""
    states = list(dict.fromkeys(row[0] for row in rows))
    choices = [sorted({row[1] for row in rows if row[0] == s}) for s in states]
    at = np.array([start.get(s, 0.0) for s in states])
    found = []
    for policy in product(*choices):
        chosen = dict(zip(states, policy, strict=True))
        mine = [row for row in rows if chosen[row[0]] == row[1] and row[2] > 0]
        p = np.zeros((len(states), len(states)))
        for s, _, chance, _, t in mine:
            p[states.index(s), states.index(t)] += chance
        d = state_occupancy(p[None], discount, at)[0]
        values = np.array([row[3] for row in mine])
        found.append((values, np.array([d[states.index(row[0])] * row[2] for row in mine])))
    return found


@pytest.mark.parametrize("discount", [0.9, 1.0])
@pytest.mark.parametrize("seed", range(15))
def test_optima_and_frontier_by_enumeration(seed: int, discount: float) -> None:
    rows = random_rows(seed)
    start = {"a": 0.5, 7: 0.25, 2.5: 0.25}
    mdp = MDP.from_outcomes(rows, discount=discount, start=start)
    laws = enumerated(rows, discount, start)
    moments = np.array([mean_and_variance(*law) for law in laws])
    for price in (0.0, 0.4, 2.0):
        best = float((moments[:, 0] - price * moments[:, 1]).max())
        assert mvpi.optimize(mdp, price).value == pytest.approx(best, abs=1e-7)
        assert mvpi.frontier(mdp).best(price).value == pytest.approx(best, abs=1e-7)
    best = max(float(cvar(v[None], w[None], 0.3)[0]) for v, w in laws)
    assert mvpi.optimize(mdp, mvpi.CVaR(0.3)).value == pytest.approx(best, abs=1e-7)
    best = max(float(entropic(v[None], w[None], 1.0)[0]) for v, w in laws)
    solution = mvpi.optimize(mdp, mvpi.Entropic(1.0))
    assert solution.value == pytest.approx(best, abs=1e-7)
    owned = {(row[0], row[1]) for row in rows}
    assert set(solution.policy_by_label.items()) <= owned
    mixed = mvpi.optimize(mdp, mvpi.VarianceBudget(float(np.median(moments[:, 1]))))
    for state, choice in mixed.policy_by_label.items():
        for action in choice if isinstance(choice, dict) else [choice]:
            assert (state, action) in owned


@pytest.mark.parametrize("seed", range(10))
def test_expectations_are_over_outcomes(seed: int) -> None:
    """`E[f(r) | s, a]` of repeated next states is no function of a mean reward."""
    rows = random_rows(seed)
    mdp = MDP.from_outcomes(rows)
    for f in (np.square, np.exp, np.abs, lambda r: np.minimum(r, 0.1)):
        found = mdp.expected(f)
        for s, state in enumerate(mdp.state_labels):
            for a, action in enumerate(mdp.action_labels):
                mine = [(p, r) for t, b, p, r, _ in rows if (t, b) == (state, action) and p > 0]
                assert mdp.allowed[s, a] == bool(mine)
                if mine:
                    assert found[s, a] == pytest.approx(sum(p * f(r) for p, r in mine), rel=1e-12)


class Frame:
    """As much of a DataFrame as is needed."""

    def __init__(self, rows: list[Row]):
        self._data = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
        self.columns = ["index", *reversed(COLUMNS)]

    def __getitem__(self, name: str):
        return Series(self._data[name])


class Series:
    def __init__(self, values):
        self._values = list(values)

    def __iter__(self):
        return iter(self._values)

    def tolist(self):
        return list(self._values)

    def __array__(self, dtype=None, copy=None):
        return np.array(self._values, dtype)


def structured(rows: list[Row]) -> np.ndarray:
    kinds = ("U8", "U8", "f8", "f8", "U8")
    return np.array(rows, dtype=list(zip(COLUMNS, kinds, strict=True)))


FORMS = {
    "rows": MDP.from_outcomes,
    "rows as lists": lambda rows: MDP.from_outcomes([list(row) for row in rows]),
    "named tuples": lambda rows: MDP.from_outcomes([namedtuple("O", COLUMNS)(*r) for r in rows]),
    "a generator": lambda rows: MDP.from_outcomes(row for row in rows),
    "columns": lambda rows: MDP.from_outcomes(*zip(*rows, strict=True)),
    "arrays": lambda rows: MDP.from_outcomes(*map(np.array, zip(*rows, strict=True))),
    "series": lambda rows: MDP.from_outcomes(*map(Series, zip(*rows, strict=True))),
    "by name": lambda rows: MDP.from_outcomes(
        **dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
    ),
    "a dict": lambda rows: MDP.from_outcomes(
        dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
    ),
    "a data frame": lambda rows: MDP.from_outcomes(Frame(rows)),
    "a structured array": lambda rows: MDP.from_outcomes(structured(rows)),
    "shuffled": lambda rows: MDP.from_outcomes(rows[::-1]),
    "fractions": lambda rows: MDP.from_outcomes(
        [(s, a, Fraction(p), Fraction(r), t) for s, a, p, r, t in rows]
    ),
    "split outcomes": lambda rows: MDP.from_outcomes(
        [(s, a, p / 2, r, t) for s, a, p, r, t in rows for _ in range(2)]
    ),
    "counts": lambda rows: MDP.from_outcomes(
        [(s, a, round(8 * p), r, t) for s, a, p, r, t in rows], normalise=True
    ),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_every_form_is_the_same_model(form) -> None:
    first, mdp = MDP.from_outcomes(SHOP), form(SHOP)
    assert mdp.state_labels == ("home", "shop")
    assert mdp.action_labels == ("close", "order", "rest")
    assert all(type(label) is str for label in mdp.state_labels)
    np.testing.assert_array_equal(mdp.allowed, [[False, False, True], [True, True, False]])
    np.testing.assert_array_equal(mdp.transitions.toarray(), first.transitions.toarray())
    np.testing.assert_array_equal(mdp.rewards, first.rewards)
    np.testing.assert_array_equal(mdp.expected(np.square)[1], [0.0, 52.0, 0.0])


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 3))
def test_arrays_and_outcomes_are_the_same_mdp(seed: int, n: int, a: int) -> None:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(n), (n, a))
    r = rng.integers(-2, 3, (n, a, n)).astype(float)
    s, b, t = (index.ravel() for index in np.indices(p.shape))
    mdp = MDP.from_outcomes(s, b, p.ravel(), r.ravel(), t, discount=0.8, start=0)
    arrays = MDP(p, r, 0.8, start=0)
    assert mdp.state_labels == tuple(range(n))
    np.testing.assert_allclose(mdp.transitions.toarray(), arrays.transitions.toarray(), atol=1e-15)
    np.testing.assert_array_equal(mdp.start, arrays.start)
    for f in (np.exp, np.square):
        np.testing.assert_allclose(mdp.expected(f), arrays.expected(f), rtol=1e-13)


def test_labels_are_sorted_if_they_can_be() -> None:
    def labels(*names):
        return MDP.from_outcomes([(n, 0, 1.0, 0.0, n) for n in names]).state_labels

    assert labels(10, 9, 2) == (2, 9, 10)
    assert labels("b", "a") == ("a", "b")
    assert labels((1, 2), (0, 5)) == ((0, 5), (1, 2))
    assert labels("b", 3, "a") == ("b", 3, "a")
    assert labels(np.int64(4), np.float64(2.5)) == (2.5, 4)
    assert repr(labels((np.int64(4), np.str_("x")))) == "((4, 'x'),)"


def test_rows_of_an_array_are_tuples() -> None:
    places = np.array([[0, 1], [1, 1]])
    mdp = MDP.from_outcomes(places, [0, 0], [1.0, 1.0], [1.0, 2.0], places[::-1])
    assert mdp.state_labels == ((0, 1), (1, 1))


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (None, [0.5, 0.5]),
        ("shop", [0.0, 1.0]),
        (["shop"], [0.0, 1.0]),
        (["shop", "home"], [0.5, 0.5]),
        ({"home"}, [1.0, 0.0]),
        ({"shop": 0.25, "home": 0.75}, [0.75, 0.25]),
        ({"shop": 1}, [0.0, 1.0]),
        (np.array(["home"]), [1.0, 0.0]),
    ],
    ids=str,
)
def test_start_by_label(start, expected) -> None:
    np.testing.assert_array_equal(MDP.from_outcomes(SHOP, start=start).start, expected)


def test_a_tuple_is_one_start_state() -> None:
    mdp = MDP.from_outcomes([((0, 1), "x", 1.0, 0.0, (0, 1))], start=(0, 1))
    assert mdp.start.tolist() == [1.0]


def test_an_absorbing_state_is_stayed_in_with_reward_0() -> None:
    rows = [("a", "go", 1.0, 5.0, "end"), ("a", "wait", 1.0, 1.0, "a")]
    mdp = MDP.from_outcomes(rows, discount=0.5, start="a", absorbing=True)
    assert mdp.state_labels == ("a", "end")
    assert mdp.allowed.all()
    assert mvpi.solve(mdp).mean == pytest.approx(2.5)
    assert mvpi.solve(mdp).policy_by_label["a"] == "go"
    impossible = ("a", "go", 0.0, 0.0, "nowhere")
    assert MDP.from_outcomes([*rows, impossible], absorbing=True).state_labels == ("a", "end")


def test_counts_of_a_simulation_are_normalised() -> None:
    rng = np.random.default_rng(0)
    s, a, t = (rng.integers(k, size=20_000) for k in (5, 3, 5))
    r = rng.integers(4, size=20_000)
    mdp = MDP.from_outcomes(s, a, np.ones(20_000), r, t, normalise=True)
    assert mdp.transitions.nnz == 5 * 3 * 5 * 4
    here = (s == 2) & (a == 1)
    assert mdp.expected(np.square)[2, 1] == pytest.approx(np.square(r[here]).mean())
    assert mdp.transitions.toarray()[2 * 3 + 1] == pytest.approx(np.bincount(t[here]) / here.sum())


def test_minus_infinity_is_an_action_that_is_not_there() -> None:
    rows = [*SHOP, ("home", "order", 1.0, -math.inf, "home")]
    np.testing.assert_array_equal(MDP.from_outcomes(rows).allowed, MDP.from_outcomes(SHOP).allowed)


# Functions


def gamble(coins: int, stake: int):
    """A bet of up to all coins, up to 6 of them; at 0 and from 4 the game is over."""
    yield Fraction(3, 5), stake, min(coins + stake, 6)
    yield 0.4, -stake, coins - stake
    yield 0, 1e9, "never"


def stakes(coins: int):
    return range(1, coins + 1) if 0 < coins < 4 else []


def test_a_function_is_explored_breadth_first() -> None:
    mdp = MDP.from_function(gamble, stakes, 2, absorbing=True, discount=0.9)
    assert mdp.state_labels == (2, 3, 1, 4, 0, 5, 6)
    assert mdp.action_labels == (1, 2, 3)
    assert mdp.start.tolist() == [1.0, *[0.0] * 6]
    rows = [
        (s, a, float(p), r, t) for s in (1, 2, 3) for a in stakes(s) for p, r, t in gamble(s, a)
    ]
    listed = MDP.from_outcomes(
        [row for row in rows if row[2]], discount=0.9, start=2, absorbing=True
    )
    for risk in (0.0, 0.1, mvpi.CVaR(0.3)):
        one, other = mvpi.optimize(mdp, risk), mvpi.optimize(listed, risk)
        assert one.value == pytest.approx(other.value, abs=1e-10)
    np.testing.assert_array_equal(mdp.allowed[mdp.state_labels.index(2)], [True, True, False])


def test_a_function_with_a_fixed_list_of_actions() -> None:
    def walk(place, step):
        return [(1.0, float(place == 3), (place + step) % 5)]

    mdp = MDP.from_function(walk, [1, -1], [0, 2], discount=1.0)
    assert mdp.state_labels == (0, 2, 1, 4, 3)
    assert mdp.action_labels == (1, -1)
    assert mdp.start.tolist() == [0.5, 0.5, 0.0, 0.0, 0.0]
    assert mvpi.solve(mdp).mean == pytest.approx(0.5)


def test_the_limit_of_states_is_inclusive() -> None:
    def count(n, _):
        return [(1.0, 0.0, min(n + 1, 9))]

    assert MDP.from_function(count, ["on"], 0, max_states=10).n_states == 10
    with pytest.raises(InputError, match="more than max_states=9 states can be reached, such as 9"):
        MDP.from_function(count, ["on"], 0, max_states=9)


def test_an_error_of_the_function_is_its_own() -> None:
    with pytest.raises(ZeroDivisionError):
        MDP.from_function(lambda *_: 1 / 0, [0], 0)


# Answers and errors by label


def test_policies_by_label_go_both_ways() -> None:
    mdp = MDP.from_outcomes(SHOP, start="shop")
    solution = mvpi.optimize(mdp, 0.0)
    assert solution.policy_by_label == {"home": "rest", "shop": "order"}
    np.testing.assert_array_equal(mdp.checked_policy(solution.policy_by_label), solution.policy)
    half = {"home": "rest", "shop": {"order": 0.25, "close": 0.75}}
    assert mdp.policy_by_label(half) == {
        "home": {"rest": 1.0},
        "shop": {"close": 0.75, "order": 0.25},
    }
    np.testing.assert_array_equal(mdp.checked_policy(half), [[0, 0, 1], [0.75, 0.25, 0]])
    started = mvpi.policy_iteration(mdp, 0.1, solution.policy_by_label)
    assert started.policy_by_label["home"] == "rest"
    answer = mvpi.frontier(mdp).best(0.0)
    assert answer.policy_by_label == solution.policy_by_label


def test_numbers_are_labels_too() -> None:
    mdp = mvpi.examples.four_state()
    assert mdp.state_labels == range(4)
    solution = mvpi.optimize(mdp, 4.0)
    assert solution.policy_by_label == dict(enumerate(solution.policy.tolist()))
    assert mvpi.optimize(mdp, 0.0).policy_by_label == mdp.policy_by_label(mvpi.solve(mdp).policy)


BAD_POLICIES = {
    "unknown state": ({"home": "rest", "store": "order"}, "labels of states, 'home', 'shop', got"),
    "missing state": ({"home": "rest"}, "an action for every state, 'shop' has none"),
    "unknown action": ({"home": "rest", "shop": "sell"}, "policy['shop'] must use the labels of"),
    "unhashable action": (
        {"home": "rest", "shop": ["order"]},
        "policy['shop'] must use the labels",
    ),
    "shares": ({"home": "rest", "shop": {"order": 0.5}}, "probabilities that sum to 1"),
    "share of text": ({"home": "rest", "shop": {"order": "all"}}, "policy['shop']['order'] must"),
    "share negative": ({"home": "rest", "shop": {"order": -1}}, "['order'] must be >= 0, got -1"),
    "mixed and unhashable": ({"home": [1], "shop": {"order": 1}}, "policy['home'] must use the"),
}


@pytest.mark.parametrize(("policy", "fragment"), BAD_POLICIES.values(), ids=BAD_POLICIES.keys())
def test_bad_policies_by_label(policy, fragment) -> None:
    with pytest.raises(InputError) as caught:
        MDP.from_outcomes(SHOP).occupancy(policy)
    assert fragment in str(caught.value)
    assert "\n" not in str(caught.value)


def test_chains_that_split_are_named_by_label() -> None:
    rows = [(s, a, 1.0, 0.0, s) for s in ("east", "west") for a in ("go", "stay")]
    with pytest.raises(NotUnichain, match="one holds state 'east', another state 'west'"):
        mvpi.optimize(MDP.from_outcomes(rows, discount=1.0), 1.0)
    rows[0] = ("east", "go", 1.0, 0.0, "west")
    mdp = MDP.from_outcomes([*rows], discount=1.0)
    with pytest.raises(NotUnichain, match="one holds state 'east', another state 'west'"):
        mdp.occupancy({"east": "stay", "west": "stay"})


def test_commands_show_labels(capsys, tmp_path: Path) -> None:
    mdp = MDP.from_outcomes([*SHOP, ("shop", "[b]try", 1.0, 2.0, "shop")], start="shop")
    path = tmp_path / "shop.npz"
    mdp.save(path)
    cli.main(["solve", str(path), "--risk", "0"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["shop", "order"] in lines
    assert ["home", "rest"] in lines
    cli.main(["solve", str(path), "--risk", "budget:9"])
    assert "[b]try 0." in capsys.readouterr().out
    cli.main(["frontier", str(path)])
    assert "shop: [b]try -> order" in " ".join(capsys.readouterr().out.split())
    cli.main(["frontier", str(path), "--json"])
    text = capsys.readouterr().out
    assert '"state_labels": ["home", "shop"]' in text
    cli.main(["solve", str(path), "--json", "--discount", "0.5"])
    text = capsys.readouterr().out
    assert '"action_labels": ["[b]try", "close", "order", "rest"]' in text
    assert '"discount": 0.5' in text


@pytest.mark.parametrize("label", [frozenset({1}), b"x", (1, frozenset())], ids=str)
def test_labels_that_no_file_holds(tmp_path: Path, label) -> None:
    mdp = MDP.from_outcomes([(label, 0, 1.0, 0.0, label)])
    with pytest.raises(InputError, match="a file holds labels that are texts, numbers or tuples"):
        mdp.save(tmp_path / "m.npz")
    assert not (tmp_path / "m.npz").exists()


# Refusals


def changed(row: int, column: str, value) -> list[Row]:
    rows = [list(r) for r in SHOP]
    rows[row][COLUMNS.index(column)] = value
    return [tuple(r) for r in rows]


def columns(**changes) -> dict:
    return {**dict(zip(COLUMNS, map(list, zip(*SHOP, strict=True)), strict=True)), **changes}


def without(name: str) -> dict:
    return {key: value for key, value in columns().items() if key != name}


REFUSED = {
    "sum too small": (
        (changed(0, "probability", 0.4),),
        (
            "of state 'shop', action 'order' must sum to 1, got 0.9 over 2 outcomes: "
            "add what is missing, or normalise=True divides by the sum"
        ),
    ),
    "sum too large": ((changed(2, "probability", 1.5),), "action 'close' must sum to 1, got 1.5"),
    "sum of nothing": ((changed(2, "probability", 0.0),), "'close' must sum to 1, got 0 over 1"),
    "probability negative": (
        (changed(2, "probability", -0.5),),
        ("finite and >= 0, outcome 2 (state 'shop', action 'close', next state 'home') has -0.5"),
    ),
    "probability NaN": ((changed(1, "probability", math.nan),), "outcome 1 (state 'shop', action"),
    "probability infinite": ((changed(1, "probability", math.inf),), "has inf"),
    "probability text": ((changed(1, "probability", "half"),), "probability[1] must be a number, "),
    "probability None": ((changed(1, "probability", None),), "probability must be an array of"),
    "probability bool": ((columns(probability=[True] * 5),), "probability must be an array of"),
    "probability complex": ((columns(probability=[1j] * 5),), "probability must be an array of"),
    "probability of two dimensions": (
        (columns(probability=np.ones((5, 1))),),
        "probability must be a list or an array of one dimension",
    ),
    "probability one number": ((columns(probability=1.0),), "probability must be a list or an arr"),
    "reward NaN": (
        (changed(3, "reward", math.nan),),
        "reward must be finite and at most 1e+150 in size, outcome 3 (state 'home', action 'rest'",
    ),
    "reward infinite": ((changed(3, "reward", math.inf),), "has inf; leave out the outcomes"),
    "reward minus infinity once": ((changed(3, "reward", -math.inf),), "outcome 3 (state 'home'"),
    "reward too large": ((changed(3, "reward", 1e200),), "has 1e+200"),
    "reward text": ((changed(3, "reward", "much"),), "reward[3] must be a number, got 'much'"),
    "next state unknown": (
        (changed(2, "next_state", "hom"),),
        "next_state[2] must appear as a state, 'hom' has no outcomes: add them, or absorbing=True",
    ),
    "next state None": ((changed(2, "next_state", None),), "next_state must not have missing"),
    "state NaN": ((changed(2, "state", math.nan),), "state must not have missing entries, got nan"),
    "state a list": ((changed(2, "state", ["shop"]),), "state[2] must be a label: a text, a numb"),
    "state an array": ((changed(2, "state", np.zeros(2)),), "state[2] must be a label"),
    "action a dict": ((changed(0, "action", {}),), "action[0] must be a label"),
    "action None": ((changed(0, "action", None),), "action must not have missing entries"),
    "column missing": ((without("reward"),), "reward is missing, it has ['state', 'action'"),
    "columns of two lengths": (
        (columns(reward=[1.0]),),
        "the same length, got 5 of state, 5 of action, 5 of probability, 1 of reward",
    ),
    "columns of no rows": (([], [], [], [], []), "outcomes must have at least one row, got none"),
    "no rows": (([],), "outcomes must have at least one row, got none"),
    "too few columns": ((["a"], ["b"], [1.0]), "reward is missing: outcomes have the columns"),
    "only a state": ((["a", "b"],), "row 0 of the outcomes must be (state, action, probability"),
    "rows too short": (([("a", "b", 1.0, 0.0)],), "row 0 of the outcomes must be (state, action"),
    "rows too long": (([(*SHOP[0], 1)],), "row 0 of the outcomes must be"),
    "rows of two kinds": (([SHOP[0], None],), "row 1 of the outcomes must be (state, action, prob"),
    "rows of dicts of columns": (([columns()],), "probability must be a list or an array of one"),
    "rows of other dicts": (([{"state": "shop"}],), "row 0 of the outcomes must be"),
    "rows of texts": ((["abcde"],), "row 0 of the outcomes must be"),
    "a text": (("outcomes",), "a file of outcomes must be a CSV file, got 'outcomes'"),
    "no such file": (("outcomes.csv",), "outcomes.csv does not exist"),
    "a number": ((3,), "outcomes must be five columns"),
    "nothing": ((None,), "outcomes must be five columns"),
    "state a text": (("shop", ["a"], [1.0], [0.0], ["shop"]), "state must be a list or an array"),
    "state a number": ((3, ["a"], [1.0], [0.0], ["shop"]), "state must be a list or an array, got"),
    "state of three dimensions": (
        (np.zeros((1, 1, 1)), ["a"], [1.0], [0.0], ["shop"]),
        "state must have one dimension, got shape (1, 1, 1)",
    ),
    "too many pairs": (
        (range(20_000), range(20_000), np.ones(20_000), np.ones(20_000), range(20_000)),
        "states times actions must be <= 100,000,000, got 20,000 times 20,000: give actions of",
    ),
}


@pytest.mark.parametrize(("arguments", "fragment"), REFUSED.values(), ids=REFUSED.keys())
def test_malformed_outcomes(arguments, fragment) -> None:
    refuses(lambda: MDP.from_outcomes(*arguments), fragment)


REFUSED_OPTIONS = {
    "start unknown": ({"start": "shp"}, "'shp' is no state, states are 'home', 'shop'"),
    "start unknown in a list": ({"start": ["shop", "x"]}, "'x' is no state"),
    "start unknown in a dict": ({"start": {"x": 1.0}}, "'x' is no state"),
    "start empty": ({"start": []}, "start must sum to 1, got a sum of 0"),
    "start sum": ({"start": {"shop": 0.5, "home": 0.4}}, "start must sum to 1, got a sum of 0.9"),
    "start negative": ({"start": {"shop": -0.5, "home": 1.5}}, "state 'shop' has -0.5"),
    "start of text": ({"start": {"shop": "all"}}, "start must be probabilities from 0 to 1, state"),
    "start NaN": ({"start": {"shop": math.nan}}, "state 'shop' has nan"),
    "start by number": ({"start": 0}, "0 is no state"),
    "start by probabilities": ({"start": [0.5, 0.5]}, "0.5 is no state"),
    "normalise text": ({"normalise": "yes"}, "normalise must be True or False, got 'yes'"),
    "absorbing a label": ({"absorbing": "home"}, "absorbing must be True or False, got 'home'"),
    "discount": ({"discount": 1.5}, "discount must be a number in (0, 1], got 1.5"),
    "normalise nothing": (
        {"state": changed(2, "probability", 0.0), "normalise": True},
        "the probabilities of state 'shop', action 'close' must have a finite sum > 0, got 0",
    ),
    "normalise too much": (
        {
            "state": [("s", "a", 1.7e308, 0.0, "s"), ("s", "a", 1.7e308, 1.0, "s")],
            "normalise": True,
        },
        "must have a finite sum > 0, got inf over 2 outcomes",
    ),
}


@pytest.mark.parametrize(
    ("options", "fragment"), REFUSED_OPTIONS.values(), ids=REFUSED_OPTIONS.keys()
)
def test_malformed_options(options, fragment) -> None:
    refuses(lambda: MDP.from_outcomes(**{"state": SHOP, **options}), fragment)


def stay(state, _action):
    return [(1.0, 0.0, state)]


REFUSED_FUNCTIONS = {
    "no function": (("stay", [0], 0), "outcomes must be a function, got 'stay'"),
    "returns nothing": ((lambda *_: None, [0], 0), "outcomes(0, 0) must be an iterable of (prob"),
    "returns a text": ((lambda *_: "abc", [0], 0), "outcomes(0, 0) must be an iterable of (prob"),
    "returns a dict": ((lambda *_: {1: 2}, [0], 0), "outcomes(0, 0) must be an iterable of"),
    "returns one outcome": ((lambda s, _: (1.0, 0.0, s), [0], 0), "of (probability, reward, next"),
    "returns pairs": ((lambda s, _: [(1.0, s)], [0], 0), "got (1.0, 0)"),
    "returns no outcomes": (
        (lambda *_: [], ["go"], "x"),
        "outcomes('x', 'go') must have an outc",
    ),
    "only impossible ones": ((lambda s, _: [(0.0, 1.0, s)], [0], 0), "an outcome of probability >"),
    "probabilities of a half": (
        (lambda s, _: [(0.5, 0.0, s)], ["go"], "x"),
        ("of state 'x', action 'go' must sum to 1, got 0.5 over 1 outcomes: add what is missing"),
    ),
    "probability negative": (
        (lambda s, _: [(-0.5, 0.0, s), (1.5, 1.0, s)], [0], 0),
        "probability must be finite and >= 0, outcome 0 (state 0, action 0, next state 0) has -0.5",
    ),
    "probability text": (
        (lambda s, _: [("1", 0.0, s)], [0], 0),
        "the probabilities of outcomes mu",
    ),
    "reward NaN": ((lambda s, _: [(1.0, math.nan, s)], [0], 0), "reward must be finite"),
    "reward None": ((lambda s, _: [(1.0, None, s)], [0], 0), "the rewards of outcomes must be"),
    "next state a list": ((lambda s, _: [(1.0, 0.0, [s])], [0], 0), "the next state of outcomes(0"),
    "next state with a list": ((lambda s, _: [(1.0, 0.0, (s, []))], [0], 0), "the next state of o"),
    "next state None": ((lambda *_: [(1.0, 0.0, None)], [0], 0), "must not have missing entries"),
    "no end": (
        (lambda s, _: [(1.0, 0.0, s + 1)], [0], 0),
        "more than max_states=50 states can be reached, such as 50: raise max_states, or let fewer",
    ),
    "no actions": (
        (stay, [], 0),
        "actions must be a function of the state, or at least one action",
    ),
    "actions a number": ((stay, 3, 0), "actions must be a list or an array, got 3"),
    "actions a text": ((stay, "left", 0), "actions must be a list or an array, got 'left'"),
    "action a list": ((stay, [[1]], 0), "actions[0] must be a label"),
    "actions of a state a number": (
        (stay, lambda _: 3, 0),
        "actions(0) must be a list or an array",
    ),
    "no actions in a state": (
        (stay, lambda _: [], "x"),
        "every state must have an action, actions('x') has none: absorbing=True makes",
    ),
    "start a list of lists": ((stay, [0], [[1]]), "start[0] must be a label"),
    "start None": ((stay, [0], None), "start must not have missing entries, got None"),
    "start sum": ((stay, [0], {0: 0.5}), "start must sum to 1, got a sum of 0.5"),
}


@pytest.mark.parametrize(
    ("arguments", "fragment"), REFUSED_FUNCTIONS.values(), ids=REFUSED_FUNCTIONS.keys()
)
def test_malformed_functions(arguments, fragment) -> None:
    refuses(lambda: MDP.from_function(*arguments, max_states=50), fragment)


@pytest.mark.parametrize("limit", [0, -1, 2.5, "many", None])
def test_malformed_limits(limit) -> None:
    refuses(lambda: MDP.from_function(stay, [0], 0, max_states=limit), "max_states must be a whole")


def test_nothing_but_absorbing_states() -> None:
    refuses(lambda: MDP.from_function(stay, lambda _: [], 0, absorbing=True), "got none in all")


def refuses(make, fragment: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    message = str(caught.value)
    assert fragment in message
    assert "\n" not in message
    assert len(message) < 500


junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.floats(),
    st.text(max_size=2),
    st.tuples(st.integers(0, 1)),
    st.lists(st.integers(0, 1), max_size=2),
)


@given(st.lists(st.tuples(junk, junk, junk, junk, junk), max_size=4), st.booleans(), st.booleans())
def test_any_rows_make_an_mdp_or_a_refusal(rows, normalise: bool, absorbing: bool) -> None:
    try:
        mdp = MDP.from_outcomes(rows, normalise=normalise, absorbing=absorbing)
    except InputError:
        return
    assert np.isfinite(mdp.rewards).all()
    np.testing.assert_allclose(mdp.transitions.sum(axis=1), 1.0)


CSV = "state,action,probability,reward,next_state\n" + "".join(
    ",".join(map(str, row)) + "\n" for row in SHOP
)


@pytest.mark.parametrize(
    "text",
    [
        CSV,
        "\ufeff" + CSV.replace("\n", "\r\n"),  # as spreadsheets save it
        CSV.replace(",", ";"),
        CSV.replace(",", "\t"),
        CSV.replace(",", " , ") + "\n,,,,\n",
    ],
    ids=["plain", "mark and line ends", "semicolons", "tabs", "spaces and empty lines"],
)
def test_a_csv_file_is_the_same_as_its_rows(tmp_path: Path, text: str) -> None:
    path = tmp_path / "shop.csv"
    path.write_bytes(text.encode())
    rows, file = (MDP.from_outcomes(x, start="shop", absorbing=True) for x in (SHOP, path))
    assert mvpi.optimize(file, 0.1).value == mvpi.optimize(rows, 0.1).value
    assert file.state_labels == rows.state_labels


def test_rows_of_a_dict_reader() -> None:
    import csv

    rows = csv.DictReader(CSV.splitlines())
    assert repr(MDP.from_outcomes(rows, absorbing=True)) == repr(
        MDP.from_outcomes(SHOP, absorbing=True)
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CSV.replace("0.5", "0,5", 1), "row 2 of .* must have 5 cells, as its first row, got 6"),
        (CSV.replace(",", ";").replace("0.5", "0,5"), r"probability\[0\] must be .*have a point"),
        (CSV.replace("10.0", ""), r"reward\[0\] must be a number, got ''"),
        (CSV.replace("reward", "profit"), "reward is missing"),
        (CSV.splitlines()[0], "at least one row"),
        ("", "state is missing"),
        ('"a', "is not a CSV file"),
    ],
)
def test_a_csv_file_with_a_mistake(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "shop.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        MDP.from_outcomes(path)


def test_files_that_are_no_csv_files(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes(CSV.replace("shop", "caf\xe9").encode("latin-1"))
    with pytest.raises(InputError, match="must be UTF-8"):
        MDP.from_outcomes(tmp_path / "latin.csv")
    with pytest.raises(InputError, match=r"must be a CSV file, got 'table\.xlsx'"):
        MDP.from_outcomes("table.xlsx")
    with pytest.raises(InputError, match=r"nowhere\.csv does not exist"):
        MDP.from_outcomes(tmp_path / "nowhere.csv")


def test_the_command_line_solves_a_csv_file(tmp_path: Path, capsys) -> None:
    path = tmp_path / "stays.csv"
    path.write_text("state,action,probability,reward,next_state\na,b,1,2,a\n")
    cli.main(["solve", str(path), "--risk", "1"])
    assert "value = mean - 1 variance" in capsys.readouterr().out
