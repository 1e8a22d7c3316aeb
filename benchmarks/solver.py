"""The exact solver against QuantEcon and mdpsolver, at the same tolerance.

    make bench-solver                                          everything, up to 10^6 states
    make bench-solver ARGS="--sizes 1000 10000 --limit 60"     a quick look

Nine families of MDPs, discount 0.999 (`families.py`). Only public names are timed: `mvpi.solve`,
which evaluates the mean of its policy as well (its variance when that is read), and
`mvpi.optimize`, against QuantEcon's `DiscreteDP.solve` and mdpsolver's `model.solve`. Every solver
stops by the same rule: the residual of its values spans at most `EPSILON * (1 - discount)` (the
peers: that over the discount), so values are right to `EPSILON`. Each answer is checked against
ours. A peer gets its better setting: QuantEcon k = 20 or 200 evaluation steps, mdpsolver with or
without threads.

A measurement is a process of its own: it compiles on small problems of the same kind, builds the
problem, and times one call; bringing the problem into a peer's own form is timed apart. Solvers
take turns and the best of the repetitions counts.

Rows go to a CSV file as they are measured. Rows that are in the file already are not measured
again, so a run that was stopped can be continued; after a change of the code start a new file.
"""

from __future__ import annotations

import math
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from itertools import pairwise, product
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from families import DISCOUNT, FAMILIES, ONLY_SIZE, Family, build
from rich.console import Console
from rich.table import Table
from rows import append_rows, read_rows

import mvpi
from mvpi import MDP, Solution

Array = npt.NDArray[np.float64]
Status = Literal["ok", "over limit", "skipped", "failed"]
Clock = Literal["wall", "processor"]

EPSILON = 1e-3
"""How far values may be from optimal."""
TOLERANCE = EPSILON * (1 - DISCOUNT)
"""The same, per step."""
RISK_AVERSION = 1.0

PARALLEL_FROM = 20_000
"""States from which our kernels use threads: serial and parallel ones compile separately."""
WARM_UP_SERIAL, WARM_UP_PARALLEL = 1_000, 22_500
SET_UP_LIMIT = 1_800.0
"""Seconds for compiling, building and converting, before the clock of a measurement starts."""
LIST_BYTES = 150
"""Memory of mdpsolver's nested lists, and its copy of them, per possible transition."""

AIM_RATIO = 1.0
AIM_OPTIMIZE = 15.0
AIM_EXPONENT = 1.15
AIM_FRONTIER = 60.0
FRONTIER_STATES = 1_000


@dataclass(frozen=True)
class Config:
    """Times the exact solver against other libraries."""

    sizes: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    """Numbers of states."""
    families: tuple[Family, ...] = FAMILIES
    out: Path = Path("out/solver.csv")
    """Where rows are written, and read from to continue."""
    repeats: int | None = None
    """Repetitions; 3 up to 10^5 states and 1 above when left out."""
    limit: float = 600.0
    """Seconds for one solve of a peer."""
    clock: Clock = "wall"
    """Which time is measured: on the wall, or that of the processor, summed over threads. The
    latter says more on a busy machine, with one thread (NUMBA_NUM_THREADS=1)."""
    own_limit: float = 3_600.0
    """Seconds for one call of ours."""
    mdpsolver_states: int = 100_000
    """Largest number of states for mdpsolver: it takes its problem as nested Python lists."""
    frontier: bool = True
    """Whether to time the frontier of a 1,000-state MDP."""

    def problems(self) -> list[Problem]:
        """From small to large; families of one size come first."""
        fixed = [Problem(f, ONLY_SIZE[f]) for f in self.families if f in ONLY_SIZE]
        free = [family for family in self.families if family not in ONLY_SIZE]
        return fixed + [Problem(family, n) for n in sorted(self.sizes) for family in free]

    def repeats_at(self, states: int) -> int:
        return self.repeats or (3 if states <= 100_000 else 1)


