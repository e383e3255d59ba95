"""Learning algorithms: protocol.py says what one is, registry.py which there are, and each has a file or a folder.

returns.py and losses.py hold the mathematics that several share.
"""
