"""A Kubernetes of one node on this machine: a real one, whose pods run as containers, without Docker or a registry.

`python -m k8s.node` in tests/ starts it, opens a shell in which kubectl works, and ends it with that shell. Its
programs come from the Go modules that tests/tools/kubernetes pins. It lives in mount, pid, network, host name and IPC
namespaces of its own: nothing listens on the machine's network, no setting of the machine changes, and with the first
process of the pid namespace all others end, whoever killed it.
"""
