"""Steelyard: a Kubernetes-native load balancer.

The story in six verbs: observe → translate → publish → subscribe → pick → forward. Control plane and data plane
meet in one noun, the `Snapshot`. Read the packages in this order:

- `model`: the nouns, as frozen structs. No I/O, no clock.
- `translate`, `children`: pure functions from what the cluster says to what proxies and the API shall hear.
- `injection`: pure, too: a client's pod with the proxy beside it.
- `balancing`: the choices. One algorithm a file; time and randomness are arguments.
- `kube`: the shell that speaks to the Kubernetes API, and the only importer of kopf and kubernetes.
- `discovery`: the shell between the planes: snapshots down, acknowledgements and health up; or a file instead.
- `proxy`: the shell that carries traffic.
- `telemetry`, `admin`, `settings`: metrics and logs, the admin listener, the constants with unit and reason.

Glossary
--------
Endpoint    the frozen address of one backend process, with its state (ACTIVE, DRAINING, PARKED).
Node        the live state of one endpoint: in flight, latency, health, rotation lag. Outlives membership.
Upstream    what one port of one BalancedService sends to: its Nodes and their Picker.
Picker      chooses a Node among the eligible ones; rebuilt and swapped on every change, never filters.
Eligible    may be picked now: weight above 0, usable, of the drawn priority level and locality rung.
Ejection    an outlier's time outside the eligible set. Panic: using a level's ACTIVE endpoints all the same.
Snapshot    all that a proxy needs to know of one BalancedService; canonical, versioned by its content.
Reflector   a local copy of one kind of Kubernetes object: LIST replaces, WATCH amends.
Translate   the pure step from cluster state to snapshots and statuses.
Condition   one fact about an object in its status: Accepted, ResolvedRefs, Programmed, Ready.
"""
