"""MVPI-TD3 against the TD3 of stable-baselines3 and of SBX, at the same settings.

    python benchmarks/training.py                           speed, limit and memory
    python benchmarks/training.py --parts curves            learning curves; takes an hour or more
    python benchmarks/training.py --steps 500 --rounds 1    a quick look

    speed    environment steps per second, each with one update, on HalfCheetah-v4
    limit    the matrix products of an update alone, back to back in one function compiled by XLA;
             and if all arithmetic were as fast as on numbers in the nearest cache
    memory   what storing a million transitions adds to the resident memory
    curves   returns while learning, ours at risk 0 against stable-baselines3

Speed is read from a stopwatch inside the environment, when random steps, compilation and warm-up
are over and `steps` steps later: the same for every library, and without evaluations.

A measurement is a process of its own, bound to its cores before any library is loaded: to one
core, or to all of them as it comes. Contestants take turns; the best of the rounds counts. The
libraries differ in what cannot be set: our `train_freq` is a multiple of `policy_delay` and 10 by
default; SBX moves its targets at every update and takes both critics into the actor's loss.

Rows go to a CSV file as they are measured. Rows that are in the file already are not measured
again, so a run that was stopped can be continued (curves: seed by seed); after a change of the
code or of settings other than sizes start a new file.
"""

from __future__ import annotations

import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import chdir, contextmanager
from dataclasses import asdict, dataclass, fields
from functools import partial
from importlib import import_module
from importlib.metadata import version
from itertools import product
from multiprocessing import active_children, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from rows import append_rows, read_rows

from mvpi.envs import Task

# JAX, torch and all that loads them are imported in the process that needs them.

Array = npt.NDArray[np.float64]
Env = gym.Env[Any, Any]
Part = Literal["speed", "limit", "memory", "curves"]
Cores = Literal["one", "all"]

TASK = Task("HalfCheetah-v4")
OBSERVATIONS, ACTIONS = 17, 6
HIDDEN = (400, 300)
BATCH = 100
DELAY = 2
EXPLORATION_NOISE = 0.1
SHARED: dict[str, Any] = {
    "learning_rate": 1e-3,
    "buffer_size": 1_000_000,
    "batch_size": BATCH,
    "gamma": 0.99,
    "tau": 0.005,
    "policy_delay": DELAY,
    "target_policy_noise": 0.2,
    "target_noise_clip": 0.5,
}
"""Settings that have the same name in all three libraries."""
CHECKPOINT_EVERY = 1_000
WHOLE = 100
"""Steps are counted in multiples of this, so that every `train_freq` fits in."""
LIMIT_UPDATES, LIMIT_CALLS = 100, 10
"""Updates in a call of the compiled products, and calls of which the fastest counts."""
RESAMPLES = 10_000


@dataclass(frozen=True)
class Config:
    """Times the training of agents against other libraries."""

    parts: tuple[Part, ...] = ("speed", "limit", "memory")
    """What to measure and show; curves take long and are asked for by name."""
    out: Path = Path("out/training.csv")
    """Where rows are written, and read from to continue."""
    cores: tuple[Cores, ...] = ("one", "all")
    """Bound to one core, or as it comes."""
    rounds: int = 3
    """Repetitions of speed and limit."""
    steps: int = 2_000
    """Steps timed, a multiple of 100; checkpoints are seen from 1,000 on."""
    random_steps: int = 1_000
    """Steps with random actions before, a multiple of 100."""
    warm_up: int = 500
    """Steps with updates before, in which functions are compiled; a multiple of 100."""
    transitions: int = 1_000_000
    """Transitions stored to measure memory."""
    curve_steps: int = 50_000
    curve_every: int = 5_000
    """Steps between evaluations."""
    curve_episodes: int = 10
    """Episodes of an evaluation."""
    curve_random_steps: int = 10_000
    """Steps with random actions at the beginning of a curve: the paper's."""
    seeds: int = 3
    """Curves of each library."""
    processes: int = 2
    """Curves at a time, one core each."""

    def __post_init__(self) -> None:
        for name in ("steps", "random_steps", "warm_up"):
            value = getattr(self, name)
            if value < WHOLE or value % WHOLE:
                raise SystemExit(f"{name} must be a positive multiple of {WHOLE}, got {value}")
        if self.curve_steps % self.curve_every:
            raise SystemExit(
                f"curve_steps must be a multiple of curve_every, got {self.curve_steps} and "
                f"{self.curve_every}"
            )


