"""Strategies and linear algebra of risk-neutral solves; not for users.

methods                     the choice among the strategies below, by name or by the problem
ordered_sweeps              windowed Gauss-Seidel sweeps in breadth-first order
policy_iteration            evaluation by fixed-point steps or a linear system; average reward
local_policy_iteration      policy iteration in a window of neighbouring states
linear_systems, fixed_point, sweeps, backups and the compiled `*kernels`: the algebra beneath
"""
