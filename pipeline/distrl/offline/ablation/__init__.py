"""The fold of a run's log under other settings: arms.py names them, run.py goes through them."""
