"""MLflow: the ONNX flavour with a signature; then `mlflow models serve --workers 2`.

python mlflow_model.py MODEL.onnx FOLDER
"""

import sys

import mlflow
import numpy as np
import onnx
from mlflow.models.signature import ModelSignature
from mlflow.types import Schema, TensorSpec

source, folder = sys.argv[1:]
numeric = TensorSpec(np.dtype(np.float64), (-1, 8), "numeric")
mlflow.onnx.save_model(
    onnx.load(source),
    folder,
    signature=ModelSignature(inputs=Schema([numeric])),
    onnx_session_options={"intra_op_num_threads": 1, "inter_op_num_threads": 1},
)
