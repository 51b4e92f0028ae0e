"""What a run shows: latencies without the warm-up, errors, imbalance, shares, cache hits."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Result:
    mean: float  # seconds
    p50: float
    p99: float
    p999: float
    errors: float  # share of the requests
    imbalance: float  # mean over samples of max_i in-flight / (slots · speed)
    picks: tuple[int, ...] = ()  # per server
    hits: float = 0.0  # share of the requests that found their key cached

    def share(self, weights: list[float]) -> list[float]:
        """Per server: its share of the picks over its share of the weights."""
        total, due = sum(self.picks), sum(weights)
        return [n / total / (w / due) for n, w in zip(self.picks, weights, strict=True)]


@dataclass
class Recorder:
    """Collects a run. Requests that arrived before `from_time` are warm-up."""

    from_time: float
    servers: int
    latencies: list[float] = field(default_factory=list)
    errors: int = 0
    total: int = 0
    samples: list[float] = field(default_factory=list)
    picks: list[int] = field(default_factory=list)
    hits: int = 0

    def __post_init__(self) -> None:
        self.picks = [0] * self.servers

    def result(self) -> Result:
        ordered = sorted(self.latencies) or [0.0]

        def at(share: float) -> float:
            return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

        return Result(
            mean=sum(ordered) / len(ordered),
            p50=at(0.5),
            p99=at(0.99),
            p999=at(0.999),
            errors=self.errors / max(1, self.total),
            imbalance=sum(self.samples) / max(1, len(self.samples)),
            picks=tuple(self.picks),
            hits=self.hits / max(1, self.total),
        )
