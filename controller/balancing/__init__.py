"""The choices: which Node gets the next request. Pure; time and randomness are arguments.

One algorithm a file, listed in `POLICIES` (controller.balancing.policies), plus the guard stages that decide which
nodes a policy may see at all (`eligible`, `slow_start`, `outlier`), and what surrounds a pick (`retry_budget`,
`affinity`). Belongs here: a decision that a simulator could drive with a manual clock. Does not belong here: anything
that opens a connection, reads a clock, or knows Kubernetes.
"""
