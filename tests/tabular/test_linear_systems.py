"""Linear systems of chains: banded LU, Krylov methods and sparse LU against dense algebra."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from mvpi.tabular._engines.linear_systems import (
    Banded,
    GaussSeidelKrylov,
    SweepKrylov,
    bandwidths,
    has_few_successors,
    image,
    is_narrow,
    make_system,
)
from mvpi.tabular.examples import grid_world, inventory, random_sparse


def scaled_chain(mdp) -> csr_array:
    matrix = mdp.policy_matrix(np.zeros(mdp.n_states, np.int64))
    return csr_array((0.99 * matrix.data, matrix.indices, matrix.indptr), matrix.shape)


@pytest.mark.parametrize("make", [Banded, GaussSeidelKrylov, SweepKrylov])
@pytest.mark.parametrize(
    "mdp", [random_sparse(90), inventory(90), grid_world(9, seed=1)], ids=["random", "inv", "grid"]
)
def test_every_system_solves_its_equation(make, mdp):
    b = scaled_chain(mdp)
    n = b.shape[0]
    system = Banded(b, np.arange(n), bandwidths(b)) if make is Banded else make(b)
    right = np.random.default_rng(0).normal(size=n)
    exact = np.linalg.solve(np.eye(n) - b.toarray(), right)
    np.testing.assert_allclose(system.solve(right, 1e-11), exact, atol=1e-8)
    np.testing.assert_allclose(system.solve_directly(right), exact, atol=1e-10)
    np.testing.assert_allclose(image(b, 1.0, exact), right, atol=1e-11)


def test_the_choice_of_a_system_follows_the_pattern():
    band, grid, random = map(
        scaled_chain, (inventory(300), grid_world(100), random_sparse(300, 2, 9))
    )
    assert is_narrow(bandwidths(band))
    assert isinstance(make_system(band), Banded)
    assert has_few_successors(grid)
    assert isinstance(make_system(grid), SweepKrylov)
    assert isinstance(make_system(random), GaussSeidelKrylov)
    assert isinstance(make_system(grid, bordered=True), GaussSeidelKrylov)
    assert not isinstance(make_system(band, evaluation="krylov"), Banded)
