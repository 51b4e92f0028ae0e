"""The requests of one run, drawn before it: when, how much work, at which balancer, with which key."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

Demand = Literal["exponential", "lognormal", "constant"]


@dataclass(frozen=True)
class Trace:
    at: list[float]
    demand: list[float]  # seconds of work at speed 1
    balancer: list[int]
    key: list[int]


def poisson(
    requests: int, rate: float, balancers: int, seed: int, *, mean: float = 0.01, demand: Demand = "lognormal"
) -> Trace:
    """Poisson arrivals at `rate` per second; each at a uniformly drawn balancer. Lognormal has a variation of 1."""
    random = np.random.default_rng(seed)
    at = np.cumsum(random.exponential(1 / rate, requests))
    if demand == "exponential":
        work = random.exponential(mean, requests)
    elif demand == "lognormal":
        sigma = math.sqrt(math.log(2))
        work = random.lognormal(math.log(mean) - sigma**2 / 2, sigma, requests)
    else:
        work = np.full(requests, mean)
    balancer = random.integers(0, balancers, requests)
    return Trace(at.tolist(), work.tolist(), balancer.tolist(), random.integers(0, 2**31, requests).tolist())


def zipf_keys(requests: int, keys: int, exponent: float, seed: int) -> list[int]:
    """Keys 0 … keys − 1, the k-th with a probability proportional to 1/(k + 1)^exponent."""
    random = np.random.default_rng(seed + 1_000_000)
    weights = 1 / np.arange(1, keys + 1) ** exponent
    drawn = np.searchsorted(np.cumsum(weights / weights.sum()), random.random(requests))
    return np.minimum(drawn, keys - 1).tolist()
