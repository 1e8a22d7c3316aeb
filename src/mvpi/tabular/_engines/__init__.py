"""Strategies and linear algebra of risk-neutral solves; not for users.

methods                     the choice among the strategies below, by name or by the problem
modified_policy_iteration   fixed-point steps as evaluation
ordered_sweeps              windowed Gauss-Seidel sweeps in breadth-first order
policy_iteration            evaluation by a linear system, direct or Krylov; average reward
local_policy_iteration      policy iteration in a window of neighbouring states
banded, krylov, linear_systems, backups and the compiled `*kernels`: the algebra beneath
"""
