"""What each role of a run may do: declared in one table, from which the rights at a broker and an object store are
made."""
