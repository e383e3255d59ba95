"""A run in a browser: an index of its log, an HTTP API over it, and the pages."""
