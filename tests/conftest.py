"""Before any test: an interrupt interrupts, whoever has started pytest.

A shell starts background jobs with SIGINT ignored, and what they start inherits that: a test that interrupts a process
of its own would wait for it in vain.
"""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
