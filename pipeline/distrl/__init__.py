"""DistRL on Kafka: asynchronous distributed reinforcement learning for phone agents (arXiv 2410.14803)."""
