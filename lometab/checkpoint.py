"""The state of a training run on disk, from which it goes on bit by bit."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from lometab.config import TrainConfig, stored_config
from lometab.errors import ModelFileError
from lometab.nn import LoMETab
from lometab.optimizer import AdamW

_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What one epoch of training came to."""

    epoch: int
    """Epochs done, counted from 1."""
    max_epochs: int
    """Epochs at most."""
    train_loss: float
    """Mean over members and rows of the loss during the epoch."""
    val_score: float
    """The ensemble on validation: RMSE in target units (less is better), accuracy."""
    member_score: float
    """Mean of the members' own scores on validation."""
    diversity: float | None
    """Ambiguity in squared target units, or pairwise KL; None for a single member."""
    best_epoch: int
    """The epoch with the best validation score so far."""
    best_score: float
    """That score."""
    seconds: float
    """Time spent in training so far, earlier attempts of a resumed run included."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Checkpoint:
    """All that is needed to go on after an epoch as if nothing had happened."""

    config: TrainConfig
    """The settings of the run; a resumed run must have the same."""
    history: list[Progress]
    """The epochs done."""
    tensors: dict[str, Tensor]
    """`model.*`, `best.*`, `average.*` (weights), `optimizer.*`, `rng.*` (states)."""
    scaler: dict[str, float]
    """State of the loss scaler; empty where it is not used."""

    @property
    def epoch(self) -> int:
        return self.history[-1].epoch

    @property
    def is_finished(self) -> bool:
        """Whether it holds the end of a run, and nothing with which to go on."""
        return not any(name.startswith("model.") for name in self.tensors)

    def state_of(self, prefix: str, device: torch.device) -> dict[str, Tensor]:
        """Copies on the device of the tensors with this prefix, named without it."""
        return {
            name.removeprefix(prefix): value.to(device, copy=True)
            for name, value in self.tensors.items()
            if name.startswith(prefix)
        }

    def save(self, directory: Path | str) -> None:
        """Write into the directory, in place of an earlier checkpoint there.

        The JSON file names the file with the tensors and is replaced in one step, so
        that a crash at any moment leaves the earlier or the new checkpoint.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        tensors = directory / f"epoch-{self.epoch}.safetensors"
        save_file(self.tensors, tensors)
        text = json.dumps(
            {
                "version": _VERSION,
                "tensors": tensors.name,
                "config": asdict(self.config),
                "history": [asdict(progress) for progress in self.history],
                "scaler": self.scaler,
            }
        )
        partial = directory / "checkpoint.json.partial"
        partial.write_text(text)
        os.replace(partial, directory / "checkpoint.json")
        for file in directory.glob("epoch-*.safetensors"):
            if file != tensors:
                file.unlink()

    @classmethod
    def load(cls, directory: Path | str) -> Self:
        """Read what `save` wrote; FileNotFoundError where there is nothing."""
        directory = Path(directory)
        text = (directory / "checkpoint.json").read_text()
        try:
            state = json.loads(text)
            if state["version"] != _VERSION:
                raise ValueError(f"its version is {state['version']}")
            return cls(
                config=stored_config(state["config"]),
                history=[Progress(**progress) for progress in state["history"]],
                tensors=load_file(directory / Path(state["tensors"]).name),
                scaler=state["scaler"],
            )
        except (ValueError, KeyError, TypeError, SafetensorError, OSError) as error:
            raise ModelFileError(
                f"{directory} holds no checkpoint that can be resumed: {error!r}"
            ) from error


def take_checkpoint(
    model: LoMETab,
    kept: LoMETab,
    optimizer: AdamW,
    scaler: torch.amp.GradScaler,
    best: dict[str, Tensor],
    history: list[Progress],
    config: TrainConfig,
) -> Checkpoint:
    """A copy of the whole state at the end of an epoch.

    Args:
        kept: what is validated: the model itself, or the average of its weights.
    """
    tensors = {"rng.cpu": torch.get_rng_state()}
    if model.head.weight.is_cuda:
        tensors["rng.cuda"] = torch.cuda.get_rng_state(model.head.weight.device)
    tensors |= {f"model.{name}": value for name, value in model.state_dict().items()}
    tensors |= {f"best.{name}": value for name, value in best.items()}
    if kept is not model:
        state = kept.state_dict()
        tensors |= {f"average.{name}": value for name, value in state.items()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            tensors[f"optimizer.{name}.{key}"] = value
    return Checkpoint(
        config=config,
        history=[*history],
        tensors={name: value.cpu().clone() for name, value in tensors.items()},
        scaler=scaler.state_dict(),
    )


def restore_(
    checkpoint: Checkpoint,
    model: LoMETab,
    kept: LoMETab,
    optimizer: AdamW,
    scaler: torch.amp.GradScaler,
) -> dict[str, Tensor]:
    """Put the state back where it was; returns the best weights so far."""
    device = model.head.weight.device
    model.load_state_dict(checkpoint.state_of("model.", device))
    if kept is not model:
        kept.load_state_dict(checkpoint.state_of("average.", device))
    for name, parameter in model.named_parameters():
        optimizer.state[parameter] = checkpoint.state_of(f"optimizer.{name}.", device)
    if checkpoint.scaler:
        scaler.load_state_dict(checkpoint.scaler)
    torch.set_rng_state(checkpoint.tensors["rng.cpu"])
    if "rng.cuda" in checkpoint.tensors and device.type == "cuda":
        torch.cuda.set_rng_state(checkpoint.tensors["rng.cuda"], device)
    return checkpoint.state_of("best.", device)
