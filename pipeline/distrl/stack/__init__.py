"""The local stack of one machine: a real Kafka, S3 endpoint, adb server and simulated phones, where none is configured.

A *part* is one server of the stack. A *child* is the process behind it, known by its pid and start time, so that a
pid that the system has given to somebody else is never signalled. The *record* (stack.json) says which parts are up
and where; `distrl up` writes it, every other command reads it.
"""
