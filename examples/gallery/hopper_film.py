"""MVPI-TD3 on Hopper at risk aversion 0 and 1, a picture and a film of both (extra: agents).

python examples/gallery/hopper_film.py [STEPS]. Killed, the same call goes on; a second one only draws.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("MUJOCO_GL", "egl")  # off-screen; osmesa is the other way
import matplotlib.pyplot as plt
import mujoco
import numpy as np
from PIL import Image

import mvpi

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 60_000
OUT = Path("out/gallery")
HOPPER = mvpi.envs.Task("Hopper-v4", action_noise=0.1)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
films = []
for risk, color in ((0.0, "tab:red"), (1.0, "tab:blue")):
    agent = mvpi.TD3(HOPPER, risk, learning_starts=min(10_000, STEPS // 2))
    agent.learn(STEPS, out=OUT / f"hopper-{risk:g}-{STEPS}")
    shown = mvpi.evaluate(agent, episodes=20)