@dataclass(frozen=True)
class Problem:
    """One MDP to solve."""

    family: Family
    states: int

    def build(self) -> MDP:
        return build(self.family, self.states)

    def warm_ups(self, threads: bool) -> Iterator[MDP]:
        """Small MDPs of the same kind, and grids, which use every kernel at any size."""
        sizes = [WARM_UP_SERIAL]
        if threads and self.states >= PARALLEL_FROM:
            sizes.append(WARM_UP_PARALLEL)
        for family, states in product(dict.fromkeys([self.family, "grid"]), sizes):
            if states <= ONLY_SIZE.get(family, states):
                yield Problem(family, states).build()

    def __str__(self) -> str:
        return f"{self.family} {self.states:,}"


# What is measured: `__init__` brings the problem into the solver's form, `run` is timed.


@dataclass(frozen=True)
class Answer:
    """What a method found; which fields are set depends on the method."""

    values: Array | None = None
    """Optimal value of each state."""
    gain: float = math.nan
    """`(1 - discount)` times the mean value over the start distribution: reward per step."""
    lower: float = math.nan
    upper: float = math.nan
    """Our proven bounds on the largest gain."""
    gap: float = math.nan
    solves: int = 0


class Method(Protocol):
    """A solver with a problem loaded."""

    def run(self) -> None:
        """What is timed."""

    def answer(self) -> Answer: ...


def mean_rewards(mdp: MDP) -> Array:
    """`E[r | s, a]`, `(S, A)`."""
    return np.ascontiguousarray(mdp.expected(lambda r: r))


def relative_tolerance(mdp: MDP) -> float:
    """`TOLERANCE` as our functions take it: a share of half the range of the rewards."""
    return TOLERANCE / (0.5 * float(np.ptp(mdp.rewards)))


class Ours:
    """Our risk-neutral optimum."""

    def __init__(self, mdp: MDP):
        self._mdp, self._tolerance = mdp, relative_tolerance(mdp)

    def run(self) -> None:
        self._solution: Solution = mvpi.solve(self._mdp, tolerance=self._tolerance)

    def answer(self) -> Answer:
        """The values are those of the policy, evaluated afterwards."""
        mdp, found = self._mdp, self._solution
        paid = mean_rewards(mdp)[np.arange(mdp.n_states), found.policy]
        values = mdp.chain(mdp.checked_policy(found.policy)).evaluate(paid, 0.01 * TOLERANCE).values
        return Answer(
            values, found.mean, found.mean, found.upper_bound, gap=found.gap, solves=found.solves
        )


class Optimize:
    """Our mean-variance optimum, after a risk-neutral solve as everyone would do first."""

    def __init__(self, mdp: MDP):
        self._mdp, self._tolerance = mdp, relative_tolerance(mdp)
        Ours(mdp).run()

    def run(self) -> None:
        self._solution = mvpi.optimize(self._mdp, RISK_AVERSION, tolerance=self._tolerance)

    def answer(self) -> Answer:
        return Answer(gap=self._solution.gap, solves=self._solution.solves)


class WholeFrontier:
    """Our efficient frontier."""

    def __init__(self, mdp: MDP):
        Optimize(mdp).run()
        self._compute = partial(mvpi.frontier, mdp)

    def run(self) -> None:
        self._frontier = self._compute()

    def answer(self) -> Answer:
        return Answer(solves=self._frontier.solves)


class QuantEcon:
    """`DiscreteDP` on state-action pairs, modified policy iteration."""

    def __init__(self, mdp: MDP, k: int):
        from quantecon.markov import DiscreteDP
        from scipy.sparse import csr_matrix

        table = mdp.transitions
        pairs = csr_matrix((table.data, table.indices, table.indptr), table.shape)
        state, action = np.divmod(np.arange(pairs.shape[0]), mdp.n_actions)
        self._ddp = DiscreteDP(mean_rewards(mdp).ravel(), pairs, mdp.discount, state, action)
        self._start, self._k = mdp.start, k

    def run(self) -> None:
        self._result = self._ddp.solve(
            "modified_policy_iteration", epsilon=EPSILON, max_iter=1_000_000, k=self._k
        )

    def answer(self) -> Answer:
        return _peer_answer(self._result.v, self._start)


