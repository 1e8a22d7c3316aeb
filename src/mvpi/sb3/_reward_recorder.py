"""What the environments of an on-policy algorithm gave, before Stable-Baselines3 changes it."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnvWrapper

from mvpi.sb3._buffers import EpisodeClock, Rewards, terminated


class RewardRecorder(VecEnvWrapper):
    """Keeps what the environments gave, which SB3 changes in place at a time limit."""

    recording = False

    def begin(self, clock: EpisodeClock | None) -> None:
        """Record steps from now on, with their times by this clock if there is one."""
        self.recording = True
        self._clock = clock
        self.rewards: list[Rewards] = []
        self.terminated: list[list[bool]] = []
        self.dones: list[list[bool]] = []
        self._times: list[list[int]] = []

    def end(self) -> None:
        """Record no more."""
        self.times()
        self.recording = False

    def times(self) -> list[list[int]]:
        """Of all steps so far, by the clock."""
        if self._clock is not None:
            for ended in self.dones[len(self._times) :]:
                self._times.append(self._clock.step(ended))
        return self._times

    def reset(self) -> Any:
        return self.venv.reset()

    def step(self, actions: Any) -> Any:
        return self._recorded(self.venv.step(actions))

    def step_wait(self) -> Any:
        return self._recorded(self.venv.step_wait())

    def _recorded(self, step: Any) -> Any:
        if self.recording:
            _, rewards, dones, infos = step
            ended = np.asarray(dones, np.bool_).tolist()
            self.rewards.append(rewards.copy())
            self.terminated.append(terminated(ended, infos) if True in ended else ended)
            self.dones.append(ended)
        return step