@dataclass(frozen=True)
class Contestant:
    """An agent with its settings."""

    name: str
    library: Literal["mvpi", "stable_baselines3", "sbx"]
    train_freq: int
    risk: float = 0.0
    checkpoints: bool = False


OURS = Contestant("mvpi", "mvpi", 10)
RISKY = Contestant("mvpi, risk 1", "mvpi", 10, risk=1.0)
SAVING = Contestant("mvpi, checkpoints", "mvpi", 10, checkpoints=True)
BASELINES = Contestant("stable-baselines3", "stable_baselines3", 1)
CONTESTANTS = (
    OURS,
    RISKY,
    SAVING,
    Contestant("mvpi, train_freq 2", "mvpi", 2),
    Contestant("mvpi, train_freq 50", "mvpi", 50),
    BASELINES,
    Contestant("SBX, train_freq 1", "sbx", 1),
    Contestant("SBX, train_freq 50", "sbx", 50),
)
LIMIT = "products of XLA"
CURVES = (OURS, BASELINES)
RETURN = "mean return"
IN_MEMORY, IN_DIRECTORY = "replay in memory", "replay in a directory"


# A process of its own.


class Failed(Exception):
    """A measurement ended without a result."""


def in_process(cores: set[int], job: Callable[[], Any]) -> Any:
    """What `job()` returns in a new process that is bound to `cores`."""
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(sender, job))
    with bound_to(cores):
        process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        process.join()
        raise Failed(f"ended with exit code {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
        receiver.close()


@contextmanager
def bound_to(cores: set[int]) -> Iterator[None]:
    """Processes started meanwhile, by this thread, inherit the cores: before they load anything."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _child(sender: Connection, job: Callable[[], Any]) -> None:
    # MuJoCo writes a log to the working directory.
    with TemporaryDirectory() as scratch, chdir(scratch):
        sender.send(job())


def chosen(cores: Cores) -> set[int]:
    """The last core is the one least used by the rest of a system."""
    everything = os.sched_getaffinity(0)
    return everything if cores == "all" else {max(everything)}


# Speed.


def cheetah() -> Env:
    """The environment, the same for every library."""
    import mujoco

    mujoco.set_mju_user_warning(_warn)
    return TASK()


def _warn(message: str) -> None:
    """MuJoCo finds the cheetah's own file old-fashioned whenever it is read: that is no news."""
    if "settotalmass" not in message:
        print(message, file=sys.stderr)


class Stopwatch(gym.Wrapper[Any, Any, Any, Any]):
    """Notes the time before two of the environment's steps."""

    def __init__(self, env: Env, first: int, last: int):
        super().__init__(env)
        self._first, self._last = first, last
        self._steps = 0
        self.start = self.end = math.nan

    def step(self, action: Any) -> Any:
        if self._steps == self._first:
            self.start = time.perf_counter()
        elif self._steps == self._last:
            self.end = time.perf_counter()
        self._steps += 1
        return self.env.step(action)


class Stopwatches:
    """Makes environments; the one that is trained in gets to the last step first."""

    def __init__(self, first: int, steps: int):
        self._first, self._steps = first, steps
        self._made: list[Stopwatch] = []

    def __call__(self) -> Stopwatch:
        self._made.append(Stopwatch(cheetah(), self._first, self._first + self._steps))
        return self._made[-1]

    def steps_per_second(self) -> float:
        ended = [watch for watch in self._made if not math.isnan(watch.end)]
        trained = min(ended, key=lambda watch: watch.end)
        return self._steps / (trained.end - trained.start)


def speed(contestant: Contestant, random_steps: int, warm_up: int, steps: int) -> tuple[float]:
    """Steps per second after the warm-up."""
    first = random_steps + warm_up
    make = Stopwatches(first, steps)
    # One more call of the update, and so at least the step at which the watch is stopped.
    total = first + steps + contestant.train_freq
    if contestant.library == "mvpi":
        # There is always an evaluation at the end: the shortest.
        short = {"evaluation_every": total, "evaluation_episodes": 1}
        agent = ours(contestant, make, 0, random_steps, **short)
        agent.learn(total, out="run" if contestant.checkpoints else None)
    else:
        peer(contestant, make(), 0, random_steps).learn(total)
    return (make.steps_per_second(),)


def ours(
    contestant: Contestant,
    make: Callable[[], Env],
    seed: int,
    random_steps: int,
    **more: Any,
) -> Any:
    import mvpi

    return mvpi.TD3(
        make,
        contestant.risk,
        seed,
        hidden=HIDDEN,
        exploration_noise=EXPLORATION_NOISE,
        learning_starts=random_steps,
        train_freq=contestant.train_freq,
        checkpoint_every=CHECKPOINT_EVERY,
        **SHARED,
        **more,
    )


def peer(contestant: Contestant, env: Env, seed: int, random_steps: int) -> Any:
    from stable_baselines3.common.noise import NormalActionNoise

    # ReLU and Adam are what both libraries use for TD3.
    noise = NormalActionNoise(np.zeros(ACTIONS), np.full(ACTIONS, EXPLORATION_NOISE))
    return import_module(contestant.library).TD3(
        "MlpPolicy",
        env,
        action_noise=noise,
        learning_starts=random_steps,
        train_freq=contestant.train_freq,
        gradient_steps=contestant.train_freq,
        policy_kwargs={"net_arch": list(HIDDEN)},
        device="cpu",
        seed=seed,
        **SHARED,
    )


# Limit. `dot` is the product of two matrices; networks are lists of weights, inputs x outputs.


Dot = Callable[[Any, Any], Any]
Network = list[Any]


def forward(dot: Dot, network: Network, x: Any) -> tuple[Any, list[Any]]:
    """The output, and the input of every layer."""
    inputs = []
    for weight in network:
        inputs.append(x)
        x = dot(x, weight)
    return x, inputs


def backward(dot: Dot, network: Network, d: Any) -> list[Any]:
    """Gradients in front of `network` and between its layers, and `d` behind it."""
    gradients = [d]
    for weight in reversed(network):
        gradients.append(dot(gradients[-1], weight.T))
    return gradients[::-1]


def weight_gradients(dot: Dot, inputs: list[Any], d: list[Any]) -> list[Any]:
    return [dot(x.T, behind) for x, behind in zip(inputs, d, strict=True)]


def critic_products(dot: Dot, networks: dict[str, Network], batch: Any) -> list[list[Any]]:
    """The matrix products of a critic update: no bias, no activation, no optimiser."""
    import jax.numpy as jnp

    s, a, following = batch
    next_a, _ = forward(dot, networks["target actor"], following)
    x, next_x = jnp.concatenate([s, a], axis=1), jnp.concatenate([following, next_a], axis=1)
    gradients = []
    for i in (1, 2):
        critic = networks[f"critic {i}"]
        target, _ = forward(dot, networks[f"target critic {i}"], next_x)
        q, inputs = forward(dot, critic, x)
        # Nothing asks for the gradient in front of the first layer.
        d = backward(dot, critic[1:], q - target)
        gradients.append(weight_gradients(dot, inputs, d))
    return gradients


def actor_products(dot: Dot, networks: dict[str, Network], batch: Any) -> list[Any]:
    """The matrix products of an actor update, through the first critic."""
    import jax.numpy as jnp

    s, _, _ = batch
    actor, critic = networks["actor"], networks["critic 1"]
    a, inputs = forward(dot, actor, s)
    q, _ = forward(dot, critic, jnp.concatenate([s, a], axis=1))
    d = backward(dot, actor[1:], backward(dot, critic, q)[0][:, OBSERVATIONS:])
    return weight_gradients(dot, inputs, d)


def products_of_a_round(dot: Dot, networks: dict[str, Network], batches: Any) -> Any:
    """Those of `DELAY` updates, the last with the actor."""
    each = [tuple(part[i] for part in batches) for i in range(DELAY)]
    critics = [critic_products(dot, networks, batch) for batch in each]
    return critics, actor_products(dot, networks, each[-1])


def random_networks(rng: np.random.Generator) -> dict[str, Network]:
    both = OBSERVATIONS + ACTIONS
    sizes = {"actor": (OBSERVATIONS, *HIDDEN, ACTIONS)}
    sizes |= {f"critic {i}": (both, *HIDDEN, 1) for i in (1, 2)}
    sizes |= {f"target {name}": layers for name, layers in sizes.items()}

    def weight(inputs: int, outputs: int) -> Any:
        return rng.standard_normal((inputs, outputs), dtype=np.float32) / np.float32(inputs**0.5)

    return {name: [*map(weight, layers, layers[1:])] for name, layers in sizes.items()}


def random_batches(rng: np.random.Generator, rounds: int) -> tuple[Any, ...]:
    """States, actions and following states."""
    widths = (OBSERVATIONS, ACTIONS, OBSERVATIONS)
    return tuple(
        rng.standard_normal((rounds, DELAY, BATCH, width), dtype=np.float32) for width in widths
    )


def gflop_per_update(networks: dict[str, Network], batches: Any) -> float:
    """Counted product by product."""
    import jax

    counted: list[int] = []

    def dot(x: Any, y: Any) -> Any:
        counted.append(2 * x.shape[0] * x.shape[1] * y.shape[1])
        return x @ y

    one_round = tuple(part[0] for part in batches)
    jax.eval_shape(partial(products_of_a_round, dot), networks, one_round)
    return sum(counted) / DELAY / 1e9


def limit() -> tuple[float, float, float]:
    """Updates per second if they were XLA's products only, GFLOP of an update, GFLOP/s at most."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    networks, batches = random_networks(rng), random_batches(rng, LIMIT_UPDATES // DELAY)

    one_round = partial(products_of_a_round, jnp.matmul)

    @jax.jit
    def run(networks: Any, batches: Any) -> Any:
        # What a round finds is carried to the next one: so it is needed, and overwritten.
        shapes = jax.eval_shape(one_round, networks, tuple(part[0] for part in batches))
        nothing = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
        return jax.lax.scan(lambda _, drawn: (one_round(networks, drawn), None), nothing, batches)

    given = jax.device_put((networks, batches))
    jax.block_until_ready(run(*given))
    seconds = min(
        seconds_of(lambda: jax.block_until_ready(run(*given))) for _ in range(LIMIT_CALLS)
    )
    return LIMIT_UPDATES / seconds, gflop_per_update(networks, batches), peak()


def peak() -> float:
    """GFLOP/s of all cores if nothing but the arithmetic took time.

    A product of the same row again and again, to the same place: it never leaves the nearest cache.
    """
    from mvpi.agents._native.kernels import aligned_zeros
    from mvpi.agents._native.matrix_products import PANEL, product

    rows, depth = 12_000, 256
    a, b, c = aligned_zeros(depth), aligned_zeros(depth * PANEL), aligned_zeros(PANEL)

    def run() -> None:
        product(rows, PANEL, a, 0, 0, 1, b, 0, PANEL, depth, c.copy(), 0, np.float32(0), c, 0, 0)

    run()
    seconds = min(seconds_of(run) for _ in range(LIMIT_CALLS))
    return 2e-9 * rows * PANEL * depth / seconds * len(os.sched_getaffinity(0))


def seconds_of(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


# Memory.


def memory(transitions: int, in_directory: bool) -> tuple[float, float]:
    """Growth of the resident memory, and of its part that is not a mapped file, in MB."""
    import psutil

    from mvpi.agents.replay import Replay

    process = psutil.Process()
    rng = np.random.default_rng(0)
    s, following = rng.standard_normal((2, OBSERVATIONS), dtype=np.float32)
    a = rng.standard_normal(ACTIONS, dtype=np.float32)
    before = process.memory_info()
    replay = Replay(transitions, OBSERVATIONS, ACTIONS, Path() if in_directory else None)
    for _ in range(transitions):
        replay.add(s, a, 1.0, False, following)
    after = process.memory_info()
    replay.close()
    resident, mapped = after.rss - before.rss, after.shared - before.shared
    return resident / 1e6, (resident - mapped) / 1e6


# Curves.


Curve = list[tuple[int, float]]
"""Steps, and the mean return of the evaluation after them."""


def curve(contestant: Contestant, seed: int, config: Config) -> Curve:
    """Learn and be evaluated, without exploration, every so many steps."""
    found: Curve = []

    def keep(steps: int, value: float) -> None:
        found.append((steps, value))
        print(f"  {contestant.name}, seed {seed}: {value:,.0f} after {steps:,} steps", flush=True)

    learn = our_curve if contestant.library == "mvpi" else peer_curve
    learn(contestant, seed, config, keep)
    return found


Keep = Callable[[int, float], None]


def our_curve(contestant: Contestant, seed: int, config: Config, keep: Keep) -> None:
    agent = ours(
        contestant,
        cheetah,
        seed,
        config.curve_random_steps,
        evaluation_every=config.curve_every,
        evaluation_episodes=config.curve_episodes,
    )
    agent.learn(config.curve_steps, on_row=lambda row: keep(row["steps"], row["return_mean"]))


def peer_curve(contestant: Contestant, seed: int, config: Config, keep: Keep) -> None:
    from stable_baselines3.common.callbacks import BaseCallback, EveryNTimesteps

    from mvpi import evaluate

    class Evaluate(BaseCallback):
        def _on_step(self) -> bool:
            # Other episodes at every evaluation, as ours.
            seen = evaluate(
                self.model, cheetah, config.curve_episodes, seed=self.num_timesteps + seed
            )
            keep(self.num_timesteps, seen.mean)
            return True

    model = peer(contestant, cheetah(), seed, config.curve_random_steps)
    model.learn(config.curve_steps, callback=EveryNTimesteps(config.curve_every, Evaluate()))


# Rows, and the file that keeps them.


@dataclass(frozen=True)
class Key:
    """What was measured."""

    part: str
    contestant: str
    cores: str
    repeat: int
    """The round, or the seed of a curve."""
    steps: int
    """Steps or updates timed, transitions stored, or steps learned."""
    measure: str


@dataclass(frozen=True)
class Row(Key):
    """One line of the CSV file."""

    value: float

    @property
    def key(self) -> Key:
        return Key(*(getattr(self, field.name) for field in fields(Key)))


class Rows:
    """All rows measured so far, in memory and in the file."""

    def __init__(self, path: Path):
        self._path = path
        self._values = {row.key: row.value for row in read_rows(path, Row)}

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Key) -> bool:
        return key in self._values

    def __getitem__(self, key: Key) -> float:
        return self._values[key]

    def add(self, rows: Iterable[Row]) -> None:
        new = list(rows)
        append_rows(self._path, new)
        self._values |= {row.key: row.value for row in new}

    def of(self, **fixed: Any) -> list[float]:
        """The values of all rows that have these fields."""
        return [
            value
            for key, value in self._values.items()
            if all(getattr(key, name) == wanted for name, wanted in fixed.items())
        ]

    def best(self, **fixed: Any) -> float:
        """The largest; not a number if there is none."""
        return max(self.of(**fixed), default=math.nan)


class Benchmark:
    """Measures what is missing in the file."""

    def __init__(self, config: Config, rows: Rows, console: Console):
        self.config, self.rows, self.console = config, rows, console

    def run(self) -> None:
        for repeat, cores in product(range(self.config.rounds), self.config.cores):
            if "limit" in self.config.parts:
                self._limit(cores, repeat)
            if "speed" in self.config.parts:
                for contestant in CONTESTANTS:
                    self._speed(contestant, cores, repeat)
        if "memory" in self.config.parts:
            self._memory(IN_MEMORY)
            self._memory(IN_DIRECTORY)
        if "curves" in self.config.parts:
            self._curves()

    def _speed(self, contestant: Contestant, cores: Cores, repeat: int) -> None:
        c = self.config
        key = Key("speed", contestant.name, cores, repeat, c.steps, "steps/s")
        job = partial(speed, contestant, c.random_steps, c.warm_up, c.steps)
        self._measure([key], cores, job)

    def _limit(self, cores: Cores, repeat: int) -> None:
        about = ("limit", LIMIT, cores, repeat, LIMIT_UPDATES)
        keys = [Key(*about, name) for name in ("updates/s", "GFLOP/update", "GFLOP/s")]
        self._measure(keys, cores, limit)

    def _memory(self, where: str) -> None:
        about = ("memory", where, "all", 0, self.config.transitions)
        keys = [Key(*about, "MB resident"), Key(*about, "MB unmapped")]
        self._measure(keys, "all", partial(memory, self.config.transitions, where == IN_DIRECTORY))

    def _measure(self, keys: list[Key], cores: Cores, job: Callable[[], Sequence[float]]) -> None:
        if all(key in self.rows for key in keys):
            return
        try:
            values = in_process(chosen(cores), job)
        except Failed as error:
            self._say(f"{keys[0].contestant}, cores {cores}: [red]{error}[/]; left out")
            return
        self._keep(Row(**asdict(key), value=v) for key, v in zip(keys, values, strict=True))

    def _curves(self) -> None:
        """Some at a time, each on a core of its own; a curve's rows are kept when it is done."""
        free: SimpleQueue[int] = SimpleQueue()
        cores = sorted(os.sched_getaffinity(0))[-self.config.processes :]
        for core in cores:
            free.put(core)
        missing = [
            (contestant, seed)
            for seed, contestant in product(range(self.config.seeds), CURVES)
            if not all(key in self.rows for key in curve_keys(contestant, seed, self.config))
        ]
        with ThreadPoolExecutor(len(cores)) as pool:
            runs = {pool.submit(self._curve, free, *which): which for which in missing}
            try:
                for run in as_completed(runs):
                    self._keep_curve(run, *runs[run])
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in active_children():
                    process.kill()
                raise

    def _keep_curve(self, run: Future[Curve], contestant: Contestant, seed: int) -> None:
        about = ("curves", contestant.name, "one", seed)
        try:
            self._keep(Row(*about, steps, RETURN, value) for steps, value in run.result())
        except Failed as error:
            self._say(f"{contestant.name}, seed {seed}: [red]{error}[/]; left out")

    def _curve(self, free: SimpleQueue[int], contestant: Contestant, seed: int) -> Curve:
        core = free.get()
        try:
            found: Curve = in_process({core}, partial(curve, contestant, seed, self.config))
        finally:
            free.put(core)
        return found

    def _keep(self, rows: Iterable[Row]) -> None:
        rows = list(rows)
        self.rows.add(rows)
        last = rows[-1]
        values = ", ".join(f"{row.value:,.4g} {row.measure}" for row in rows[:2])
        shown = values if last.part != "curves" else f"curve of {len(rows)} evaluations kept"
        self._say(f"{last.contestant:<22}{last.cores:>4}  {last.repeat:>2}  {shown}")

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False)


