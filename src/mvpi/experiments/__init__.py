"""Experiments: what to run, and the results on disk; on this machine or on a Ray cluster."""

from mvpi.experiments.cluster import RayRunner
from mvpi.experiments.experiment import Experiment
from mvpi.experiments.local import LocalRunner
from mvpi.experiments.outcome import Outcome
from mvpi.experiments.runner import Event, Runner

__all__ = ["Event", "Experiment", "LocalRunner", "Outcome", "RayRunner", "Runner"]
