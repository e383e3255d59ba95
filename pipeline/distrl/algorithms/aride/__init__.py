"""A-RIDE (DistRL, section 5): advantage policy gradient on off-policy trajectories.

5.1 critics.py: V(s) and V_traj. 5.2 credit.py: Retrace targets and advantages of a trajectory; annotate.py: of the
whole buffer. 5.3 memory.py: DPER, which transitions are drawn. Equation 1 train_step.py: a gradient step. algorithm.py
combines them; truncation.py handles episodes that the step limit cut off, which the paper does not mention.
"""
