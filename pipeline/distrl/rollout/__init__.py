"""Episodes on phones. Worker, demonstrations, evaluator and prompted agents put theirs together from it; it reads and
writes no topic.

- episode: one attempt at one task on one phone, from its reset to its outcome; it becomes one trajectory.
- decider: what chooses the next action from what is seen: the shared policy, a script, a person, a prompted model.
- actor: a thread that holds one leased phone and runs one episode after another on it.
- swap: the moment between two batches of decisions when newer weights take the place of the old ones.
"""
