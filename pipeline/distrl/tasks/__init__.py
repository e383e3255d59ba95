"""What agents are asked to do: suites of tasks, the check of their outcome, and a script that can do them.

Pure, but for lists.py, which reads the files of a suite that a user wrote.
"""
