"""Learning algorithms: protocol.py defines the interface, registry.py lists them, and each has a file or a folder.

returns.py and losses.py hold the mathematics that several share.
"""
