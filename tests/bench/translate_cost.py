"""What translation costs: one object beside few and beside many others, and all of them at once.

`python -m tests.bench.translate_cost` reports; the test beside it asserts only the ratio, which no slow machine moves.
"""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

from controller.translate import Inputs, gather, translate, translate_all

ENDPOINTS = 10  # per object
ROUNDS = 60


class Report(NamedTuple):
    one_beside_few: float  # seconds, median
    one_beside_many: float
    all_of_them: float
    objects: int

    @property
    def ratio(self) -> float:
        return self.one_beside_many / self.one_beside_few

    def __str__(self) -> str:
        return (
            f"one object beside 10: {self.one_beside_few * 1e6:.0f} µs, beside {self.objects}: "
            f"{self.one_beside_many * 1e6:.0f} µs (ratio {self.ratio:.2f}); all {self.objects} with {ENDPOINTS} "
            f"endpoints each: {self.all_of_them:.2f} s (target: 2 s)"
        )


def cluster(objects: int) -> Inputs:
    """That many objects of one namespace, each with a Service of its own and ten pods."""
    return gather(item for index in range(objects) for item in _one(f"shop-{index}", index))


def _one(name: str, index: int) -> list[dict[str, object]]:
    def metadata(own: str, **labels: str) -> dict[str, object]:
        return {"name": own, "namespace": "store", "uid": own, "generation": 1, "labels": labels}

    pods = [
        {
            "addresses": [f"10.{index // 250}.{index % 250}.{pod}"],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "targetRef": {"kind": "Pod", "namespace": "store", "name": f"{name}-{pod}", "uid": f"{name}-{pod}"},
            "nodeName": f"node-{pod}",
            "zone": f"zone-{pod % 3}",
        }
        for pod in range(ENDPOINTS)
    ]
    return [
        {
            "kind": "BalancedService",
            "metadata": metadata(name),
            "spec": {"ports": [{"port": 80}], "backends": [{"name": "pods", "service": {"name": f"{name}-pods"}}]},
        },
        {"kind": "Service", "metadata": metadata(f"{name}-pods"), "spec": {"ports": [{"port": 80}]}},
        {
            "kind": "EndpointSlice",
            "metadata": metadata(f"{name}-pods-1", **{"kubernetes.io/service-name": f"{name}-pods"}),
            "addressType": "IPv4",
            "ports": [{"port": 8080}],
            "endpoints": pods,
        },
    ]


def measure(objects: int = 1000) -> Report:
    few, many = cluster(10), cluster(objects)
    key = ("store", "shop-5")
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):  # in turns, so that a slow moment of the machine falls on both
        for inputs, taken in zip((few, many), times, strict=True):
            start = time.perf_counter()
            for _ in range(5):
                translate(inputs, key)
            taken.append((time.perf_counter() - start) / 5)
    start = time.perf_counter()
    translate_all(many)
    return Report(statistics.median(times[0]), statistics.median(times[1]), time.perf_counter() - start, objects)


if __name__ == "__main__":
    print(measure())
