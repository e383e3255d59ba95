"""A run as a whole: the settings that its log holds, and what compares, lists, copies and removes runs."""
