"""Our method, through the doors that its users have."""

from benchmarks.cells.methods import Method

NAME = "EnergyDetector"
OURS: dict[str, Method] = {}
