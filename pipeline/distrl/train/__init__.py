"""A run on one machine: all its roles as supervised processes, watched, stopped in order."""
