"""Two agents on one task: the risk-neutral one takes the gamble, the risk-averse one does not.

Run it with `make run`, or `python examples/risky_pendulum.py [--seed 3] [--out DIRECTORY]`. It
trains both at once, a core each, in run directories: a second call finds them finished. Then it
compares them over 100 episodes and saves a picture.

On mvpi/RiskyPendulum-v0 a pole is to be balanced for 500 steps. Every step pays 1; to the right
of x = 0.01 it pays 1.3 on average, with a standard deviation of 1.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn
from rich.table import Table

import mvpi
from mvpi.envs import Task

ENV = "mvpi/RiskyPendulum-v0"
THRESHOLD = 0.01
STEPS = 100_000
AGENTS = {"risk-neutral": 0.0, "risk-averse": 1.0}
COLORS = {"risk-neutral": "tab:red", "risk-averse": "tab:blue"}


def start(risk: float, seed: int, out: Path, core: int) -> subprocess.Popen[str]:
    """`mvpi train` in a process of its own, on one core."""
    command = [sys.executable, "-m", "mvpi", "train", "td3", "--env", ENV, "--json"]
    command += ["--risk", str(risk), "--seed", str(seed), "--steps", str(STEPS), "--out", str(out)]
    command += ["--hidden", "64", "64", "--learning-starts", "2000", "--gamma", "0.95"]
    command += ["--batch-size", "256", "--averaging", "1000"]
    command += ["--evaluation-every", "2000", "--evaluation-episodes", "5"]
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[core % len(cores)]})  # a child inherits it
    try:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, text=True)
    finally:
        os.sched_setaffinity(0, cores)


def train(seed: int, out: Path, console: Console) -> dict[str, Path]:
    """Both agents, side by side; returns their run directories."""
    runs = {name: out / f"pendulum-{name}-seed-{seed}" for name in AGENTS}
    processes = {
        name: start(risk, seed, runs[name], core)
        for core, (name, risk) in enumerate(AGENTS.items())
    }
    columns = "{task.description}", BarColumn(), TaskProgressColumn(), "{task.fields[now]}"
    told = time.monotonic()
    with Progress(*columns, TimeRemainingColumn(), console=console) as bars:
        tasks = {name: bars.add_task(name, total=STEPS, now="starting") for name in AGENTS}
        while any(process.poll() is None for process in processes.values()):
            time.sleep(0.3)
            for name, task in tasks.items():
                steps, now = progress(runs[name])
                bars.update(task, completed=steps, now=now)
            if not console.is_terminal and time.monotonic() - told > 5:  # a log has no bars
                told = time.monotonic()
                lines = [f"{name} {progress(run)[0]:,} steps" for name, run in runs.items()]
                console.print(", ".join(lines))
    if any(process.returncode != 0 for process in processes.values()):
        sys.exit("training failed")
    return runs


def progress(run: Path) -> tuple[int, str]:
    """Steps made so far, and what the last evaluation gave."""
    metrics = run / "metrics.csv"
    lines = metrics.read_text(encoding="utf-8").splitlines() if metrics.exists() else []
    rows = [line.split(",") for line in lines if line.count(",") == lines[0].count(",")]
    if len(rows) < 2:
        return 0, "starting"
    row = dict(zip(rows[0], rows[-1], strict=True))
    mean, deviation = float(row["return_mean"]), float(row["return_variance"]) ** 0.5
    return int(row["steps"]), f"return {mean:.0f} ± {deviation:.0f}"


def positions(agent: mvpi.TD3, seed: int = 0) -> np.ndarray:
    """Where the cart is during an episode."""
    env = Task(ENV)()
    observation, _ = env.reset(seed=seed)
    path, done = [float(observation[0])], False
    while not done:
        observation, _, terminated, truncated, _ = env.step(agent.predict(observation))
        path.append(float(observation[0]))
        done = terminated or truncated
    return np.array(path)


def compare(agents: dict[str, mvpi.TD3], shown: dict[str, mvpi.Evaluation]) -> Table:
    """A row an agent: what it earns, how unsteadily, and how often it gambles."""
    table = Table("", "mean return", "std. dev.", "worst", "per-step variance", "time in the zone")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, result in shown.items():
        inside = float((positions(agents[name]) > THRESHOLD).mean())
        numbers = f"{result.mean:.1f}", f"{result.deviation:.1f}", f"{result.worst:.1f}"
        table.add_row(name, *numbers, f"{result.reward_variance:.3f}", f"{inside:.0%}")
    return table


def draw(agents: dict[str, mvpi.TD3], shown: dict[str, mvpi.Evaluation], path: Path) -> None:
    """Left, where the cart goes; right, what the episodes earn."""
    left, right = (figure := Figure(figsize=(11, 4.2), layout="constrained")).subplots(1, 2)
    paths = {name: positions(agent) for name, agent in agents.items()}
    top = max(THRESHOLD + 0.1, 1.1 * max(float(p.max()) for p in paths.values()))
    left.axhspan(THRESHOLD, top, color="tab:orange", alpha=0.15, label="1.3 ± 1 a step")
    for name, p in paths.items():
        left.plot(p, color=COLORS[name], label=name)
    left.set(xlabel="step of an episode", ylabel="position of the cart", title="Where they go")
    left.set_ylim(top=top)
    left.legend(fontsize="small")
    every = np.concatenate([result.returns for result in shown.values()])
    bins = np.linspace(every.min(), every.max() + 1e-9, 41)
    for name, result in shown.items():
        right.hist(result.returns, bins, color=COLORS[name], alpha=0.7, label=name)
    right.set(xlabel="return of an episode", ylabel="episodes of 100", title="What they earn")
    right.legend(fontsize="small")
    for axes in (left, right):
        axes.grid(alpha=0.25)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out"))
    arguments = parser.parse_args()
    console = Console(highlight=False)
    console.rule(f"[bold]risky pendulum[/bold]: {STEPS:,} steps of MVPI-TD3, risk aversion 0 and 1")
    runs = train(arguments.seed, arguments.out, console)
    agents = {name: mvpi.load(run) for name, run in runs.items()}
    shown = {}
    for name, agent in agents.items():
        console.print(f"100 episodes of the {name} agent ...")
        shown[name] = mvpi.evaluate(agent, episodes=100)
    console.print(compare(agents, shown))
    neutral, averse = shown["risk-neutral"], shown["risk-averse"]
    console.print(
        f"Risk aversion took the standard deviation of the return from {neutral.deviation:.1f} to "
        f"{averse.deviation:.1f}; the mean return from {neutral.mean:.1f} to {averse.mean:.1f}."
    )
    picture = arguments.out / f"risky-pendulum-seed-{arguments.seed}.png"
    draw(agents, shown, picture)
    console.print(f"picture: {picture}")


if __name__ == "__main__":
    main()
