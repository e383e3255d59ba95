"""The replay buffer and prioritised draws from it. Pure NumPy, no I/O."""
