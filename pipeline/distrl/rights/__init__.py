"""What each role of a run may do: the one table, and what a broker and an object store are told of it."""
