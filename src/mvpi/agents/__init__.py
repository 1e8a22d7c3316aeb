"""Agents that learn: each algorithm in its own file, what they share beside it."""
