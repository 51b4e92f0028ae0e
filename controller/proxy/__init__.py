"""The data plane: sockets in, sockets out. Knows snapshots, not where they come from.

Belongs here: what reads or writes a client's or a backend's connection, and what is decided per request with the
state at hand. Does not belong here: a rule that a simulator could drive (`balancing`), the wire to the operator
(`discovery`), Kubernetes.
"""
