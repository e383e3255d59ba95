"""A-RIDE (DistRL, section 5): advantage policy gradient on off-policy trajectories.

5.1 critics.py: V(s) and V_traj. scoring.py: what policy and critics say of recorded transitions. 5.2 credit.py: Retrace
targets and advantages that follow from it. 5.3 memory.py: the buffer, how old its scores are, and DPER, which
transitions are drawn. Equation 1 train_step.py: a gradient step. algorithm.py combines them; truncation.py handles
episodes that the step limit cut off, which the paper does not mention.
"""
