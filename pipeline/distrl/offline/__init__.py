"""What is done with a log that exists: replay, export, ablations, lineage. Joins no group, writes no topic of a run."""
