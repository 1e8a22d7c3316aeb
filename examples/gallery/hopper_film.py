"""MVPI-TD3 on Hopper at two risk aversions, a picture and a film of both (extra: agents)."""

import os
import sys
from ctypes.util import find_library
from pathlib import Path

os.environ.setdefault("MUJOCO_GL", "egl" if find_library("EGL") else "disable")  # off-screen
import matplotlib.pyplot as plt
import mujoco
import numpy as np
from PIL import Image

import mvpi

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 40_000
OUT, HOPPER = Path("out/gallery"), mvpi.envs.Task("Hopper-v4", action_noise=0.1)
figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
for risk, frames in (films := {0.0: [], 1.0: []}).items():
    agent = mvpi.TD3(HOPPER, risk, hidden=(64, 64), learning_starts=min(5_000, STEPS // 2))
    agent.learn(STEPS, out=OUT / f"hopper-{risk:g}-{STEPS}")  # killed, the same call goes on
    seen = mvpi.evaluate(agent, episodes=20)
    text = f"risk aversion {risk:g}, per-step variance {seen.reward_variance:.2f}"
    axes.hist(seen.returns, range(0, 1_300, 25), alpha=0.6, label=text)
    observation, _ = (env := HOPPER()).reset(seed=0)
    try:
        camera = mujoco.Renderer(env.unwrapped.model, 150, 200)
        for step in range(300):  # of 8 ms; an episode ends with a fall, the film goes on
            observation = env.step(agent.predict(observation))[0]
            if step % 5 == 0:
                camera.update_scene(env.unwrapped.data, camera="track")
                frames.append(camera.render())
    except Exception as error:  # noqa: BLE001 - whatever a missing driver raises
        print(f"no film: nothing can be rendered off-screen here ({error})")
axes.set(xlabel="return of an episode", ylabel="episodes of 20")
axes.legend()
figure.savefig(OUT / "hopper_film.png", dpi=100)
pairs = zip(*films.values(), strict=True)
if both := [Image.fromarray(np.hstack(pair)).quantize(32) for pair in pairs]:
    both[0].save(OUT / "hopper_film.gif", save_all=True, append_images=both, duration=40, loop=0)
