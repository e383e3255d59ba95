"""The demo: every role of a run as a process of its own on one machine, watched, stopped, evaluated, reported."""
