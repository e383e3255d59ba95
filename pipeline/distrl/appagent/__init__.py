"""A prompting agent after AppAgent (arXiv 2312.13771), a baseline of the DistRL paper: no weights of ours, a
vision-language model that is shown a screen with numbered elements and asked what to do.

elements.py    the interactive elements of a `uiautomator dump`; pure
grid.py        the cells that are pointed at where there are none; pure
tags.py        numbers drawn on a screenshot; pure
prompt.py      what the model is told; pure
answer.py      how its answers are read; pure
notes.py       what exploration has found out, per app
identity.py    what stands in records for it; pure
agent.py       screen in, action out
explore.py     the same, with a look at what each action did
"""
