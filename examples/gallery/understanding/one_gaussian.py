"""
The exact optima of CD and PS-CD
================================

10 % of the data are contamination. The best Gaussian by likelihood (CD) has the mean and variance of all rows; the best
by the gamma-score (PS-CD) has those of the majority. Nothing is sampled or trained here: the scores are integrals, and
`pscd.exact` computes them.
"""

import matplotlib.pyplot as plt

from pscd import exact
from pscd.data.toys import CLEAN_1D, contaminated_1d
from pscd.energies import Quadratic
from studies.paper.gaussian_fit import exact_optimum

dirty = contaminated_1d(0.1)
grid = exact.grid(exact.Box((-12.0,), (12.0,)), 1200)
x = grid.points[:, 0]

plt.fill_between(x, dirty.log_prob(grid.points).exp(), alpha=0.25, color="grey", label="data, 10 % contaminated")
for name, gamma in {"CD (gamma 0)": 0.0, "PS-CD (gamma 1)": 1.0}.items():
    mean, deviation = exact_optimum(dirty, gamma, start=(-1.0, 0.7))
    q = exact.log_density(Quadratic(mean, deviation), grid)
    kl = exact.kl(CLEAN_1D.log_prob(grid.points), q, grid)
    plt.plot(x, q.detach().exp(), linewidth=2, label=f"{name}: KL from the clean density {kl:.1g}")
plt.gca().set(xlabel="x", ylabel="density", xlim=(-4, 6))
plt.legend(loc="upper right", fontsize="small")
plt.show()

# %%
# :doc:`/explanations/one-picture` lets you change gamma and the share of the contamination.
