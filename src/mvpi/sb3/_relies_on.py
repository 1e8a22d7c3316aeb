"""The names of Stable-Baselines3 that the plug needs; a test says which one moved."""

from __future__ import annotations

RELIES_ON = {
    "common.base_class:BaseAlgorithm.get_env": (),
    "common.base_class:BaseAlgorithm.load": ("path", "env", "device", "custom_objects"),
    "common.off_policy_algorithm:OffPolicyAlgorithm.collect_rollouts": ("env", "callback"),
    "common.off_policy_algorithm:OffPolicyAlgorithm.train": ("gradient_steps", "batch_size"),
    "common.on_policy_algorithm:OnPolicyAlgorithm.collect_rollouts": ("env", "callback"),
    "common.on_policy_algorithm:OnPolicyAlgorithm.train": (),
    "common.callbacks:BaseCallback.init_callback": ("model",),
    "common.logger:Logger.record": ("key", "value"),
    "common.buffers:BaseBuffer._normalize_reward": ("reward", "env"),
    "common.buffers:ReplayBuffer.add": ("obs", "next_obs", "action", "reward", "done", "infos"),
    "common.buffers:ReplayBuffer.sample": ("batch_size",),
    "common.buffers:BaseBuffer.size": (),
    "common.preprocessing:get_obs_shape": ("observation_space",),
    "common.buffers:RolloutBuffer.reset": (),
    "common.buffers:RolloutBuffer.compute_returns_and_advantage": ("last_values", "dones"),
    "common.save_util:json_to_data": ("json_string", "custom_objects"),
    "common.vec_env:VecEnv.env_is_wrapped": ("wrapper_class",),
    "common.vec_env:VecEnvWrapper.step_wait": (),
    "common.vec_env:VecNormalize.normalize_reward": ("reward",),
    "common.vec_env:unwrap_vec_normalize": ("env",),
}
"""What the plug overrides, replaces or calls in `stable_baselines3`, and arguments it names. Also:
replay buffers pass drawn rewards through `self._normalize_reward`, `save` keeps what is in a
model's `__dict__`, as JSON where it can, and `load` reads it by `save_util.json_to_data`."""

RELIES_ON_ATTRIBUTES = {
    "common.base_class:BaseAlgorithm": ("logger", "num_timesteps", "seed", "n_envs"),
    "common.off_policy_algorithm:OffPolicyAlgorithm": ("replay_buffer", "gamma"),
    "common.on_policy_algorithm:OnPolicyAlgorithm": ("rollout_buffer", "gamma", "n_steps"),
    "common.callbacks:BaseCallback": ("model",),
    "common.logger:Logger": ("name_to_value",),
    "common.buffers:ReplayBuffer": (
        *("rewards", "dones", "timeouts", "pos", "full", "buffer_size", "obs_shape"),
    ),
    "common.buffers:RolloutBuffer": ("rewards", "observations", "obs_shape"),
    "common.vec_env:VecEnvWrapper": ("venv",),
    "common.vec_env:VecNormalize": ("training", "norm_reward"),
}
"""What it reads from instances."""
