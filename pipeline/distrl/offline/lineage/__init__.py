"""Which trajectories are behind a version, and which versions learned from a trajectory."""
