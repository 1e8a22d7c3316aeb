"""`y` on a stream of rewards, and rewards augmented with it: for training loops of any library."""

from mvpi.augmenter.augmenter import Augmenter, augment
from mvpi.augmenter.reward_window import RewardWindow, weighed

__all__ = ["Augmenter", "RewardWindow", "augment", "weighed"]