class MdpSolver:
    """mdpsolver's modified policy iteration."""

    def __init__(self, mdp: MDP, parallel: bool):
        import mdpsolver

        bounds, actions = mdp.transitions.indptr.tolist(), mdp.n_actions
        self._model = mdpsolver.model()
        self._model.mdp(
            discount=mdp.discount,
            rewards=mean_rewards(mdp).tolist(),
            tranMatProbs=_nested(mdp.transitions.data.tolist(), bounds, actions),
            tranMatColumns=_nested(mdp.transitions.indices.tolist(), bounds, actions),
        )
        self._start, self._parallel = mdp.start, parallel

    def run(self) -> None:
        self._model.solve(algorithm="mpi", tolerance=EPSILON, parallel=self._parallel)

    def answer(self) -> Answer:
        return _peer_answer(np.array(self._model.getValueVector()), self._start)


def _peer_answer(values: Array, start: Array) -> Answer:
    return Answer(values, (1 - DISCOUNT) * float(start @ values))


def _nested(entries: list[Any], bounds: list[int], actions: int) -> list[list[list[Any]]]:
    """Entries of a CSR matrix as lists: per state, per action, per successor."""
    rows = [entries[first:last] for first, last in pairwise(bounds)]
    return [rows[at : at + actions] for at in range(0, len(rows), actions)]


OURS, OPTIMIZE, FRONTIER = "ours", "optimize", "frontier"
PEERS = {
    "QuantEcon": ("QuantEcon k=20", "QuantEcon k=200"),
    "mdpsolver": ("mdpsolver parallel", "mdpsolver serial"),
}
METHODS: dict[str, Callable[[MDP], Method]] = {
    OURS: Ours,
    "QuantEcon k=20": partial(QuantEcon, k=20),
    "QuantEcon k=200": partial(QuantEcon, k=200),
    "mdpsolver parallel": partial(MdpSolver, parallel=True),
    "mdpsolver serial": partial(MdpSolver, parallel=False),
    OPTIMIZE: Optimize,
    FRONTIER: WholeFrontier,
}


def is_peer(method: str) -> bool:
    return method not in (OURS, OPTIMIZE, FRONTIER)


# One measurement, in a process of its own.


@dataclass(frozen=True)
class Ready:
    """The problem is loaded; the clock starts."""

    nonzeros: int
    set_up_seconds: float


@dataclass(frozen=True)
class Done:
    seconds: float
    peak_mb: float
    answer: Answer


@dataclass(frozen=True)
class Measurement:
    """How a measurement ended, and as much of it as there is."""

    status: Status
    ready: Ready | None = None
    done: Done | None = None
    note: str = ""


def timed(function: Callable[[], Any], clock: Clock = "wall") -> tuple[float, Any]:
    now = time.perf_counter if clock == "wall" else time.process_time
    start = now()
    result = function()
    return now() - start, result


def _child(pipe: Connection, name: str, problem: Problem, clock: Clock) -> None:
    for small in problem.warm_ups(threads=not is_peer(name)):
        warm_up = METHODS[OPTIMIZE if name == FRONTIER else name](small)
        warm_up.run()
    mdp = problem.build()
    set_up_seconds, method = timed(partial(METHODS[name], mdp))
    pipe.send(Ready(mdp.transitions.nnz, set_up_seconds))
    seconds, _ = timed(method.run, clock)
    # Linux counts in KiB. A process starts from the peak of its parent, which stays small.
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pipe.send(Done(seconds, peak_mb, method.answer()))


def measure(method: str, problem: Problem, limit: float, clock: Clock = "wall") -> Measurement:
    """Time one call; it is stopped after `limit` seconds on the wall."""
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(sender, method, problem, clock))
    process.start()
    sender.close()
    ready = None
    try:
        if not receiver.poll(SET_UP_LIMIT):
            return Measurement("failed", note=f"not set up in {SET_UP_LIMIT:g} s")
        ready = receiver.recv()
        if not receiver.poll(limit):
            return Measurement("over limit", ready)
        done = receiver.recv()
        process.join()
        return Measurement("ok", ready, done)
    except EOFError:
        process.join()
        return Measurement("failed", ready, note=f"ended with exit code {process.exitcode}")
    finally:
        process.kill()
        process.join()
        receiver.close()


