"""The models that are loaded, as many as fit into a number of bytes."""

import logging
import threading
from collections import OrderedDict
from functools import cache

from app.errors import ModelUnusable, NotFound
from app.observe import metrics
from app.serving.models import ServedModel
from app.settings import Settings, get_settings
from app.storage import blobs, db
from app.storage.tables import TrainedModel
from lometab.errors import ModelFileError
from lometab.predictor import Predictor

log = logging.getLogger(__name__)


class Predictors:
    """The predictors in use; above a number of bytes, the least recently used goes.

    A model that is larger than all of them may be is served, and not kept: it is loaded
    for each run of its own.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._loaded: OrderedDict[str, Predictor] = OrderedDict()
        self._loading: dict[str, _Load] = {}
        self.n_bytes = 0
        """The sum of what each of the loaded ones takes."""

    def __len__(self) -> int:
        return len(self._loaded)

    def find(self, id_: str) -> Predictor | None:
        """The predictor of a model's id, if it is loaded."""
        return self._loaded.get(id_)

    def get(self, model: TrainedModel | ServedModel) -> Predictor:
        """The model's predictor; of many who ask at once, one loads, others wait."""
        with self._lock:
            if model.id in self._loaded:
                metrics.CACHE.add("hit")
                self._loaded.move_to_end(model.id)
                return self._loaded[model.id]
            metrics.CACHE.add("miss")
            load = self._loading.get(model.id)
            is_mine = load is None
            if load is None:
                load = self._loading[model.id] = _Load()
        if is_mine:
            self._load(model, load)
        return load.wait()

    def _load(self, model: TrainedModel | ServedModel, load: "_Load") -> None:
        try:
            load.predictor = self._open(model)
        except BaseException as error:
            load.error = error
        with self._lock:  # whoever comes now finds the one or the other
            del self._loading[model.id]
            if load.predictor is not None:
                self._keep(model.id, load.predictor)
        load.is_done.set()

    def _open(self, model: TrainedModel | ServedModel) -> Predictor:
        try:
            with db.as_predict():
                content = blobs.read(model.workspace_id, model.onnx_sha256)
        except KeyError:
            raise NotFound(f"the model {model.id!r} was deleted") from None
        try:
            return Predictor(
                content,
                providers=self._settings.ort_providers,
                threads=self._settings.ort_threads,
            )
        except ModelFileError as error:  # a file of ours is no fault of the caller's
            log.critical("the stored model %s cannot be loaded: %s", model.id, error)
            raise ModelUnusable() from error

    def _keep(self, id_: str, predictor: Predictor) -> None:
        limit = self._settings.model_cache_bytes
        if predictor.loaded_bytes > limit:
            log.warning(
                "the model %s takes %s bytes and is loaded for each run: raise "
                "LOMETAB_MODEL_CACHE_BYTES",
                id_,
                predictor.loaded_bytes,
            )
            return
        self._loaded[id_] = predictor
        self.n_bytes += predictor.loaded_bytes
        while self.n_bytes > limit:
            _, oldest = self._loaded.popitem(last=False)
            self.n_bytes -= oldest.loaded_bytes


class _Load:
    """One that is under way, and what came of it."""

    def __init__(self) -> None:
        self.is_done = threading.Event()
        self.predictor: Predictor | None = None
        self.error: BaseException | None = None

    def wait(self) -> Predictor:
        self.is_done.wait()
        if self.error is not None:
            raise self.error
        assert self.predictor is not None
        return self.predictor


@cache
def get_predictors() -> Predictors:
    return Predictors(get_settings())
