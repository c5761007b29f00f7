"""MLServer: a custom runtime, as its guide has it, with adaptive batching."""

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class OnnxModel(MLModel):
    async def load(self) -> bool:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            self.settings.parameters.uri, options
        )
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        numeric = NumpyCodec.decode_input(payload.inputs[0])
        mean, members = self.session.run(["mean", "members"], {"numeric": numeric})
        return InferenceResponse(
            model_name=self.name,
            outputs=[
                NumpyCodec.encode_output("mean", mean),
                NumpyCodec.encode_output("members", members),
            ],
        )
