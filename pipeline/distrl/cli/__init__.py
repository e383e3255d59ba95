"""The command line: parse, call, print. No decision is taken here."""
