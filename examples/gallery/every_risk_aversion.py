"""One training run for every risk aversion, and the page with its slider (extras: agents, report).

python examples/gallery/every_risk_aversion.py [STEPS]
"""

import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import mvpi

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 30_000
(OUT := Path("out/gallery")).mkdir(parents=True, exist_ok=True)
run = OUT / f"range-{STEPS}"

agent = mvpi.TD3(
    "mvpi/Markowitz-v0",  # a portfolio of two assets whose best answer is known
    mvpi.RiskRange(0.5, 8.0),
    preset="noisy-rewards",
    gamma=0.0,
    hidden=(64,),
    learning_starts=min(2_000, STEPS // 2),
)
agent.learn(STEPS, out=run)  # killed, the same call goes on; done, it is quick

market, lams = mvpi.envs.Markowitz(), np.geomspace(0.5, 8.0, 30)
learned = np.array([agent.at(lam).predict(np.ones(1)) for lam in lams])
exact = np.array([market.best_action(lam) for lam in lams])
figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
for i, color in enumerate(("tab:blue", "tab:orange")):
    axes.plot(lams, learned[:, i], color=color, label=f"asset {i + 1}, learned in one run")
    axes.plot(lams, exact[:, i], ":", color=color, label=f"asset {i + 1}, exact")
axes.set(xlabel="risk aversion (one over reward)", ylabel="amount held")
axes.legend()
figure.savefig(OUT / "every_risk_aversion.png", dpi=100)
page = ["report", str(run), "--out", str(OUT / "every_risk_aversion.html")]
subprocess.run([sys.executable, "-m", "mvpi", *page], check=True)
