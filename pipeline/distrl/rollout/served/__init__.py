"""Acting through a served model: an OpenAI-compatible server that loads adapters at run time (docs/serving.md).

    reloader ──▶ ServedPolicy.swap ──▶ AdapterFolder   the adapter's files, where the server reads them
                                   ──▶ ModelServer     load under a name of its own, try out, switch
    actors ────▶ ServedPolicy.decide ─▶ ModelServer    a request for each decision; the server makes the batches
                                                       drain, then unload what no process needs

An adapter's name is that of its run, version and bytes (`names.py`), and never means anything else.
"""
