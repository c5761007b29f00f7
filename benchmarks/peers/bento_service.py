"""BentoML: a service with two workers and adaptive batching."""

import os

import bentoml
import numpy as np
import onnxruntime


@bentoml.service(workers=2, traffic={"timeout": 60})
class Onnx:
    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["ONNX"], options)

    @bentoml.api(batchable=True, max_batch_size=256, max_latency_ms=1000)
    def predict(self, numeric: np.ndarray) -> np.ndarray:
        """The mean and the members side by side: a batched answer is one array."""
        numeric = np.asarray(numeric, dtype=np.float64)
        mean, members = self.session.run(["mean", "members"], {"numeric": numeric})
        return np.concatenate([mean[:, None], members], axis=1)
