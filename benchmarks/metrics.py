"""Time and memory of pairwise KL at K=32, N=100000, C=10, beside a loop over pairs.

    python benchmarks/metrics.py

All run in turn in one process; the times printed are medians. Memory is what a call
allocates at its peak beyond the members it is given, measured in a call of its own.
"""

import time
import tracemalloc
from collections.abc import Callable
from statistics import median

import numpy as np
from numpy.typing import NDArray

from lometab.evaluation.metrics import (
    disagreement,
    mutual_information,
    pairwise_disagreement,
    pairwise_kl,
)

N, K, C = 100_000, 32, 10
REPEATS = 5


def loop_over_pairs(members: NDArray[np.float32]) -> NDArray[np.float64]:
    """The formula as it stands: two members at a time, all their rows."""
    p = members.astype(np.float64)
    log_p = np.log(np.clip(p, 1e-12, 1.0))
    matrix = np.zeros((K, K))
    for i in range(K):
        for j in range(i + 1, K):
            terms = (p[:, i] - p[:, j]) * (log_p[:, i] - log_p[:, j])
            matrix[i, j] = matrix[j, i] = terms.sum() / (2 * N)
    return matrix


def seconds(function: Callable[..., object], members: NDArray[np.float32]) -> float:
    start = time.perf_counter()
    function(members)
    return time.perf_counter() - start


def peak_mib(function: Callable[..., object], members: NDArray[np.float32]) -> float:
    tracemalloc.start()
    function(members)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 2**20


def main() -> None:
    logits = np.random.default_rng(0).normal(size=(N, K, C)).astype(np.float32)
    members = np.exp(logits)
    members /= members.sum(axis=2, keepdims=True)
    del logits
    difference = np.abs(pairwise_kl(members) - loop_over_pairs(members)).max()
    functions = (
        pairwise_kl,
        loop_over_pairs,
        pairwise_disagreement,
        mutual_information,
        disagreement,
    )
    times: dict[str, list[float]] = {f.__name__: [] for f in functions}
    for _ in range(REPEATS):
        for function in functions:
            times[function.__name__].append(seconds(function, members))
    print(f"{K=} {N=} {C=}, float32 members of {members.nbytes / 2**20:.0f} MiB")
    for function in functions:
        took, peak = median(times[function.__name__]), peak_mib(function, members)
        print(f"{function.__name__:22} {took:7.3f} s {peak:7.0f} MiB")
    print(f"largest difference of pairwise_kl and the loop: {difference:.1e}")


if __name__ == "__main__":
    main()
