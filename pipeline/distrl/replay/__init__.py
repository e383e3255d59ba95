"""What the learner remembers and what it draws from it: pure NumPy, no I/O."""
