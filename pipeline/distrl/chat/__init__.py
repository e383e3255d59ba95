"""A chat model behind an OpenAI-compatible endpoint, as the judge and the prompting agent ask one.

http.py        one POST with a total deadline
endpoint.py    pace, retries, what it costs
message.py     the parts of what is said to it; pure
"""
