"""Learning algorithms: protocol.py defines the interface, registry.py lists them, and each has a file or a folder, or
is of another package.

returns.py and losses.py hold the mathematics that several share.
"""
