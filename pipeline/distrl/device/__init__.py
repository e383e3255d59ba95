"""Phones as a worker uses them: sessions with a deadline on every operation, reset, and the pool that leases them to
threads."""