# Rows, and the file that keeps them.


@dataclass(frozen=True)
class Row:
    """One line of the CSV file."""

    family: str
    states: int
    method: str
    repeat: int
    status: str
    seconds: float = math.inf
    set_up_seconds: float = math.nan
    nonzeros: int = 0
    peak_mb: float = math.nan
    difference: float = math.nan
    """Largest difference of a value from ours."""
    outside: float = math.nan
    """How far the gain lies outside our bounds, per step."""
    gap: float = math.nan
    """Between our bounds on the gain, or on the mean-variance optimum; per step."""
    solves: int = 0
    note: str = ""

    @property
    def measured(self) -> bool:
        """Whether `seconds` is a time or a lower bound on it."""
        return self.status in ("ok", "over limit")

    @property
    def agrees(self) -> bool:
        return self.difference <= 2 * EPSILON and self.outside <= 2 * TOLERANCE


class Rows:
    """All rows measured so far, in memory and in the file."""

    def __init__(self, path: Path):
        self._path = path
        self._rows = read_rows(path, Row)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: Row) -> None:
        self._rows.append(row)
        append_rows(self._path, [row])

    def of(self, problem: Problem, *methods: str) -> list[Row]:
        key = (problem.family, problem.states)
        return [r for r in self._rows if (r.family, r.states) == key and r.method in methods]

    def best(self, problem: Problem, *methods: str) -> Row | None:
        """The fastest row; if there is none, one that says why."""
        order = ("ok", "over limit", "skipped", "failed")
        rows = self.of(problem, *methods)
        return min(rows, key=lambda row: (order.index(row.status), row.seconds), default=None)

    def has(self, problem: Problem, method: str, repeat: int, limit: float) -> bool:
        """Whether nothing is left to measure."""
        rows = self.of(problem, method)
        given_up = any(r.status == "over limit" and r.seconds >= limit for r in rows)
        return given_up or any(r.status == "ok" and r.repeat == repeat for r in rows)


