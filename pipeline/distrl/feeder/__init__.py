"""The feeder: which task comes next, and when. It keeps nothing; whatever it knows it reads from the topics."""