def curve_keys(contestant: Contestant, seed: int, config: Config) -> list[Key]:
    about = ("curves", contestant.name, "one", seed)
    return [Key(*about, steps, RETURN) for steps in evaluation_steps(config)]


def evaluation_steps(config: Config) -> range:
    return range(config.curve_every, config.curve_steps + 1, config.curve_every)


# Tables.


def new_table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left")
    for heading in texts:
        table.add_column(heading)
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table


def shown(value: float, form: str) -> str:
    return "-" if math.isnan(value) else format(value, form)


def fastest(rows: Rows, config: Config, contestant: Contestant, cores: Cores) -> float:
    """Steps per second, the best of the rounds."""
    name, steps = contestant.name, config.steps
    return rows.best(part="speed", contestant=name, cores=cores, steps=steps)


def speed_table(rows: Rows, config: Config) -> Table:
    title = f"Steps per second with one update each, {TASK.id}, best of the rounds"
    headings = ("rounds", "slowest", "best", "ms/step", "mvpi / it")
    table = new_table(title, ("cores", "agent"), headings)
    for cores in config.cores:
        best = fastest(rows, config, OURS, cores)
        for contestant in CONTESTANTS:
            name = contestant.name
            found = rows.of(part="speed", contestant=name, cores=cores, steps=config.steps)
            value = max(found, default=math.nan)
            table.add_row(
                cores if contestant is OURS else "",
                name,
                str(len(found)),
                shown(min(found, default=math.nan), ".1f"),
                shown(value, ".1f"),
                shown(1e3 / value, ".2f"),
                shown(best / value, ".2f"),
                style="bold" if contestant is OURS else None,
            )
        table.add_section()
    return table


