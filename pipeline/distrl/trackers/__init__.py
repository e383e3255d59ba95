"""A run's figures for experiment trackers (docs/trackers.md): read from its log, by a process that nobody waits for."""
