"""Reads episodes that others have published: AndroidControl and Android in the Wild. Files in, episodes out; no client.

All of a file is untrusted. What cannot be read is skipped, and reported with its file, its record and the reason
(`Unreadable`).
"""
