"""Training: one visible loop, early stopping, checkpoints that resume bit by bit."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from lometab.config import Task, TrainConfig
from lometab.errors import ModelFileError, TrainingDiverged
from lometab.nn import LoMETab, compute_bins

_MAX_GRAD_NORM = 1.0
# Numbers in the widest activation of an evaluation batch: 64 MiB in float32.
_MAX_ACTIVATION = 2**24
_MIN_PROBABILITY = 1e-12
# A constant answer has a loss of about one; a run that never got below this is none.
_HOPELESS_LOSS = 1000.0
_CHECKPOINT_VERSION = 1
# The largest block that glibc takes as an example of what to keep (see _keep_freed).
_MAX_KEPT_BYTES = 2**25 - 2**13


# What goes in and what comes out


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of one part of a split (train or validation), ready for the model."""

    x_num: NDArray[np.float32]
    """Numeric features, transformed, `(N, n_numeric)`."""
    x_cat: NDArray[np.int64]
    """Codes of the categorical features, `(N, n_categorical)`."""
    y: NDArray[Any]
    """The standardised target (float32) or the index of the class (int64), `(N,)`."""


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
class Fit:
    """A trained model and how it came about."""

    model: LoMETab
    """The model with the weights of the best epoch, in eval mode, on the CPU."""
    history: list[Progress]
    """One entry per epoch."""
    best_epoch: int
    """The epoch whose weights the model has."""
    best_score: float
    """The validation score of that epoch."""
    stopped_early: bool
    """Whether the caller asked to stop (not: whether patience ran out)."""
    seconds: float
    """Time spent in training, earlier attempts of a resumed run included."""

    def to_checkpoint(self, config: TrainConfig) -> "Checkpoint":
        """From which `fit` gives this fit again, without training."""
        state = self.model.state_dict()
        return Checkpoint(
            config=config,
            history=[*self.history],
            tensors={f"best.{name}": value.clone() for name, value in state.items()},
            scaler={},
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Checkpoint:
    """All that is needed to go on after an epoch as if nothing had happened."""

    config: TrainConfig
    """The settings of the run; a resumed run must have the same."""
    history: list[Progress]
    """The epochs done."""
    tensors: dict[str, Tensor]
    """`model.*`, `best.*` (weights), `optimizer.*` and `rng.*` (states)."""
    scaler: dict[str, float]
    """State of the loss scaler; empty where it is not used."""

    @property
    def epoch(self) -> int:
        return self.history[-1].epoch

    @property
    def is_finished(self) -> bool:
        """Whether it holds the end of a run, and nothing with which to go on."""
        return not any(name.startswith("model.") for name in self.tensors)

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
                "version": _CHECKPOINT_VERSION,
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
            if state["version"] != _CHECKPOINT_VERSION:
                raise ValueError(f"its version is {state['version']}")
            return cls(
                config=TrainConfig(**state["config"]),
                history=[Progress(**progress) for progress in state["history"]],
                tensors=load_file(directory / Path(state["tensors"]).name),
                scaler=state["scaler"],
            )
        except (ValueError, KeyError, TypeError, SafetensorError, OSError) as error:
            raise ModelFileError(
                f"{directory} holds no checkpoint that can be resumed: {error!r}"
            ) from error


# The parts of the loop


def member_loss(outputs: Tensor, y: Tensor, task: Task) -> Tensor:
    """Mean over members of each member's own loss, never the loss of the mean.

    Args:
        outputs: `(B, K, D_out)`.
        y: `(B,)`, or `(B, K)` where each member has its own rows.
    """
    y = y[:, None].expand(outputs.shape[:2]) if y.ndim == 1 else y  # (B, K)
    if task == "regression":
        return F.mse_loss(outputs.squeeze(-1), y)
    if task == "binary":
        return F.binary_cross_entropy_with_logits(outputs.squeeze(-1), y.float())
    return F.cross_entropy(outputs.flatten(0, 1), y.flatten())


def predict(model: LoMETab, x_num: Tensor, x_cat: Tensor) -> Tensor:
    """Every member's raw output, `(N, K, D_out)`, in batches that fit in memory."""
    config = model.config
    width = max(config.k * config.d_block, model.d_in, x_num.shape[1] * config.n_bins)
    n_rows = max(_MAX_ACTIVATION // width, 1)
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        batches = zip(
            torch.split(x_num, n_rows), torch.split(x_cat, n_rows), strict=True
        )
        outputs = torch.cat([model(*batch) for batch in batches])
    model.train(was_training)
    return outputs


def score(
    outputs: Tensor, y: Tensor, *, task: Task, y_std: float
) -> tuple[float, float, float | None]:
    """The ensemble's score, the mean of its members' scores, and their diversity.

    Scores are the RMSE in target units for regression and the accuracy else. The
    diversity is the ambiguity or the pairwise KL of the paper's appendix, and None
    for a single member. Sums are in float64.
    """
    n_rows, k, _ = outputs.shape
    if task == "regression":
        members = outputs.squeeze(-1).double() * y_std  # (N, K)
        y = y.double()[:, None] * y_std  # (N, 1)
        mean = members.mean(1, keepdim=True)  # (N, 1)
        ensemble_score = (mean - y).square().mean().sqrt()
        member_score = (members - y).square().mean(0).sqrt().mean()
        ambiguity = (members - mean).square().mean()
        return (
            ensemble_score.item(),
            member_score.item(),
            ambiguity.item() if k > 1 else None,
        )
    n_right, n_member_right, divergence = 0.0, 0.0, 0.0
    chunks = zip(torch.split(outputs, 8192), torch.split(y, 8192), strict=True)
    for out, target in chunks:
        p = _probabilities(out).double()  # (N, K, C)
        n_right += (p.mean(1).argmax(-1) == target).sum().item()
        n_member_right += (p.argmax(-1) == target[:, None]).sum().item()
        # The mean over all pairs of sum_c (p_i - p_j)(log p_i - log p_j) / 2 is the
        # sample covariance over members of p and log p, summed over classes.
        p = p.clamp_min(_MIN_PROBABILITY)
        log_p = p.log()
        p = p - p.mean(1, keepdim=True)
        log_p = log_p - log_p.mean(1, keepdim=True)
        divergence += (p * log_p).sum().item()
    return (
        n_right / n_rows,
        n_member_right / (n_rows * k),
        divergence / (n_rows * (k - 1)) if k > 1 else None,
    )


def _probabilities(outputs: Tensor) -> Tensor:
    """Logits `(N, K, D_out)` to probabilities `(N, K, C)`."""
    if outputs.shape[-1] > 1:
        return outputs.softmax(-1)
    p = outputs.sigmoid()
    return torch.cat([1 - p, p], dim=-1)


def _parameter_groups(model: LoMETab, weight_decay: float) -> list[dict[str, Any]]:
    """As TabM: biases and the linear term of the embedding do not decay."""
    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for name, parameter in model.named_parameters():
        is_exempt = name.endswith("bias") or name.startswith("embedding.linear0.")
        groups[not is_exempt].append(parameter)
    return [
        {"params": groups[True], "weight_decay": weight_decay},
        {"params": groups[False], "weight_decay": 0.0},
    ]


def _batches(n: int, config: TrainConfig, device: torch.device) -> Iterator[Tensor]:
    """Row numbers of an epoch's batches: `(B,)` if shared by all members, `(B, K)`."""
    n_orders = 1 if config.share_batches else config.k
    orders = torch.empty(n_orders, n, dtype=torch.int32, device=device)
    for order in orders:
        torch.randperm(n, dtype=torch.int32, device=device, out=order)
    order = orders[0] if config.share_batches else orders.T  # (N,) or (N, K)
    yield from torch.split(order, config.batch_size)


def _is_better(value: float, best: float, task: Task) -> bool:
    return value < best if task == "regression" else value > best


def _diverged(what: str, epoch: int, config: TrainConfig) -> TrainingDiverged:
    return TrainingDiverged(
        f"{what} in epoch {epoch} at learning rate {config.lr:g}: training diverged."
        f" Try a smaller lr (say {config.lr / 10:g}) or a smaller sigma_init, and look"
        " for extreme numbers in the target and the features."
    )


def _to_tensor(array: NDArray[Any], dtype: Any, device: torch.device) -> Tensor:
    # Torch warns about arrays that it could not write to; only those are copied.
    return torch.from_numpy(np.require(array, dtype, ["C", "W"])).to(device)


def _keep_freed() -> None:
    """Let memory that one step frees be there for the next one.

    glibc returns what is free beyond twice the largest block freed so far, and the
    system clears each page when it hands it out again: a tenth of a small step.
    """
    torch.empty(_MAX_KEPT_BYTES, dtype=torch.uint8)


def _snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


# The loop


def fit(
    train: Part,
    val: Part,
    *,
    task: Task,
    cardinalities: Sequence[int],
    n_classes: int | None = None,
    y_std: float = 1.0,
    config: TrainConfig,
    device: str = "cpu",
    prepare: Callable[[LoMETab], None] | None = None,
    on_epoch: Callable[[Progress], bool | None] | None = None,
    on_checkpoint: Callable[[Checkpoint], None] | None = None,
    checkpoint_seconds: float = 30.0,
    is_checkpoint_wanted: Callable[[], bool] | None = None,
    resume: Checkpoint | None = None,
) -> Fit:
    """Train a model on `train` until its score on `val` stops getting better.

    The same arguments give the same weights on the CPU at the same number of threads.
    The state of torch's random numbers is the caller's again afterwards.

    Args:
        train: the rows to learn from.
        val: the rows that choose the epoch.
        task: decides the loss and the score.
        cardinalities: the number of levels of each categorical feature.
        n_classes: the number of classes; needed for multiclass only.
        y_std: what a standardised target is multiplied with to be in its own units.
        config: the model and how to train it.
        device: `cpu` or `cuda`.
        prepare: changes a new model before the first step, for experiments.
        on_epoch: called after each epoch. Returning True stops and keeps the best
            epoch so far; what it raises (`TrainingCancelled`) goes to the caller.
        on_checkpoint: called at the end of an epoch with a copy of the whole state,
            when `checkpoint_seconds` have passed since the last one.
        checkpoint_seconds: the least time between checkpoints.
        is_checkpoint_wanted: asked at the end of each epoch; True brings a checkpoint
            forward, as when the machine is about to go down.
        resume: where an earlier run with the same arguments is to be taken up; one
            that is finished is given as it is.

    Raises:
        TrainingDiverged: the loss, the gradient or the outputs are no finite numbers,
            or the loss was absurdly large in all epochs.
    """
    if len(train.y) == 0 or len(val.y) == 0:
        raise ValueError(
            f"train and val must have rows, however: {len(train.y)=}, {len(val.y)=}"
        )
    d_out = 1
    if task == "multiclass":
        if n_classes is None:
            raise ValueError(f"{task=} needs n_classes, however: {n_classes=}")
        d_out = n_classes
    if resume is not None and resume.config != config:
        raise ValueError(
            "resume must be a checkpoint of a run with the same config, however:"
            f" {resume.config} is not {config}"
        )
    place = torch.device(device)
    is_cuda = place.type == "cuda"
    _keep_freed()
    y_dtype = np.float32 if task == "regression" else np.int64
    x_num, x_num_val = (_to_tensor(p.x_num, np.float32, place) for p in (train, val))
    x_cat, x_cat_val = (_to_tensor(p.x_cat, np.int64, place) for p in (train, val))
    y, y_val = (_to_tensor(p.y, y_dtype, place) for p in (train, val))

    is_bf16 = is_cuda and torch.cuda.is_bf16_supported(including_emulation=False)
    amp_dtype = torch.bfloat16 if is_bf16 else torch.float16
    scaler = torch.amp.GradScaler(place.type, enabled=is_cuda and not is_bf16)

    with torch.random.fork_rng([place] if is_cuda else []):
        torch.manual_seed(config.seed)
        model = LoMETab(
            bins=compute_bins(x_num.cpu(), config.n_bins),
            cardinalities=cardinalities,
            d_out=d_out,
            config=config,
        )
        if resume is not None and resume.is_finished:
            return _finish(resume, model)
        if prepare is not None:
            prepare(model)
        model.to(place)
        parameters = [*model.parameters()]
        optimizer = torch.optim.AdamW(
            _parameter_groups(model, config.weight_decay), lr=config.lr, fused=True
        )
        history: list[Progress] = []
        best = _snapshot(model)
        if resume is not None:
            history = [*resume.history]
            best = _restore_(resume, model, optimizer, scaler)
        best_epoch = history[-1].best_epoch if history else 0
        worst = math.inf if task == "regression" else -math.inf
        best_score = history[-1].best_score if history else worst

        is_stopped = False
        started = time.perf_counter() - (history[-1].seconds if history else 0.0)
        checkpoint_due = time.perf_counter() + checkpoint_seconds
        for epoch in range(len(history) + 1, config.max_epochs + 1):
            model.train()
            total, max_norm = torch.zeros(2, device=place)
            for rows in _batches(len(y), config, place):
                with torch.autocast(place.type, amp_dtype, enabled=is_cuda):
                    outputs = model(x_num[rows], x_cat[rows])  # (B, K, D_out)
                loss = member_loss(outputs.float(), y[rows], task)
                optimizer.zero_grad()
                scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
                scaler.unscale_(optimizer)
                norm = nn.utils.clip_grad_norm_(
                    parameters, _MAX_GRAD_NORM, foreach=True
                )
                scaler.step(optimizer)
                scaler.update()
                total += loss.detach() * len(rows)
                max_norm = torch.maximum(max_norm, norm)
            train_loss = total.item() / len(y)  # the first wait for the device
            if not math.isfinite(train_loss):
                raise _diverged(f"The loss became {train_loss}", epoch, config)
            # Clipping turns infinite gradients into none: nothing is learned any more.
            # (The scaler tries scales that are too large, on purpose.)
            if not max_norm.isfinite() and not scaler.is_enabled():
                raise _diverged(f"The gradient became {max_norm}", epoch, config)

            outputs = predict(model, x_num_val, x_cat_val)
            if not outputs.isfinite().all():
                raise _diverged("The outputs stopped being finite", epoch, config)
            val_score, member_score, diversity = score(
                outputs, y_val, task=task, y_std=y_std
            )
            if not math.isfinite(val_score):
                raise _diverged(f"The score became {val_score}", epoch, config)
            if _is_better(val_score, best_score, task):
                best, best_epoch, best_score = _snapshot(model), epoch, val_score
            progress = Progress(
                epoch=epoch,
                max_epochs=config.max_epochs,
                train_loss=train_loss,
                val_score=val_score,
                member_score=member_score,
                diversity=diversity,
                best_epoch=best_epoch,
                best_score=best_score,
                seconds=time.perf_counter() - started,
            )
            history.append(progress)
            if on_epoch is not None and on_epoch(progress):
                is_stopped = True
                break
            if config.patience is not None and epoch - best_epoch >= config.patience:
                break
            is_due = time.perf_counter() >= checkpoint_due or (
                is_checkpoint_wanted is not None and is_checkpoint_wanted()
            )
            if on_checkpoint is not None and is_due:
                on_checkpoint(
                    _take_checkpoint(model, optimizer, scaler, best, history, config)
                )
                checkpoint_due = time.perf_counter() + checkpoint_seconds

    last = history[-1]
    variance = y.var(correction=0).item() if task == "regression" else 1.0
    hopeless = _HOPELESS_LOSS * max(1.0, variance)
    if min(p.train_loss for p in history) > hopeless and not is_stopped:
        raise _diverged(f"The loss still was {last.train_loss:.3g}", last.epoch, config)
    model.load_state_dict(best)
    return Fit(
        model=model.cpu().eval(),
        history=history,
        best_epoch=best_epoch,
        best_score=best_score,
        stopped_early=is_stopped,
        seconds=time.perf_counter() - started,
    )


def _finish(checkpoint: Checkpoint, model: LoMETab) -> Fit:
    """What a run that is finished came to."""
    model.load_state_dict(_under("best.", checkpoint, torch.device("cpu")))
    last = checkpoint.history[-1]
    return Fit(
        model=model.eval(),
        history=[*checkpoint.history],
        best_epoch=last.best_epoch,
        best_score=last.best_score,
        stopped_early=False,
        seconds=last.seconds,
    )


def _take_checkpoint(
    model: LoMETab,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    best: dict[str, Tensor],
    history: list[Progress],
    config: TrainConfig,
) -> Checkpoint:
    tensors = {"rng.cpu": torch.get_rng_state()}
    if model.head.weight.is_cuda:
        tensors["rng.cuda"] = torch.cuda.get_rng_state(model.head.weight.device)
    tensors |= {f"model.{name}": value for name, value in model.state_dict().items()}
    tensors |= {f"best.{name}": value for name, value in best.items()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            tensors[f"optimizer.{name}.{key}"] = value
    return Checkpoint(
        config=config,
        history=[*history],
        tensors={name: value.cpu().clone() for name, value in tensors.items()},
        scaler=scaler.state_dict(),
    )


def _restore_(
    checkpoint: Checkpoint,
    model: LoMETab,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
) -> dict[str, Tensor]:
    """Put the state back where it was; returns the best weights so far."""
    device = model.head.weight.device
    model.load_state_dict(_under("model.", checkpoint, device))
    for name, parameter in model.named_parameters():
        optimizer.state[parameter] = _under(f"optimizer.{name}.", checkpoint, device)
    if checkpoint.scaler:
        scaler.load_state_dict(checkpoint.scaler)
    torch.set_rng_state(checkpoint.tensors["rng.cpu"])
    if "rng.cuda" in checkpoint.tensors and device.type == "cuda":
        torch.cuda.set_rng_state(checkpoint.tensors["rng.cuda"], device)
    return _under("best.", checkpoint, device)


def _under(
    prefix: str, checkpoint: Checkpoint, device: torch.device
) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value.to(device, copy=True)
        for name, value in checkpoint.tensors.items()
        if name.startswith(prefix)
    }
