"""Episodes on phones, as worker, demonstrations, evaluator and prompted agents run them. Publishes no record itself;
only dry_run.py reads a topic, that of the versions.

- episode: one attempt at one task on one phone, from its reset to its outcome; it becomes one trajectory.
- decider: chooses the next action from an observation: the shared policy, a script, a person, a prompted model.
- actor: a thread that holds one leased phone and runs one episode after another on it.
- swap: replaces the weights by newer ones, between two batches of decisions.
"""
