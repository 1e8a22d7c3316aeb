"""The moment polytope: supporting lines, outlines and vertices against enumeration."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest
from helpers.problems import random_problem

from mvpi.tabular._objectives import LeastVariance, Tradeoff
from mvpi.tabular._step_problem import StepProblem
from mvpi.tabular._vertex_search import VertexSearch
from mvpi.tabular._vertices import Interval, Line, Point, Units, Vertex, outline, unit


def vertex(m: float, q: float) -> Vertex:
    return Vertex(Point(m, q), np.zeros(1, np.int64), (np.zeros(1), np.zeros(1)))


def test_two_lines_meet_where_both_are_tight():
    one, other = Line(0.0, 1.0, -1.0), Line(1.0, 1.0, 0.0)  # q >= 1 and q >= m
    assert one.meet(other) == 1.0
    assert one.meet(Line(0.0, 2.0, 5.0)) is None
    assert one.excess(Point(3.0, 0.5)) == 0.5


def test_an_outline_is_the_maximum_of_its_lines():
    lines = [Line(*unit(slope), 0.0) for slope in (-1.0, 0.0, 2.0)]  # q >= slope m
    points = outline(lines, -3.0, 3.0)
    assert [round(p.m, 12) for p in points] == [-3.0, 0.0, 3.0]
    assert [p.q for p in points] == pytest.approx([3.0, 0.0, 6.0], abs=1e-12)


def test_a_line_bounds_the_same_points_in_other_units():
    line, own, other = Line(*unit(0.7), 0.3), Units(1.0, 2.0), Units(-3.0, 0.5)
    seen = line.in_units(own, other, reach=10.0)
    for r in (-2.0, 0.0, 1.5):
        points = [
            Point((r - u.centre) / u.scale, ((r - u.centre) / u.scale) ** 2) for u in (own, other)
        ]
        signs = [
            math.copysign(1.0, one.excess(p)) for one, p in zip((line, seen), points, strict=True)
        ]
        assert signs[0] == signs[1]


def test_the_depth_of_an_interval_is_that_of_its_apex():
    lines = Line(*unit(-1.0), 0.0), Line(*unit(1.0), 0.0)  # they meet at (0, 0)
    interval = Interval(vertex(-1.0, 1.0), vertex(1.0, 1.0), lines)
    assert interval.depth() == pytest.approx(1.0, abs=1e-12)
    assert interval.chord().excess(Point(0.0, 1.0)) == pytest.approx(0.0, abs=1e-15)
    left, right = interval.with_line(Line(0.0, 1.0, -0.5)).split(
        vertex(0.0, 0.5), Line(0.0, 1.0, -0.5), 1e-9
    )
    assert (left.right.point, right.left.point) == (Point(0.0, 0.5), Point(0.0, 0.5))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_the_search_finds_the_best_of_all_policies(seed, discount):
    mdp = random_problem(seed, 4, 3, discount).mdp()
    search = VertexSearch(StepProblem(mdp), np.zeros(4, np.int64), 1e-9)
    search.begin_at_least_variance()
    least = search.answer(LeastVariance(), 1e-9)
    tradeoff = search.answer(Tradeoff(0.8), 1e-9)
    points = []
    for policy in product(range(3), repeat=4):
        rewards, weights = mdp.reward_distribution(mdp.occupancy(np.array(policy)))
        scaled = (rewards - search.centre) / search.scale
        points.append(Point(float(scaled @ weights), float(scaled**2 @ weights)))
    best = max(Tradeoff(0.8).at(p) for p in points)
    assert -least.best == pytest.approx(min(p.variance for p in points), abs=1e-8)
    assert tradeoff.best <= best + 1e-8 <= tradeoff.bound + 2e-8
    assert tradeoff.best == pytest.approx(best, abs=1e-8)
    for line in search.lines:
        assert max(line.excess(p) for p in points) <= 1e-9
    means = [v.point.m for v in search.vertices()]
    assert all(a <= b for a, b in pairwise(means))
