"""The metadata of a model's file."""

from typing import Any

from app.errors import ModelUnusable, NotFound
from app.storage import blobs
from app.storage.tables import TrainedModel
from lometab.errors import ModelFileError
from lometab.onnx_file import read_metadata


def read_facts(model: TrainedModel) -> dict[str, Any]:
    """As its row keeps them; of a model from before that, from its file."""
    if model.facts:
        return model.facts
    try:
        content = blobs.read(model.workspace_id, model.onnx_sha256)
        return read_metadata(content)
    except KeyError:
        raise NotFound(f"the model {model.id!r} was deleted") from None
    except ModelFileError as error:  # a file of ours is no fault of the caller's
        raise ModelUnusable(f"the model {model.id!r} cannot be read") from error
