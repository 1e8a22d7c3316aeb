"""Modified policy iteration (Puterman, section 6.5).

    v  <-  v + sum_{k <= m} (g P_pi)^k (T v - v),      pi greedy for v

Used first wherever transitions are not banded: chains that mix fast, and dense ones. The order `m`
is adaptive: steps end when their terms span a third of the residual (a hundredth where states have
few successors), and go on while terms shrink very fast. Where that takes too many steps, the next
strategy is used.
"""

from __future__ import annotations

from mvpi.tabular._engines.linear_systems import Evaluation, has_few_successors
from mvpi.tabular._engines.policy_iteration import chain_of
from mvpi.tabular._engines.strategy import Iterate
from mvpi.tabular._matrices import NotUnichain
from mvpi.tabular.chain import DIRECT_UP_TO

_COARSE = 0.3
"""Span of the terms at which fixed-point steps end, as a share of the residual."""


class ModifiedPolicyIteration:
    def __init__(self) -> None:
        self._mixes_fast = True

    def improve(self, iterate: Iterate) -> bool:
        if not self._mixes_fast:
            return False
        mdp, target = iterate.mdp, iterate.target
        coarse = iterate.changed > 0 and not has_few_successors(mdp.transitions)
        if coarse:
            target = max(target, _COARSE * iterate.span)
        try:
            small = mdp.n_states <= DIRECT_UP_TO
            evaluation: Evaluation = "krylov" if small else "auto"
            chain = iterate.chain or chain_of(mdp, iterate.policy, evaluation)
        except NotUnichain:
            return False
        correction = chain.value_correction(iterate.residual, target, limit=0, beyond=coarse)
        iterate.values += correction
        iterate.chain, self._mixes_fast = chain, not chain.mixes_slowly
        return True
