"""The learner is a fold over the log: `state[u] = F(state[u-1], log[: watermark[u]], u)`."""
