"""Asks a service as somebody with MLServer would: by its types, codecs and command.

MLServer cannot be installed beside us, so this is run by the Python of an environment
of its own (`make mlserver`), and imports nothing of ours. Questions come as JSON on
standard input, what was answered goes to standard output.
"""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pandas as pd
from mlserver.codecs import NumpyCodec, PandasCodec, StringCodec
from mlserver.types import (
    InferenceRequest,
    InferenceResponse,
    MetadataModelResponse,
    MetadataServerResponse,
    RequestOutput,
)

OUTPUTS = ("mean", "members", "label")


def main() -> None:
    asked = json.load(sys.stdin)
    frame = pd.DataFrame(asked["columns"])
    for name in frame.select_dtypes(exclude="number"):
        frame[name] = frame[name].astype(object)
    peer = Peer(asked["address"], asked["model"], asked["key"])
    whole = frame.dropna()
    commands = {
        "alone": (),
        "together": ("--batch-size", "3", "--workers", "1"),
        "binary": ("--binary-data",),
    }
    found = {
        "metadata": peer.read_metadata(),
        "codecs": peer.ask(frame),
        "whole": [int(i) for i in whole.index],
        "commands": {name: peer.run(whole, *each) for name, each in commands.items()},
    }
    json.dump(found, sys.stdout)


class Peer:
    def __init__(self, address: str, model: str, key: str | None) -> None:
        self.address, self.model = address, model
        self.headers = {} if key is None else {"Authorization": f"Bearer {key}"}

    def read_metadata(self) -> dict[str, Any]:
        """What MLServer's types keep of it."""
        server = MetadataServerResponse.model_validate_json(self.fetch("/v2"))
        path = f"/v2/models/{self.model}"
        model = MetadataModelResponse.model_validate_json(self.fetch(path))
        return {"server": server.model_dump(), "model": model.model_dump()}

    def ask(self, frame: pd.DataFrame) -> dict[str, Any]:
        """One request, made and read by the codecs; missing values are null."""
        request = encode(frame)
        body = request.model_dump_json().encode()
        answer = self.fetch(f"/v2/models/{self.model}/infer", body)
        return decode(InferenceResponse.model_validate_json(answer))

    def run(self, frame: pd.DataFrame, *options: str) -> list[dict[str, Any]]:
        """`mlserver infer`, with a request of two rows in each line of its file."""
        path = Path("requests.jsonl")
        requests = [encode(frame[i : i + 2]) for i in range(0, len(frame), 2)]
        path.write_text("".join(r.model_dump_json() + "\n" for r in requests))
        headers = [f"{name}:{value}" for name, value in self.headers.items()]
        command = [
            *(Path(sys.executable).with_name("mlserver"), "infer"),
            *("--url", self.address, "--model-name", self.model),
            *("--input-data-path", path, "--output-data-path", "answers.jsonl"),
            *(part for header in headers for part in ("-H", header)),
            *options,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        lines = [*map(json.loads, Path("answers.jsonl").read_text().splitlines())]
        faults = [line["error"] for line in lines if "error" in line]
        assert not faults, faults
        lines.sort(key=lambda line: line["parameters"]["batch_index"])
        return [decode(InferenceResponse.model_validate(line)) for line in lines]

    def fetch(self, path: str, body: bytes | None = None) -> bytes:
        headers = {"Content-Type": "application/json", **self.headers}
        url = f"http://{self.address}{path}"
        request = urllib.request.Request(url, body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bytes(answer.read())


def encode(frame: pd.DataFrame) -> InferenceRequest:
    request = PandasCodec.encode_request(frame, use_bytes=False)
    request.outputs = [RequestOutput(name=name) for name in OUTPUTS]
    return request


def decode(response: InferenceResponse) -> dict[str, Any]:
    outputs = {output.name: output for output in response.outputs}
    found = {
        name: NumpyCodec.decode_output(outputs[name]).tolist()
        for name in ("mean", "members")
    }
    return {**found, "label": StringCodec.decode_output(outputs["label"])}


if __name__ == "__main__":
    main()
