"""The worker role: takes tasks from a consumer group and publishes trajectories. It persists nothing itself."""
