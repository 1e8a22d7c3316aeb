"""Products in registers against numpy's, and the kernels made of them: threads, padding, files."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numba
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvpi._compiled import without_and_with_threads
from mvpi.agents import td3
from mvpi.agents._engines import JaxUpdates
from mvpi.agents._native.kernels import adam, aligned_zeros
from mvpi.agents._native.matrix_products import LANES, PANEL, product, product_with_transposed
from mvpi.agents._native.update import NativeUpdates
from mvpi.agents.settings import TD3Settings

Matrix = npt.NDArray[np.float32]
ANY = np.float32(-np.inf)
sizes = st.integers(1, 3 * PANEL + 1)


def padded(matrix: Matrix) -> Matrix:
    """The matrix with columns of zeros up to the end of a register."""
    rows, columns = matrix.shape
    wide = np.zeros((rows, -(-columns // LANES) * LANES), np.float32)
    wide[:, :columns] = matrix
    return wide


@settings(max_examples=60, deadline=None)
@given(sizes, sizes, sizes, st.booleans(), st.booleans(), st.integers(0, 2**32 - 1))
def test_products_are_those_of_numpy(
    m: int, n: int, depth: int, turned: bool, relu: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(s, dtype=np.float32) for s in ((m, depth), (depth, n)))
    start = rng.standard_normal((1, n), dtype=np.float32)
    wide, stored = padded(b), np.ascontiguousarray(a.T if turned else a)
    c = np.full((m + 1, wide.shape[1]), 7.0, np.float32)
    row, step = (1, m) if turned else (depth, 1)
    product(
        m, wide.shape[1], stored.reshape(-1), 0, row, step, wide.reshape(-1), 0, wide.shape[1],
        depth, padded(start).reshape(-1), 0, np.float32(0.0) if relu else ANY,
        c.reshape(-1), 0, wide.shape[1],
    )  # fmt: skip
    exact = start + a.astype(np.float64) @ b
    np.testing.assert_allclose(c[:m, :n], np.maximum(exact, 0) if relu else exact, atol=2e-4)
    assert (c[:m, n:] == 0).all()
    assert (c[m] == 7).all()  # nothing beyond the last row


@settings(max_examples=60, deadline=None)
@given(sizes, sizes, sizes, st.integers(0, 2**32 - 1))
def test_products_with_a_transposed_matrix(m: int, n: int, depth: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(s, dtype=np.float32) for s in ((m, depth), (n, depth)))
    width = -(-n // LANES) * LANES
    c = np.full((m + 1, width), 7.0, np.float32)
    panel, zeros = np.full(depth * PANEL, np.nan, np.float32), np.zeros(PANEL, np.float32)
    product_with_transposed(
        m, n, a.reshape(-1), 0, depth, b.reshape(-1), 0, depth, depth,
        panel, zeros, c.reshape(-1), 0, width,
    )  # fmt: skip
    np.testing.assert_allclose(c[:m, :n], a.astype(np.float64) @ b.T, atol=2e-4)
    assert (c[:m, n:] == 0).all()
    assert (c[m] == 7).all()


def test_a_nan_gets_through_a_layer() -> None:
    a, c = np.array([np.nan], np.float32), np.zeros(LANES, np.float32)
    ones, zeros = np.ones(LANES, np.float32), np.zeros(LANES, np.float32)
    product(1, LANES, a, 0, 1, 1, ones, 0, LANES, 1, zeros, 0, np.float32(0.0), c, 0, LANES)
    assert np.isnan(c).all()


def test_arrays_begin_at_lines_of_the_cache() -> None:
    for shape in ((1,), (3, 32), (1000,)):
        array = aligned_zeros(*shape)
        assert array.ctypes.data % 64 == 0
        assert array.shape == shape


def test_fading_moments_of_adam_become_zero_and_nan_stays() -> None:
    """Numbers below 1e-38 take a processor much longer; units that died would leave them behind."""
    theta, gradient, mean, square = (np.full(50, x, np.float32) for x in (1, 0, 1e-3, 1e-3))
    gradient[7] = np.nan
    for count in range(1, 2_000):
        adam(theta, gradient, mean, square, 1e-3, count)
    others = np.arange(50) != 7
    assert (mean[others] == 0).all()
    assert (square[others] > 0).all()
    assert np.isnan(theta[7])
    for count in range(2_000, 100_000):
        adam(theta, gradient, mean, square, 1e-3, count)
    assert (square[others] == 0).all()


class Problem:
    """Batches for networks of any size."""

    def __init__(self, seen: int, actions: int, seed: int = 0, **given: object) -> None:
        self.settings = replace(TD3Settings(policy_delay=2, tau=0.1), **given)
        self.rng = np.random.default_rng(seed)
        self.net = td3.initial_networks(self.rng, seen, actions, self.settings)
        batch = (4, self.settings.batch_size)
        self.rows = self.rng.standard_normal((*batch, 2 * seen + actions + 2), dtype=np.float32)
        self.noise = self.rng.uniform(-0.5, 0.5, (*batch, actions)).astype(np.float32)

    def after(self, update: td3.Updates, rate: float | None = None) -> list[Matrix]:
        """All parameters and moments after some updates."""
        update(self.rows, self.noise, None, rate)
        return [np.asarray(leaf) for leaf in jax.tree.leaves(update.networks)]


@pytest.mark.parametrize(
    ("seen", "hidden", "actions", "batch"),
    [
        (1, (1,), 1, 1),
        (3, (40, 30), LANES + 1, 13),
        (20, (17, 33, 5), 6, 64),
        (5, (LANES, 2 * PANEL + 1), 3, 100),
    ],
)
def test_networks_of_any_size_are_updated_as_by_jax(
    seen: int, hidden: tuple[int, ...], actions: int, batch: int
) -> None:
    problem = Problem(seen, actions, hidden=hidden, batch_size=batch)
    native = problem.after(NativeUpdates(problem.net, problem.settings))
    by_jax = problem.after(JaxUpdates(problem.net, problem.settings, td3.update))
    for ours, theirs in zip(native, by_jax, strict=True):
        assert ours.shape == theirs.shape
        # A step of Adam is as long for a slope of 1e-9, whose sign is rounding, as for one of 1.
        close = np.isclose(ours, theirs, rtol=1e-3, atol=1e-5)
        assert close.mean() > 0.98
        np.testing.assert_allclose(ours, theirs, atol=1e-2)


def test_a_share_of_the_learning_rate_is_a_smaller_learning_rate() -> None:
    problem = Problem(5, 3, hidden=(20,), batch_size=13, learning_rate=1e-3)
    quarter = replace(problem.settings, learning_rate=0.25e-3)
    expected = problem.after(NativeUpdates(problem.net, quarter))
    native = problem.after(NativeUpdates(problem.net, problem.settings), 0.25)
    by_jax = problem.after(JaxUpdates(problem.net, problem.settings, td3.update), 0.25)
    for ours, theirs, wanted in zip(native, by_jax, expected, strict=True):
        np.testing.assert_array_equal(ours, wanted)
        np.testing.assert_allclose(theirs, wanted, atol=2e-3)


def test_the_learning_rate_falls_linearly_to_a_fiftieth() -> None:
    settings = TD3Settings(decay_steps=1_000)
    assert [settings.rate_after(n) for n in (0, 500, 990, 5_000)] == [1.0, 0.5, 0.02, 0.02]
    assert TD3Settings().rate_after(500) is None


@pytest.mark.slow
@pytest.mark.parametrize("threads", [2, 3, 4])
def test_updates_do_not_depend_on_the_number_of_threads(threads: int) -> None:
    problem = Problem(5, 3, hidden=(50, 20), batch_size=37)
    one, several = (
        problem.after(NativeUpdates(problem.net, problem.settings, n)) for n in (1, threads)
    )
    for x, y in zip(one, several, strict=True):
        np.testing.assert_array_equal(x, y)


def test_large_networks_get_the_threads_there_are() -> None:
    large, small = (Problem(17, 6, hidden=h) for h in ((400, 300), (64, 64)))
    expected = min(numba.get_num_threads(), 4)
    assert NativeUpdates(large.net, large.settings).threads == expected
    assert NativeUpdates(small.net, small.settings).threads == 1


def test_networks_leave_as_they_came() -> None:
    problem = Problem(5, 3, hidden=(50, 20), averaging=3)
    net = problem.net
    for ours, given_ in zip(
        jax.tree.leaves(NativeUpdates(net, problem.settings).networks),
        jax.tree.leaves(net),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, given_)


@pytest.mark.slow
def test_the_cache_keeps_what_is_compiled_with_and_without_threads_apart(tmp_path: Path) -> None:
    """numba would take one for the other: large problems on one thread, or small ones on many."""
    (tmp_path / "victim.py").write_text(
        "import numpy as np\n"
        "from numba import prange\n"
        "from mvpi._compiled import without_and_with_threads\n"
        "def total(x):\n"
        "    y = np.zeros(2)\n"
        "    for i in prange(2):\n"
        "        y[i] = x[i]\n"
        "    return y\n"
        "one, two = without_and_with_threads(total)\n"
        "for function in (one, two):\n"
        "    function(np.ones(2))\n"
        "    print(sum(function.stats.cache_hits.values()))\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "victim.py"]

    def hits() -> list[str]:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    assert hits() == ["0", "0"]
    assert hits() == ["1", "1"]


def test_without_a_place_to_keep_it_code_is_compiled_all_the_same() -> None:
    """As in a container that is read-only; here because the function comes from no file."""
    made: dict[str, Any] = {}
    exec("def total(x):\n    return x.sum()", made)
    for function in without_and_with_threads(made["total"]):
        assert function(np.ones(3)) == 3


def test_threads_sleep_while_they_wait_and_the_environment_is_left_alone() -> None:
    program = "import os, mvpi._compiled as c; c.start_threads(); print(*os.environ)"
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    environment |= {"OMP_DISPLAY_ENV": "verbose", "NUMBA_THREADING_LAYER": "omp"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert "GOMP_SPINCOUNT = '0'" in done.stderr
    assert "OMP_WAIT_POLICY" not in done.stdout
