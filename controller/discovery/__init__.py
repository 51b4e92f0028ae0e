"""The wire between the planes: snapshots down; acknowledgements and health up. Or a file instead of an operator.

Belongs here: frames, the server's hub and streams, the proxy's client, tokens. Does not belong here: what a snapshot
says (`translate`), what a proxy does with it (`proxy`), the Kubernetes API (handed in as callables).
"""