def cost_table(rows: Rows, config: Config) -> Table:
    table = new_table("What a step costs more than that of mvpi at risk 0", ("",), config.cores)
    checkpoints = config.steps // CHECKPOINT_EVERY
    names = {
        RISKY: "risk 1",
        SAVING: f"a checkpoint every {CHECKPOINT_EVERY:,} steps ({checkpoints} while timed)",
    }
    for contestant, name in names.items():
        costs = (
            fastest(rows, config, OURS, cores) / fastest(rows, config, contestant, cores) - 1
            for cores in config.cores
        )
        table.add_row(name, *(shown(cost, "+.1%") for cost in costs))
    return table


def limit_table(rows: Rows, config: Config) -> Table:
    title = "Limits of updates, and what share of them our steps are"
    headings = ("GFLOP/s", "ms/update", "updates/s", "mvpi ms/step", "share")
    table = new_table(title, ("cores", "limit"), headings)
    for cores in config.cores:
        of_update, peak_rate, by_xla = (
            rows.best(part="limit", cores=cores, measure=measure)
            for measure in ("GFLOP/update", "GFLOP/s", "updates/s")
        )
        steps = fastest(rows, config, OURS, cores)
        for name, per_second in ((LIMIT, by_xla), ("arithmetic", peak_rate / of_update)):
            table.add_row(
                cores if name == LIMIT else "",
                name,
                shown(of_update * per_second, ".0f"),
                shown(1e3 / per_second, ".2f"),
                shown(per_second, ".1f"),
                shown(1e3 / steps, ".2f"),
                shown(steps / per_second, ".0%"),
            )
    table.caption = f"an update: {shown(of_update, '.3f')} GFLOP"
    return table


