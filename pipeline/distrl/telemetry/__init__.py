"""What people look at while a run goes: metrics, logs, the live view. Nothing is ever computed from it."""
