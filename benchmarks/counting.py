"""What metrics add to a predict request: the counts of one, in CPU microseconds.

The harness of `benchmarks/serving.py` has what a request takes in all.
"""

from time import process_time

from app.observe import metrics
from app.observe.requests import ROUTE, _count

N = 200_000
PHASES = ("parse", "queue", "run", "encode")


def main() -> None:
    scope = {"method": "POST", ROUTE: "/models/{model_id}/predict"}
    began = process_time()
    for _ in range(N):
        for phase in PHASES:
            metrics.PREDICT_SECONDS.observe(0.0003, phase)
        metrics.PREDICT_REQUESTS.observe(1)
        metrics.PREDICT_ROWS.observe(1)
        metrics.CACHE.add("hit")
        _count(scope, 200, 0.6)
    spent = process_time() - began
    print(f"counts of one predict request: {1e6 * spent / N:.2f} microseconds")


if __name__ == "__main__":
    main()
