"""Risk aversion for algorithms of Ray RLlib (new API stack), on one machine or a cluster.

    config = risk_averse(PPOConfig().environment(...), risk=1.0)    an ordinary PPOConfig
    algorithm = config.build_algo()                                 an ordinary PPO

For PPO, APPO, IMPALA, SAC and DQN. How the rewards flow:

    env runners    report the raw rewards they sampled, beside RLlib's own metrics   _runner.py
    driver         one `Augmenter` observes them; `y` goes to all learners           _driver.py
    learners       a connector augments episodes with that `y`, before advantages    _connector.py

Replay buffers, episode returns and all of RLlib's own metrics stay raw. Sums over n steps, which
RLlib forms while it draws, are formed again from augmented rewards: _replay.py.
"""

from mvpi.errors import MissingPackage

try:
    import ray.rllib  # noqa: F401
    import torch  # noqa: F401 - RLlib does without until an algorithm is built
except ImportError as error:
    raise MissingPackage("mvpi.rllib", "ray", "rllib") from error

from mvpi.rllib._config import risk_averse
from mvpi.rllib._driver import augmenter_of
from mvpi.rllib._policy import policy_of

__all__ = ["augmenter_of", "policy_of", "risk_averse"]
