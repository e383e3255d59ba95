"""The local stack of one machine: a real Kafka, S3 endpoint, adb server and simulated phones, where none is configured.

A *part* is one server of the stack. A *child* is the process behind it, identified by its pid and start time, so that a
reused pid is never signalled. The *record* (stack.json) lists the parts that are up and their addresses; `distrl up`
writes it, every other command reads it.
"""
