"""K balancers over N servers: production pickers, each balancer with its own Nodes unless it shares what it knows.

`own`: a balancer sees the attempts it made, at once. `exact`: all share one set of Nodes, so each sees the servers'
true counts. `stale`: all see one snapshot of the true counts, taken every `period` seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from controller.balancing.latency import Latency
from controller.balancing.node import Kind, Node, Observer
from controller.balancing.picker import Candidate, CandidateSet, Group, Member, Options, PickRequest
from controller.balancing.policies import POLICIES
from controller.model.endpoints import Endpoint
from controller.model.service import Algorithm

Knows = Literal["own", "exact", "stale"]


@dataclass(frozen=True)
class Policy:
    """A policy under test: its name in the report, the algorithm as users write it, and what it knows."""

    name: str
    algorithm: Algorithm
    knows: Knows = "own"
    aligned: bool = False  # every balancer starts at the same place in the same order
    period: float = 0.0  # seconds between two snapshots of a stale view
    min_slots: int = 4
    penalised: bool = True  # False: a failure counts as its own few milliseconds, as in naive latency balancing


@dataclass(frozen=True)
class Backend:
    """One share group: its weight, and its servers by number with their weights inside it."""

    weight: int
    servers: Sequence[int]
    weights: Sequence[int]


def one_backend(servers: int, weights: Sequence[int] | None = None) -> list[Backend]:
    return [Backend(1, range(servers), weights or [1] * servers)]


class Fleet:
    def __init__(self, policy: Policy, balancers: int, backends: Sequence[Backend], seed: int) -> None:
        self._policy = policy
        servers = sum(len(backend.servers) for backend in backends)
        shared = self._nodes(servers) if policy.knows != "own" else None
        self._nodes_of = [shared or self._nodes(servers) for _ in range(balancers)]
        self._pickers = [
            POLICIES[policy.algorithm.type](
                self._candidates(nodes, backends),
                self._options(balancer, balancers, seed),
                Random(seed * 7919 + balancer),
            )
            for balancer, nodes in enumerate(self._nodes_of)
        ]
        self._refreshed = -1.0

    def _nodes(self, servers: int) -> list[Node]:
        algorithm = self._policy.algorithm
        nodes = [
            Node(Endpoint(id=f"pod-{i}", address=f"10.0.{i // 250}.{i % 250 + 1}", port=8080, pod=f"sim/pod-{i}"), 0.0)
            for i in range(servers)
        ]
        self.numbers = {node.id: i for i, node in enumerate(nodes)}
        if algorithm.type == "PeakEWMA":
            latency = Latency(algorithm.peak_ewma, nodes)
            observe = latency.observe if self._policy.penalised else _forgiving(latency)
            for node in nodes:
                node.observers = (observe,)
        return nodes

    def _candidates(self, nodes: Sequence[Node], backends: Sequence[Backend]) -> CandidateSet:
        groups, members = [], []
        for number, backend in enumerate(backends):
            name = f"backend-{number}"
            pairs = list(zip(backend.servers, backend.weights, strict=True))
            groups.append(Group(name, backend.weight, tuple(Candidate(nodes[i], w) for i, w in pairs)))
            members += [Member(nodes[i].endpoint.hash_identity("Pod"), name, w, nodes[i].id) for i, w in pairs]
        return CandidateSet(tuple(groups), tuple(sorted(members)))

    def _options(self, balancer: int, balancers: int, seed: int) -> Options:
        random = Random(seed * 104_729 + balancer)
        aligned = self._policy.aligned
        return Options(
            algorithm=self._policy.algorithm,
            scope="simulation",
            seed=0 if aligned else random.getrandbits(64),
            phase=0.0 if aligned else random.random(),
            min_slots=self._policy.min_slots,
        )

    def pick(self, balancer: int, now: float, key: int, present: Sequence[int]) -> int:
        policy = self._policy
        if policy.knows == "stale" and now >= self._refreshed + policy.period:
            self._refreshed = now
            for node, inflight in zip(self._nodes_of[0], present, strict=True):
                node.inflight = inflight
        node = self._pickers[balancer].pick(PickRequest(now, key.to_bytes(8, "big")))
        return self.numbers[node.id]

    def started(self, balancer: int, server: int, now: float) -> None:
        if self._policy.knows != "stale":
            self._nodes_of[balancer][server].start(now)

    def ended(self, balancer: int, server: int, began: float, now: float, kind: Kind) -> None:
        if self._policy.knows != "stale":
            node = self._nodes_of[balancer][server]
            node.answered(now, kind, now - began)
            node.finish(now, kind)


def _forgiving(latency: Latency) -> Observer:
    def observe(node: Node, now: float, kind: Kind, seconds: float, retry_after: float | None) -> None:
        latency.observe(node, now, Kind.OK, seconds, None)

    return observe