def memory_table(rows: Rows, config: Config) -> Table:
    title = f"Growth of memory by {config.transitions:,} transitions"
    table = new_table(title, ("",), ("resident", "without mapped files", "bytes/transition"))
    for where in (IN_MEMORY, IN_DIRECTORY):
        resident, unmapped = (
            rows.best(part="memory", contestant=where, steps=config.transitions, measure=measure)
            for measure in ("MB resident", "MB unmapped")
        )
        each = shown(1e6 * resident / config.transitions, ".0f")
        table.add_row(where, f"{shown(resident, '.1f')} MB", f"{shown(unmapped, '.1f')} MB", each)
    content = 4 * (2 * OBSERVATIONS + ACTIONS + 2)
    table.caption = f"the numbers themselves: {content} bytes a transition, as float32"
    return table


def complete_curves(rows: Rows, contestant: Contestant, config: Config) -> Array:
    """Returns, seeds x evaluations, of the seeds that have all evaluations."""
    wanted = [curve_keys(contestant, seed, config) for seed in range(config.seeds)]
    found = [[rows[key] for key in keys] for keys in wanted if all(key in rows for key in keys)]
    return np.array(found).reshape(len(found), len(evaluation_steps(config)))


def mean_and_error(values: Array) -> str:
    """Over the seeds, with the standard error of the mean."""
    if len(values) < 2:
        return shown(float(values.mean()) if len(values) else math.nan, ",.0f")
    return f"{values.mean():,.0f} +- {values.std(ddof=1) / math.sqrt(len(values)):,.0f}"


