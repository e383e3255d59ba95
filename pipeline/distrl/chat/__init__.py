"""Client of an OpenAI-compatible chat endpoint, for the judge and the prompted agent.

http.py        one POST with a total deadline
endpoint.py    rate limit, retries, costs
message.py     the parts of a request; pure
"""
