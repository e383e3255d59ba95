"""The demo: runs all roles as processes on one machine, watches and stops them, evaluates, writes a report."""
