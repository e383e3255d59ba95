"""The built-in suites, one module each. A suite is its families, and which of their tasks belong to which split."""