def curve_table(rows: Rows, config: Config) -> Table:
    curves = {contestant: complete_curves(rows, contestant, config) for contestant in CURVES}
    title = f"Mean return of {config.curve_episodes} episodes, {TASK.id}, +- standard error"
    headings = [f"{c.name} ({len(found)} seeds)" for c, found in curves.items()]
    table = new_table(title, (), ("steps", *headings))
    for i, steps in enumerate(evaluation_steps(config)):
        cells = (mean_and_error(found[:, i]) for found in curves.values())
        table.add_row(f"{steps:,}", *cells)
    table.add_section()
    areas = [found.mean(axis=1) for found in curves.values()]
    table.add_row("mean", *(mean_and_error(area) for area in areas))
    table.caption = comparison(*areas)
    return table


def comparison(own: Array, others: Array) -> str:
    """Whether the areas under the curves, as means over a curve, differ."""
    if min(len(own), len(others)) < 2:
        return "no comparison: it takes two seeds of each"
    low, high = bootstrap(own, others)
    centre = abs(float(others.mean()))
    same = low <= 0 <= high
    verdict = "statistically the same" if same else "NOT the same"
    return (
        f"Area under the curve, mvpi - {BASELINES.name}: {own.mean() - others.mean():+,.0f}, "
        f"95% interval {low:+,.0f} to {high:+,.0f} ({low / centre:+.0%} to {high / centre:+.0%} "
        f"of {BASELINES.name}): {verdict}. Bootstrap over {len(own)} and {len(others)} seeds; "
        "with so few the interval is rather too narrow, so it errs towards a difference."
    )


