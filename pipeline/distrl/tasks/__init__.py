"""Suites of tasks, the check of their outcome, and scripts that do them.

Pure, except lists.py, which reads the files of a user's suite.
"""