class Benchmark:
    """Measures what is missing in the file."""

    def __init__(self, config: Config, rows: Rows, console: Console):
        self.config, self.rows, self.console = config, rows, console
        self._reference: tuple[Problem, Answer] | None = None

    def run(self) -> None:
        everything = [name for name in METHODS if name != FRONTIER]
        for problem in self.config.problems():
            self._rounds(problem, everything)
        if self.config.frontier:
            self._rounds(Problem("random", FRONTIER_STATES), [OURS, FRONTIER])

    def _rounds(self, problem: Problem, methods: Iterable[str]) -> None:
        """All methods take turns, as often as there are repetitions."""
        methods = list(methods)
        for repeat in range(self.config.repeats_at(problem.states)):
            for method in methods:
                if method in PEERS["mdpsolver"] and problem.states > self.config.mdpsolver_states:
                    self._skip_mdpsolver(problem, method)
                elif not self.rows.has(problem, method, repeat, self._limit(method)):
                    self._measure(problem, method, repeat)

    def _limit(self, method: str) -> float:
        return self.config.limit if is_peer(method) else self.config.own_limit

    def _skip_mdpsolver(self, problem: Problem, method: str) -> None:
        if self.rows.of(problem, method):
            return
        ours = self.rows.best(problem, OURS)
        gigabytes = LIST_BYTES * (ours.nonzeros if ours else 0) / 1e9
        note = (
            f"not run above {self.config.mdpsolver_states:,} states: "
            f"nested Python lists of about {gigabytes:.1f} GB"
        )
        self._keep(Row(problem.family, problem.states, method, 0, "skipped", note=note))

    def _measure(self, problem: Problem, method: str, repeat: int) -> None:
        limit = self._limit(method)
        measured = measure(method, problem, limit, self.config.clock)
        row: dict[str, Any] = {"status": measured.status, "note": measured.note}
        if measured.ready:
            row |= asdict(measured.ready)
        if measured.status == "over limit":
            row["seconds"] = limit
        if measured.done:
            answer = measured.done.answer
            row |= {"seconds": measured.done.seconds, "peak_mb": measured.done.peak_mb}
            row |= {"gap": answer.gap, "solves": answer.solves}
            row |= self._agreement(problem, method, answer)
        self._keep(Row(problem.family, problem.states, method, repeat, **row))

    def _agreement(self, problem: Problem, method: str, answer: Answer) -> dict[str, float]:
        """How far a peer's answer is from ours."""
        if method == OURS:
            self._reference = (problem, answer)
        if not is_peer(method):
            return {}
        ours = self._our_answer(problem)
        if ours is None or ours.values is None or answer.values is None:
            return {}
        difference = float(np.abs(answer.values - ours.values).max())
        outside = max(ours.lower - answer.gain, answer.gain - ours.upper, 0.0)
        return {"difference": difference, "outside": outside}

    def _our_answer(self, problem: Problem) -> Answer | None:
        """Found again, untimed, when our times were in the file already."""
        if self._reference is None or self._reference[0] != problem:
            measured = measure(OURS, problem, self.config.own_limit)
            if measured.done is None:
                return None
            self._reference = (problem, measured.done.answer)
        return self._reference[1]

    def _keep(self, row: Row) -> None:
        self.rows.add(row)
        ours = self.rows.best(Problem(row.family, row.states), OURS)
        self.console.print(
            f"{row.family:<10}{row.states:>10,}  {row.method:<19}{shown(row):>12}"
            f"{ratio_shown(row, ours):>10} x ours  {row.note}",
            highlight=False,
        )


# Tables.


def shown(row: Row | None) -> str:
    """A time, or why there is none."""
    if row is None:
        return "-"
    if not row.measured:
        return row.status
    sign = "> " if row.status == "over limit" else ""
    return f"{sign}{row.seconds:.3g} s"


def ratio(row: Row | None, ours: Row | None) -> float | None:
    """Time over our single solve; a lower bound when the row was stopped at the limit."""
    if row is None or ours is None or not row.measured or ours.status != "ok":
        return None
    return row.seconds / ours.seconds


def ratio_shown(row: Row | None, ours: Row | None) -> str:
    value = ratio(row, ours)
    if row is None or value is None:
        return "-"
    sign = "> " if row.status == "over limit" else ""
    return f"{sign}{value:.3g}"


def new_table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in texts:
        table.add_column(heading)
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table


def solve_table(rows: Rows, problems: Iterable[Problem]) -> Table:
    title = f"Risk-neutral solves, values within {EPSILON:g}, discount {DISCOUNT:g}"
    headings = ("states", "time", "peer / ours", "set-up", "max |v - ours|", "agrees")
    table = new_table(title, ("family", "solver"), headings)
    notes = []
    for problem in problems:
        ours = rows.best(problem, OURS)
        name = (problem.family, OURS, f"{problem.states:,}")
        table.add_row(*name, shown(ours), ratio_shown(ours, ours), "", "", "", style="bold")
        for variants in PEERS.values():
            row = rows.best(problem, *variants)
            if row is not None:
                table.add_row("", row.method, "", shown(row), *_peer_cells(row, ours))
                notes += [f"{row.method}, {problem}: {row.note}"] if row.note else []
        table.add_section()
    table.caption, table.caption_justify = "\n".join(notes) or None, "left"
    return table


def _peer_cells(row: Row, ours: Row | None) -> tuple[str, str, str, str]:
    relative = ratio_shown(row, ours)
    set_up = "" if math.isnan(row.set_up_seconds) else f"{row.set_up_seconds:.2g} s"
    if math.isnan(row.difference):
        return relative, set_up, "", ""
    return relative, set_up, f"{row.difference:.1e}", "yes" if row.agrees else "[red]NO[/]"