def bootstrap(own: Array, others: Array) -> tuple[float, float]:
    """95% interval of the difference of means, seeds drawn again in each sample."""
    rng = np.random.default_rng(0)
    means = [
        sample[rng.integers(len(sample), size=(RESAMPLES, len(sample)))].mean(axis=1)
        for sample in (own, others)
    ]
    low, high = np.quantile(means[0] - means[1], [0.025, 0.975])
    return float(low), float(high)


def environment() -> str:
    packages = ("jax", "numpy", "gymnasium", "mujoco", "stable_baselines3", "sbx-rl", "torch")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    return (
        f"{platform.machine()}, {cores} cores, load {load:.1f} at the start; "
        f"Python {platform.python_version()}, {versions}"
    )


TABLES: dict[Part, tuple[Callable[[Rows, Config], Table], ...]] = {
    "speed": (speed_table, cost_table),
    "limit": (limit_table,),
    "memory": (memory_table,),
    "curves": (curve_table,),
}


def main(config: Config) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    rows = Rows(config.out)
    console.print(environment(), highlight=False)
    if len(rows):
        console.print(f"{len(rows)} rows taken from {config.out}", highlight=False)
    Benchmark(config, rows, console).run()
    console.print()
    for part in config.parts:
        for table in TABLES[part]:
            console.print(table(rows, config))


if __name__ == "__main__":
    import tyro

    main(tyro.cli(Config, description=__doc__))
