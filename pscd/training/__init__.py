"""Training: the initial state, the loop, its guard and its checkpoints."""
