"""The evaluator: how good a version is, measured on tasks that nobody trains on, and what a whole run looks like."""
