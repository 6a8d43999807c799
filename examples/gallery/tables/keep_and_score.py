"""
Save a detector and score new rows
==================================

A detector is saved in a folder, without pickle, and scores new rows. Here the process drifts: one reading
slowly leaves its usual range, while each reading by itself stays plausible for a long time.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np

import pscd

rng = np.random.default_rng(0)


def readings(n, drift):
    """Pressure follows temperature; the drift lets it lag behind."""
    temperature = rng.normal(20, 4, n)
    pressure = 3 + 0.2 * temperature + rng.normal(0, 0.2, n) - drift
    return np.c_[temperature, pressure, rng.normal(0, 1, n)]


training = readings(1000, drift=0)
training[:30, 1] = rng.uniform(0, 20, 30)  # a sensor that was loose for a while
with tempfile.TemporaryDirectory() as folder:
    pscd.EnergyDetector().fit(training).save(folder)
    detector = pscd.EnergyDetector.load(folder)  # on another day, in another process

days = np.arange(60)
energies = [-detector.score_samples(readings(24, drift=max(0, day - 30) / 15)) for day in days]

# %%
# The threshold comes from the training rows, those of the loose sensor included. The drift starts on day 30.

figure, axis = plt.subplots()
axis.plot(np.repeat(days, 24), np.concatenate(energies), ".", alpha=0.3, markersize=4, label="readings")
axis.plot(days, [np.median(e) for e in energies], linewidth=2, label="median of the day")
axis.axhline(-detector.offset_, color="black", linestyle=":", label="threshold")
axis.axvline(30, color="grey", linewidth=0.8)
axis.set(xlabel="day", ylabel="energy", ylim=(None, 20))
axis.legend(loc="upper left")
plt.show()
