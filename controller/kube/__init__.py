"""All that speaks to the Kubernetes API, and the only importer of kopf and kubernetes.

Belongs here: reading objects (reflectors, kopf), writing children and statuses, events, the lease, the webhook.
Does not belong here: what should be written (`translate`, `children`) and how proxies hear of it (`discovery`).
"""
