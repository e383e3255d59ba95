"""Ranks: the processes that compute one fold together. Only this room knows torch.distributed and its launchers."""
