"""Learning rules as pure functions: returns and corrections in NumPy, losses in torch, one file per algorithm."""
