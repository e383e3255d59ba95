"""The feeder: which task is next, and when. It stores nothing: its whole state is read from the topics."""
