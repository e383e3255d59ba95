"""Phones as a worker holds them: sessions with a deadline on every operation, reset, and the pool that lends them."""
