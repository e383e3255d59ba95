"""A-RIDE (DistRL, section 5): advantage policy gradient on off-policy trajectories.

5.1 critics.py: V(s) and V_traj. 5.2 credit.py: Retrace targets and advantages, annotate.py: of the whole buffer.
5.3 memory.py: DPER, which transitions are drawn. Equation 1 improve.py: what a minibatch changes. algorithm.py puts
them together; truncation.py is about episodes that the step limit cut off, of which the paper says nothing.
"""
