"""A-RIDE (DistRL, section 5): advantage policy gradient on off-policy trajectories.

critics.py     section 5.1: V(s) and V_traj
scoring.py     scores recorded transitions with policy and critics
credit.py      section 5.2: Retrace targets and advantages, which follow from the scores
memory.py      section 5.3: the buffer, the age of its scores, and DPER's prioritised draws
train_step.py  equation 1: a gradient step
algorithm.py   one update, which combines them
truncation.py  episodes that the step limit cut off, which the paper does not mention
"""