def optimize_table(rows: Rows, problems: Iterable[Problem]) -> Table:
    title = f"optimize(mdp, {RISK_AVERSION:g}), gap at most {TOLERANCE:g}; peak memory of it all"
    headings = ("states", "time", "single solves", "solves inside", "gap", "peak memory")
    table = new_table(title, ("family",), headings)
    for problem in problems:
        row = rows.best(problem, OPTIMIZE)
        if row is None:
            continue
        cells = [f"{problem.states:,}", shown(row), ratio_shown(row, rows.best(problem, OURS))]
        if row.status == "ok":
            cells += [str(row.solves), f"{row.gap:.1e}", f"{row.peak_mb:,.0f} MB"]
        table.add_row(problem.family, *cells)
    return table


def growth_table(rows: Rows, config: Config) -> Table:
    table = new_table(
        "Growth of our solve with the non-zeros", ("family",), ("non-zeros", "exponent of time")
    )
    for family in config.families:
        if family in ONLY_SIZE:
            continue
        exponent = growth(rows, family, config.sizes)
        found = [rows.best(Problem(family, states), OURS) for states in config.sizes]
        nonzeros = ", ".join(f"{row.nonzeros:,}" for row in found if row is not None)
        table.add_row(family, nonzeros, "-" if exponent is None else f"{exponent:.3f}")
    return table


def growth(rows: Rows, family: str, sizes: Iterable[int]) -> float | None:
    """Least-squares slope of log time against log non-zeros; None with fewer than two sizes."""
    found = [rows.best(Problem(family, states), OURS) for states in sorted(set(sizes))]
    good = [row for row in found if row is not None and row.status == "ok"]
    if len(good) < 2:
        return None
    nonzeros, seconds = [row.nonzeros for row in good], [row.seconds for row in good]
    return float(np.polyfit(np.log(nonzeros), np.log(seconds), 1)[0])


# The aims.


@dataclass(frozen=True)
class Verdict:
    aim: str
    met: bool | None
    """None: not (fully) measured."""
    figure: str


def verdicts(rows: Rows, config: Config, problems: Sequence[Problem]) -> list[Verdict]:
    return [
        _agreement_verdict(rows, problems),
        _speed_verdict(rows, problems),
        _optimize_verdict(rows, problems),
        _growth_verdict(rows, config),
        _frontier_verdict(rows),
    ]


def _agreement_verdict(rows: Rows, problems: Iterable[Problem]) -> Verdict:
    aim = f"all solvers agree on all values within {2 * EPSILON:g}"
    methods = [name for variants in PEERS.values() for name in variants]
    answers = [r for p in problems for r in rows.of(p, *methods) if r.status == "ok"]
    if not answers:
        return Verdict(aim, None, "no answer of a peer")
    worst = max(answers, key=lambda row: row.difference)
    figure = f"largest difference {worst.difference:.1e} ({worst.method}, {worst.family}"
    met = all(row.agrees for row in answers)
    return Verdict(aim, met, f"{figure} {worst.states:,}), {len(answers)} answers")


def _speed_verdict(rows: Rows, problems: Sequence[Problem]) -> Verdict:
    aim = "no slower than the faster peer at every size"
    found = {problem: _faster_peer(rows, problem) for problem in problems}
    known = [pair for pair in found.values() if pair is not None]
    if not known:
        return Verdict(aim, None, "no time of a peer")
    smallest, where = min(known)
    slower = sum(value < AIM_RATIO for value, _ in known)
    figure = f"smallest ratio {smallest:.3g} ({where}); slower on {slower} of {len(known)}"
    missing = [str(problem) for problem, pair in found.items() if pair is None]
    figure += f"; no ratio on {', '.join(missing)}" if missing else ""
    for peer, variants in PEERS.items():
        skipped = [str(p) for p in problems if _was_skipped(rows.best(p, *variants))]
        figure += f"; without {peer} on {', '.join(skipped)}" if skipped else ""
    return Verdict(aim, None if missing and not slower else slower == 0, figure)


