"""Models, and the rows that they answer.

Made of `aio/models.py` by `make client`: change that file instead.
"""

import json
import os
import uuid
from collections.abc import Generator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx

from lometab.client import wire
from lometab.client.errors import ClientError
from lometab.client.sync.jobs import Job
from lometab.client.sync.resources import Dataset, Pages, Resource
from lometab.client.wire import Content

if TYPE_CHECKING:
    from lometab.client.sync.client import Client


class Models(Pages):
    """`client.models`."""

    path = "/models"

    def __getitem__(self, reference: str) -> "Model":
        """A model by its id, `name@version` or `name@alias`; nothing is asked yet."""
        return Model(self._client, reference)

    def read(self, reference: str) -> "Model":
        """The same, once the service has shown what it is."""
        return self[reference].refresh()


class Model(Resource):
    """A trained ensemble that answers rows.

    Args:
        reference: an id, `name@version` or `name@alias`.
    """

    def __init__(self, client: "Client", reference: str) -> None:
        super().__init__(client, {"id": reference})
        self.reference = reference
        self.warnings: list[str] = []
        """What was worth a word about the rows that were asked last."""

    @property
    def path(self) -> str:
        """Where it is on the service, by its id or name."""
        return f"/models/{self.reference}"

    def update(self, **changes: Any) -> Self:
        """Change its `name`, `tags` or `description`; what is not named stays."""
        super().update(**changes)
        self.reference = self.id  # `name@version` may be another's from now on
        return self

    def predict(self, data: Any, *, chunk_rows: int = 10_000, **options: Any) -> Any:
        """Answers to rows, in their order, in the form in which these came.

        A frame of pandas or polars gives a frame, an Arrow table a table, a list of
        rows a list. Members are left out unless `include` names them.

        Args:
            data: as `Client.train` takes it, without the target.
            chunk_rows: rows in one request; each is repeated by itself if it has to
                be. A file is sent whole.
            options: those of the service, such as `coverage`, `calibrated`, `include`,
                `abstain_above` and `missing_columns`.
        """
        if "include" not in options and "exclude" not in options:
            options["exclude"] = ["members"]
        parts = []
        with closing(self.predict_chunks(data, chunk_rows, **options)) as chunks:
            for chunk in chunks:
                parts.append(wire.flatten(chunk))
        return wire.to_frame(wire.join(parts), data)

    def predict_chunks(
        self, data: Any, chunk_rows: int = 10_000, **options: Any
    ) -> Generator[dict[str, Any], None, None]:
        """The service's answers to one chunk of rows after the other.

        No more than one is held at a time: for tables of any size.
        """
        self.warnings = []
        for part in wire.split_rows(data, chunk_rows):
            answer = self._predict(wire.encode(part), options)
            self.warnings += [w for w in answer["warnings"] if w not in self.warnings]
            yield answer

    def _predict(self, content: Content, options: Mapping[str, Any]) -> dict[str, Any]:
        query = {
            name: ",".join(value)
            if isinstance(value, list | tuple)
            else value
            if isinstance(value, str)
            else json.dumps(value)
            for name, value in options.items()
            if value not in (None, [], ())
        }

        def send() -> httpx.Response:
            with content.open() as file:
                return self._client._http.post(
                    f"{self.path}/predict",
                    params=query,
                    content=file.read(),
                    headers={"Content-Type": content.media_type},
                )

        what = f"POST {self.path}/predict"
        response = self._client._send(send, what, is_safe=True)
        found: dict[str, Any] = response.json()
        return found

    def predict_file(
        self,
        data: Any,
        output: str | os.PathLike[str],
        *,
        progress: bool = False,
        timeout: float | None = None,
        **options: Any,
    ) -> Path:
        """Answers to a table of any size, as a file: by a job of the service's workers.

        The file has a row for each row of the table, in its order. It is there once it
        is whole.

        Args:
            data: as `Client.train` takes it, without the target: a path, or a
                dataset or its id.
            output: where to write: `.csv`, `.parquet` or `.arrow`.
            progress: show a bar.
            timeout: seconds; the job itself goes on.
            options: those of `predict`, and `on_error`: `skip` leaves rows that cannot
                be read without an answer.
        """
        job = self.start_predictions(data, output=wire.find_output(output), **options)
        job.wait(progress=progress, timeout=timeout)
        self.warnings = job.info["warnings"]
        return job.download(output)

    def start_predictions(
        self, data: Any, *, output: str = "csv", **options: Any
    ) -> Job:
        """The job of `predict_file`, which runs when this returns."""
        if "include" not in options and "exclude" not in options:
            options["exclude"] = ["members"]
        config = {"output": output, **options}
        path = f"{self.path}/predictions"
        key = {"Idempotency-Key": uuid.uuid4().hex}
        id_ = data.id if isinstance(data, Dataset) else wire.find_dataset(data)
        if id_ is not None:
            body = {**config, "dataset_id": id_}
            found = self._client.request("POST", path, json=body, headers=key)
        else:
            fields = {"config": json.dumps(config)}
            content = wire.encode(data)
            found = self._client.upload(path, content, fields, headers=key)
        return Job(self._client, found.json())

    def predict_proba(self, data: Any, **options: Any) -> Any:
        """The probability of each class: a column `mean_<class>` for each."""
        return self.predict(data, include=["mean"], **options)

    def predict_members(self, data: Any, **options: Any) -> Any:
        """What each member says: `member_0`, or of classes `member_0_<class>`."""
        return self.predict(data, include=["members"], **options)

    def predict_interval(self, data: Any, coverage: float = 0.9, **options: Any) -> Any:
        """`interval_lower` and `interval_upper`; of classes, the column `set`."""
        wanted = ["interval", "set"]
        return self.predict(data, include=wanted, coverage=coverage, **options)

    def explain(self, data: Any, **options: Any) -> list[dict[str, Any]]:
        """For each of at most 20 rows, what every column adds to its answer."""
        body = {"rows": wire.to_rows(data), "explain": True, **options}
        found = self._client.request("POST", f"{self.path}/predict", json=body)
        return [row["explanation"] for row in found.json()["predictions"]]

    def download(self, path: str | os.PathLike[str]) -> Path:
        """Write the self-contained ONNX file, for `lometab.Predictor`."""
        return self._client.download(f"{self.path}/onnx", path)

    def set_alias(self, alias: str, *, expected: str | None = None) -> Self:
        """Let `name@alias` stand for this version.

        Args:
            expected: the id of the model that the alias must point at until now, else
                it is left alone (`Changed`).
        """
        if "version" not in self.info:
            self.refresh()
        name, version = self.info["name"], self.info["version"]
        if name is None:
            raise ClientError(f"{self.id} has no name; train it with `name`")
        headers = {} if expected is None else {"If-Match": f'"{expected}"'}
        self._client.request(
            "PUT",
            f"/models/{name}/aliases/{alias}",
            json={"version": version},
            headers=headers,
        )
        return self.refresh()
