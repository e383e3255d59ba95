"""Metrics, logs and the live view, for people. Nothing is computed from them."""
