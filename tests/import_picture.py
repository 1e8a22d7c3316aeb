"""The picture of the import graph: packages in layers, arrows to what is imported.

An arrow that follows from others is left out; one that does not point down is red. The places
within a layer are searched for: no arrow may pass through a box, and few may cross.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path

import matplotlib as mpl
from import_graph import LAYERS, is_upward
from PIL import Image

Edge = tuple[str, str]
Point = tuple[float, float]

_COLUMNS, _ROW, _WIDTH, _HEIGHT = 6, 1.0, 0.86, 0.42
_TRIES, _RESTARTS = 1_500, 20
_EDGES = "Description"
"""The field of the picture's file that lists its arrows, so that a test can compare them."""


def reduced(edges: Iterable[Edge]) -> list[Edge]:
    """The edges that do not follow from others."""
    known = set(edges)
    after: dict[str, set[str]] = {}
    for name, other in known:
        after.setdefault(name, set()).add(other)

    def reaches(start: str, end: str) -> bool:
        return any(other == end or reaches(other, end) for other in after.get(start, ()))

    return sorted(
        (name, other)
        for name, other in known
        if not any(reaches(between, other) for between in after[name] - {other})
    )


def places(edges: list[Edge], used: set[str]) -> dict[str, Point]:
    """A place for every package: rows are the layers, columns are searched for."""
    found = []
    for seed in range(_RESTARTS):
        found.append(_searched(edges, used, random.Random(seed)))
        if not hits(found[-1], edges):
            return found[-1]
    return min(found, key=lambda at: len(hits(at, edges)))


def _searched(edges: list[Edge], used: set[str], rng: random.Random) -> dict[str, Point]:
    """Places that no change of a single row makes better, among those that were tried."""
    rows = [row for row in ([name for name in layer if name in used] for layer in LAYERS) if row]

    def fresh(level: int) -> dict[str, Point]:
        columns = rng.sample(range(_COLUMNS), len(rows[level]))
        middle = (_COLUMNS - 1) / 2
        return {
            name: (column - middle, level * _ROW)
            for name, column in zip(rows[level], columns, strict=True)
        }

    best = {name: place for level in range(len(rows)) for name, place in fresh(level).items()}
    cost = _cost(best, edges)
    for _ in range(_TRIES):
        tried = best | fresh(rng.randrange(len(rows)))
        now = _cost(tried, edges)
        if now <= cost:
            best, cost = tried, now
    return best


def hits(at: Mapping[str, Point], edges: list[Edge]) -> list[tuple[Edge, str]]:
    """Arrows that pass through a box which is at neither end."""
    return [
        (edge, name)
        for edge in edges
        for name, (x, y) in at.items()
        if name not in edge and at[edge[1]][1] <= y <= at[edge[0]][1]
        if _near(at, edge, x, y)
    ]


def _near(at: Mapping[str, Point], edge: Edge, x: float, y: float) -> bool:
    """Whether an arrow comes close to the box at a place, anywhere along its height."""
    bottom, top = at[edge[1]][1], at[edge[0]][1]
    if bottom == top:
        return min(at[edge[0]][0], at[edge[1]][0]) < x < max(at[edge[0]][0], at[edge[1]][0])
    rims = (y + side * (_HEIGHT / 2 + 0.05) for side in (-1, 1))
    ends = sorted(_across(at, edge, min(max(rim, bottom), top)) for rim in rims)
    return ends[0] < x + _WIDTH / 2 + 0.04 and ends[1] > x - _WIDTH / 2 - 0.04


def _across(at: Mapping[str, Point], edge: Edge, y: float) -> float:
    (x0, y0), (x1, y1) = at[edge[0]], at[edge[1]]
    return x0 + (x1 - x0) * (y - y0) / (y1 - y0)


def _cost(at: Mapping[str, Point], edges: list[Edge]) -> float:
    crossings = sum(_crossing(at, a, b) for a, b in combinations(edges, 2))
    length = sum(abs(at[name][0] - at[other][0]) for name, other in edges)
    return 20.0 * len(hits(at, edges)) + 2.0 * crossings + 0.3 * length


def _crossing(at: Mapping[str, Point], a: Edge, b: Edge) -> bool:
    low = max(at[a[1]][1], at[b[1]][1])
    high = min(at[a[0]][1], at[b[0]][1])
    if low >= high:
        return False
    below = _across(at, a, low) - _across(at, b, low)
    above = _across(at, a, high) - _across(at, b, high)
    return below * above < -1e-9 or (abs(below) < 1e-9 and low != at[a[1]][1])


def is_current(counts: Mapping[Edge, int], picture: Path) -> bool:
    """Whether a picture that `draw` made has the arrows of these imports."""
    with Image.open(picture) as image:
        return image.info.get(_EDGES) == _listed(reduced(counts))


def _listed(edges: list[Edge]) -> str:
    return ", ".join(f"{name} imports {other}" for name, other in edges)


def draw(counts: Mapping[Edge, int], target: Path) -> None:
    """Draw the packages and their imports as a PNG."""
    mpl.use("agg")
    from matplotlib import pyplot as plt
    from matplotlib.patches import FancyBboxPatch

    edges = reduced(counts)
    at = places(edges, {name for edge in counts for name in edge})
    height = 1 + max(y for _, y in at.values())
    figure, axes = plt.subplots(figsize=(9, 0.78 * height))
    for name, (x, y) in at.items():
        private = name.startswith("_")
        box = FancyBboxPatch(
            (x - _WIDTH / 2, y - _HEIGHT / 2),
            _WIDTH,
            _HEIGHT,
            boxstyle="round,pad=0,rounding_size=0.08",
            facecolor="#eeeeee" if private else "#dbe9f6",
            edgecolor="#777777" if private else "#2b6ca3",
            zorder=2,
        )
        axes.add_patch(box)
        axes.text(x, y, name, ha="center", va="center", fontsize=8.5, zorder=3)
    for name, other in edges:
        axes.annotate(
            "",
            xy=_rim(at[other], at[name]),
            xytext=_rim(at[name], at[other]),
            arrowprops={
                "arrowstyle": "-|>",
                "color": "#c0392b" if is_upward(name, other) else "#555555",
                "shrinkA": 0,
                "shrinkB": 0,
            },
            zorder=1,
        )
    axes.set_xlim(-_COLUMNS / 2, _COLUMNS / 2)
    axes.set_ylim(-0.5, height - 0.5)
    axes.set_axis_off()
    facts = {"Software": None, _EDGES: _listed(edges)}
    figure.savefig(target, dpi=110, bbox_inches="tight", metadata=facts)
    plt.close(figure)


def _rim(box: Point, towards: Point) -> Point:
    """Where the line from the middle of a box leaves it."""
    dx, dy = towards[0] - box[0], towards[1] - box[1]
    share = min(_WIDTH / 2 / abs(dx) if dx else 9.0, _HEIGHT / 2 / abs(dy) if dy else 9.0)
    return box[0] + share * dx, box[1] + share * dy
