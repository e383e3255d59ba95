"""R2D3 (arXiv 1909.01387): recurrent Q-learning from replayed sequences, some of them demonstrations.

R2D2 is R2D3 without demonstrations, DQfD (arXiv 1704.03732) R2D3 without recurrence. train_step.py computes a gradient
step, with sequences.py, targets.py and losses.py; algorithm.py and memory.py make it an algorithm of the registry.
"""
