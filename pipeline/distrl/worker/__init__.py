"""The worker role: tasks of a consumer group in, trajectories out; nothing is kept."""
