"""The paper's figures as commands: the system's own decisions on simulated phones, in the order of a virtual time."""
