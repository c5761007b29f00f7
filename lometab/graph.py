"""An ONNX graph as it is put together."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from torch import Tensor


@dataclass
class Graph:
    """Nodes and constants as they are added. A value is known by its name."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def constant(self, name: str, value: Any, dtype: Any) -> str:
        self.constants.append(
            numpy_helper.from_array(np.array(value, dtype=dtype), name)
        )
        return name

    def parameter(self, name: str, value: Tensor) -> str:
        return self.constant(name, value.detach().cpu().numpy(), np.float32)

    def integers(self, *values: int) -> str:
        """Axes, a shape or indices."""
        return self.constant(f"integers_{len(self.constants)}", values, np.int64)

    def add(
        self, operator: str, *inputs: str, output: str = "", **attributes: Any
    ) -> str:
        output = output or f"{operator}_{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(operator, inputs, [output], name=output, **attributes)
        )
        return output
