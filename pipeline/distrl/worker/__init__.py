"""The worker: phones driven by one shared policy, trajectories published, nothing kept.

Vocabulary
- episode: one attempt at one task on one phone, from its reset to its outcome; it becomes one trajectory.
- decider: what chooses the next action from what is seen: the shared policy, or the script of the demonstrations.
- actor: a thread that holds one leased phone and runs one episode after another on it.
- swap: the moment between two batches of decisions when newer weights take the place of the old ones.
"""
