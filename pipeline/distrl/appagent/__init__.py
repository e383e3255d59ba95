"""A prompted agent after AppAgent (arXiv 2312.13771), a baseline of the DistRL paper: no weights of ours, a
vision-language model gets a screenshot with numbered elements and chooses the action.

elements.py    the interactive elements of a `uiautomator dump`; pure
grid.py        the cells used where there are none; pure
tags.py        numbers drawn on a screenshot; pure
prompt.py      the prompts; pure
answer.py      parses the answers; pure
notes.py       the findings of exploration, per app
identity.py    its identity in records; pure
agent.py       screen in, action out
explore.py     the same, with a reflection on each action's effect
"""