def _faster_peer(rows: Rows, problem: Problem) -> tuple[float, str] | None:
    """The smallest ratio peer / ours, and whose it is."""
    ours = rows.best(problem, OURS)
    best = [row for variants in PEERS.values() if (row := rows.best(problem, *variants))]
    ratios = [(ratio(row, ours), f"{row.method}, {problem}") for row in best]
    return min(((value, where) for value, where in ratios if value is not None), default=None)


def _was_skipped(row: Row | None) -> bool:
    return row is not None and row.status == "skipped"


def _optimize_verdict(rows: Rows, problems: Sequence[Problem]) -> Verdict:
    aim = f"optimize within {AIM_OPTIMIZE:g} single solves"
    pairs = [(p, ratio(rows.best(p, OPTIMIZE), rows.best(p, OURS))) for p in problems]
    known = [(value, str(problem)) for problem, value in pairs if value is not None]
    if not known:
        return Verdict(aim, None, "no time")
    largest, where = max(known)
    over = sum(value > AIM_OPTIMIZE for value, _ in known)
    figure = f"largest multiple {largest:.3g} ({where}); over on {over} of {len(known)}"
    complete = len(known) == len(problems)
    return Verdict(aim, over == 0 if complete or over else None, figure)


def _growth_verdict(rows: Rows, config: Config) -> Verdict:
    aim = f"time grows with an exponent below {AIM_EXPONENT:g}"
    free = [family for family in config.families if family not in ONLY_SIZE]
    pairs = [(family, growth(rows, family, config.sizes)) for family in free]
    known = [(family, value) for family, value in pairs if value is not None]
    if not known:
        return Verdict(aim, None, "needs two sizes")
    figure = ", ".join(f"{family} {value:.3f}" for family, value in known)
    over = any(value >= AIM_EXPONENT for _, value in known)
    return Verdict(aim, not over if over or len(known) == len(pairs) else None, figure)


def _frontier_verdict(rows: Rows) -> Verdict:
    aim = f"frontier of a {FRONTIER_STATES:,}-state MDP in seconds (< {AIM_FRONTIER:g})"
    problem = Problem("random", FRONTIER_STATES)
    row = rows.best(problem, FRONTIER)
    if row is None or not row.measured:
        return Verdict(aim, None, "not measured" if row is None else row.status)
    multiple = ratio_shown(row, rows.best(problem, OURS))
    figure = f"{shown(row)}, {multiple} single solves, {row.solves:,} solves inside"
    return Verdict(aim, row.status == "ok" and row.seconds < AIM_FRONTIER, figure)


def summary_table(found: Iterable[Verdict]) -> Table:
    words = {True: "[green]met[/]", False: "[red]not met[/]", None: "[yellow]not measured[/]"}
    table = new_table("Summary", ("aim", "", "measured"), ())
    for verdict in found:
        table.add_row(verdict.aim, words[verdict.met], verdict.figure)
    return table


def environment(clock: Clock) -> str:
    packages = ("numpy", "scipy", "numba", "quantecon", "mdpsolver")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    load = os.getloadavg()[0]
    return (
        f"{clock} time; {platform.machine()}, {os.cpu_count()} cores, load {load:.1f} at the start"
        f"; Python {platform.python_version()}, {versions}"
    )


def main(config: Config) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    rows = Rows(config.out)
    console.print(environment(config.clock), highlight=False)
    if len(rows):
        console.print(f"{len(rows)} rows taken from {config.out}", highlight=False)
    Benchmark(config, rows, console).run()
    order = config.families.index
    problems = sorted(config.problems(), key=lambda problem: order(problem.family))
    console.print()
    console.print(solve_table(rows, problems))
    console.print(optimize_table(rows, problems))
    console.print(growth_table(rows, config))
    console.print(summary_table(verdicts(rows, config, problems)))


if __name__ == "__main__":
    import tyro

    main(tyro.cli(Config, description=__doc__))
