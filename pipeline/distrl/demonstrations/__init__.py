"""What the warm-up learns from: tasks that a script has done, or a person."""
