"""Training: one visible loop, early stopping, checkpoints that resume bit by bit."""

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from lometab.batches import Part, Rows, Source, load
from lometab.checkpoint import Checkpoint, Progress, restore_, take_checkpoint
from lometab.config import Task, TrainConfig
from lometab.embedding import compute_bins
from lometab.errors import ConfigError, TrainingDiverged
from lometab.losses import member_loss, nll, score
from lometab.nn import LoMETab
from lometab.optimizer import AdamW
from lometab.row_file import RowFile

__all__ = [
    "Checkpoint",
    "Fit",
    "Part",
    "Progress",
    "choose_device",
    "fit",
    "predict",
    "use_threads",
]

_MAX_GRAD_NORM = 1.0
# Numbers in the widest activation of an evaluation batch: 64 MiB in float32.
_MAX_ACTIVATION = 2**24
# A constant answer has a loss of about one; a run that never got below this is none.
_HOPELESS_LOSS = 1000.0
# What the learning rate is multiplied with when `lr_patience` has run out.
_LR_FACTOR = 0.3


# What comes out


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
    members: tuple[int, ...] | None = None
    """Which members of the network that was trained the model has; None: all."""
    trial: int | None = None
    """The trial of a search that trained it, if one did."""

    @property
    def k(self) -> int:
        """Members of the model."""
        return self.model.config.k

    def to_checkpoint(self, config: TrainConfig) -> Checkpoint:
        """From which `fit` gives this fit again, without training."""
        state = self.model.state_dict()
        return Checkpoint(
            config=config,
            history=[*self.history],
            tensors={f"best.{name}": value.clone() for name, value in state.items()},
            scaler={},
        )


# The parts of the loop


def predict(model: LoMETab, x_num: Tensor, x_cat: Tensor) -> Tensor:
    """Every member's raw output, `(N, K, D_out)`, in batches that fit in memory."""
    config = model.config
    d_in = model.d_in * (len(model.embeddings) or 1)
    width = max(config.k * config.d_block, d_in, x_num.shape[1] * config.n_bins)
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


def _parameter_groups(
    model: LoMETab, weight_decay: float, *, decay_masks: bool = True
) -> list[dict[str, Any]]:
    """As TabM: biases and the linear term of the embedding do not decay."""
    masks = () if decay_masks else (".a", ".b")
    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for name, parameter in model.named_parameters():
        is_exempt = name.endswith(("bias", *masks))
        is_exempt |= "linear0." in name  # of the embedding, or of each member's
        groups[not is_exempt].append(parameter)
    return [
        {"params": groups[True], "weight_decay": weight_decay},
        {"params": groups[False], "weight_decay": 0.0},
    ]


def _average_(average: LoMETab, model: LoMETab, step: int, decay: float) -> None:
    """Move the average towards the weights after their `step`-th step.

    It begins as a mean of the last tenth of all steps: what it holds of the start is
    forgotten early, and a small table, whose steps are few, is not left behind.
    """
    decay = min(decay, (1 + step) / (10 + step))
    with torch.no_grad():
        torch._foreach_lerp_([*average.parameters()], [*model.parameters()], 1 - decay)


def _learning_rate(config: TrainConfig, history: Sequence[Progress]) -> float:
    """`lr`, less by a factor for each `lr_patience` epochs without a better score."""
    lr, since = config.lr, 0
    if config.lr_patience is None:
        return lr
    for done in history:
        if done.epoch - max(done.best_epoch, since) >= config.lr_patience:
            lr, since = lr * _LR_FACTOR, done.epoch
    return lr


def _is_better(value: float, best: float, task: Task) -> bool:
    return value < best if task == "regression" else value > best


def _diverged(what: str, epoch: int, config: TrainConfig) -> TrainingDiverged:
    return TrainingDiverged(
        f"{what} in epoch {epoch} at learning rate {config.lr:g}: training diverged."
        f" Try a smaller lr (such as {config.lr / 10:g}) or a smaller sigma_init, and"
        " look for extreme numbers in the target and the features."
    )


@contextmanager
def use_threads(n_threads: int | None) -> Iterator[None]:
    """Let torch have so many threads meanwhile; None: as it is."""
    before = torch.get_num_threads()
    if n_threads is not None:
        torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def choose_device(device: str) -> str:
    """`cpu` or `cuda` for one that may be `auto`; ConfigError if it is not there."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    is_known = isinstance(device, str) and device.split(":")[0] in ("cpu", "cuda")
    if not is_known:
        raise ConfigError(f"device must be auto, cpu or cuda, however: {device=}")
    if device != "cpu" and not torch.cuda.is_available():
        raise ConfigError(f"{device=} needs a GPU, and torch finds none here")
    return device


def _snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


class _Measured(NamedTuple):
    """What an epoch came to on the validation rows."""

    score: float
    member_score: float
    diversity: float | None
    merit: float
    """What chooses the epoch: the score, or minus the NLL (more is better too)."""


@dataclass(frozen=True, eq=False)
class _Best:
    """The weights that are kept so far."""

    weights: dict[str, Tensor]
    epoch: int
    score: float
    merit: float

    @classmethod
    def of_nothing(cls, model: LoMETab, task: Task) -> Self:
        worst = math.inf if task == "regression" else -math.inf
        return cls(_snapshot(model), 0, worst, worst)


@dataclass(frozen=True, eq=False)
class _Validation:
    """The rows that choose the epoch."""

    rows: Rows
    task: Task
    y_std: float
    config: TrainConfig

    def measure(self, model: LoMETab, epoch: int) -> _Measured:
        outputs = predict(model, self.rows.x_num, self.rows.x_cat)
        if not outputs.isfinite().all():
            raise _diverged("The outputs stopped being finite", epoch, self.config)
        found = score(
            outputs,
            self.rows.y,
            task=self.task,
            y_std=self.y_std,
            weight=self.rows.weight,
        )
        if not math.isfinite(found[0]):
            raise _diverged(f"The score became {found[0]}", epoch, self.config)
        return _Measured(*found, self._merit(outputs, found[0]))

    def find_best(
        self, model: LoMETab, weights: dict[str, Tensor], history: list[Progress]
    ) -> _Best:
        """Of a run that is resumed: its best weights, with the merit they had."""
        last, at_best = history[-1], copy.deepcopy(model)
        last = history[-1]
        merit = last.best_score
        if self._is_on_nll:
            at_best = copy.deepcopy(model)
            at_best.load_state_dict(weights)
            outputs = predict(at_best, self.rows.x_num, self.rows.x_cat)
            merit = self._merit(outputs, last.best_score)
        return _Best(weights, last.best_epoch, last.best_score, merit)

    @property
    def _is_on_nll(self) -> bool:
        return self.config.stop_on == "nll" and self.task != "regression"

    def _merit(self, outputs: Tensor, own_score: float) -> float:
        if self._is_on_nll:
            return -nll(outputs, self.rows.y, self.rows.weight)
        return own_score


class _Run:
    """A model in training, and all that its steps move."""

    def __init__(
        self, model: LoMETab, source: Source, task: Task, config: TrainConfig
    ) -> None:
        self.model, self.source, self.task, self.config = model, source, task, config
        self.device = source.device
        self._is_cuda = self.device.type == "cuda"
        is_bf16 = self._is_cuda and torch.cuda.is_bf16_supported(
            including_emulation=False
        )
        self._amp_dtype = torch.bfloat16 if is_bf16 else torch.float16
        self.scaler = torch.amp.GradScaler(
            self.device.type, enabled=self._is_cuda and not is_bf16
        )
        self._parameters = [*model.parameters()]
        groups = _parameter_groups(
            model, config.weight_decay, decay_masks=config.decay_masks
        )
        self.optimizer = AdamW(groups, lr=config.lr)
        self.kept = copy.deepcopy(model) if config.ema else model
        """What is validated and kept: the model, or the average of its weights."""

    def train_epoch(
        self, epoch: int, lr: float, is_stop_wanted: Callable[[], bool] | None
    ) -> tuple[float, bool]:
        """The mean loss, and whether `is_stop_wanted` has ended the epoch early."""
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        total, max_norm = torch.zeros(2, device=self.device)
        n_seen, is_stopped = 0, False
        n_before = (epoch - 1) * math.ceil(self.source.n_rows / self.config.batch_size)
        for step, batch in enumerate(self.source.batches(self.config), n_before + 1):
            loss, norm = self._step(batch)
            if self.kept is not self.model:
                _average_(self.kept, self.model, step, self.config.ema)
            total += loss * len(batch.y)
            max_norm = torch.maximum(max_norm, norm)
            n_seen += len(batch.y)
            if is_stop_wanted is not None and is_stop_wanted():
                is_stopped = True
                break
        train_loss = total.item() / n_seen  # the first wait for the device
        if not math.isfinite(train_loss):
            raise _diverged(f"The loss became {train_loss}", epoch, self.config)
        # Clipping turns infinite gradients into none: nothing is learned any more.
        # (The scaler tries scales that are too large, on purpose.)
        if not max_norm.isfinite() and not self.scaler.is_enabled():
            raise _diverged(f"The gradient became {max_norm}", epoch, self.config)
        return train_loss, is_stopped

    def _step(self, batch: Rows) -> tuple[Tensor, Tensor]:
        """Loss and norm of the gradient."""
        with torch.autocast(self.device.type, self._amp_dtype, enabled=self._is_cuda):
            outputs = self.model(batch.x_num, batch.x_cat)  # (B, K, D_out)
        loss = member_loss(outputs.float(), batch.y, self.task, batch.weight)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self.scaler.unscale_(self.optimizer)  # type: ignore[arg-type]
        norm = nn.utils.clip_grad_norm_(self._parameters, _MAX_GRAD_NORM, foreach=True)
        self.scaler.step(self.optimizer)  # type: ignore[arg-type]
        self.scaler.update()
        return loss.detach(), norm

    def take_checkpoint(
        self, best: dict[str, Tensor], history: list[Progress]
    ) -> Checkpoint:
        return take_checkpoint(
            self.model,
            self.kept,
            self.optimizer,
            self.scaler,
            best,
            history,
            self.config,
        )


# The loop


def fit(
    train: Part | RowFile,
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
    is_stop_wanted: Callable[[], bool] | None = None,
    resume: Checkpoint | None = None,
) -> Fit:
    """Train a model on `train` until its score on `val` stops getting better.

    The same arguments give the same weights on the CPU at the same number of threads.
    The state of torch's random numbers is the caller's again afterwards.

    Args:
        train: the rows to learn from, in memory or in a file.
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
        is_stop_wanted: asked after each step; True ends the epoch there, and with it
            the training: on a large table an epoch is long. What it has learned by then
            is validated as that of a whole epoch is.
        resume: where an earlier run with the same arguments is to be taken up; one
            that is finished is given as it is.

    Raises:
        TrainingDiverged: the loss, the gradient or the outputs are no finite numbers,
            or the loss was absurdly large in all epochs.
    """
    if train.n_rows == 0 or val.n_rows == 0:
        raise ValueError(
            f"train and val must have rows, however: {train.n_rows=}, {val.n_rows=}"
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
    where = torch.device(device)
    source = Source(train, task, where)
    rows = load(val, task, where, weight=np.float64)
    validation = _Validation(rows, task, y_std, config)
    with torch.random.fork_rng([where] if where.type == "cuda" else []):
        torch.manual_seed(config.seed)
        model = LoMETab(
            bins=compute_bins(source.x_num, config.n_bins, config.bin_edges),
            cardinalities=cardinalities,
            d_out=d_out,
            config=config,
        )
        if resume is not None and resume.is_finished:
            return _finish(resume, model)
        if prepare is not None:
            prepare(model)
        run = _Run(model.to(where), source, task, config)
        history = [] if resume is None else [*resume.history]
        if resume is None:
            best = _Best.of_nothing(model, task)
        else:
            weights = restore_(resume, model, run.kept, run.optimizer, run.scaler)
            best = validation.find_best(model, weights, history)

        is_stopped = False
        started = time.perf_counter() - (history[-1].seconds if history else 0.0)
        checkpoint_due = time.perf_counter() + checkpoint_seconds
        for epoch in range(len(history) + 1, config.max_epochs + 1):
            lr = _learning_rate(config, history)
            train_loss, is_stopped = run.train_epoch(epoch, lr, is_stop_wanted)
            measured = validation.measure(run.kept, epoch)
            if _is_better(measured.merit, best.merit, task):
                best = _Best(_snapshot(run.kept), epoch, measured.score, measured.merit)
            progress = Progress(
                epoch=epoch,
                max_epochs=config.max_epochs,
                train_loss=train_loss,
                val_score=measured.score,
                member_score=measured.member_score,
                diversity=measured.diversity,
                best_epoch=best.epoch,
                best_score=best.score,
                seconds=time.perf_counter() - started,
            )
            history.append(progress)
            if on_epoch is not None and on_epoch(progress):
                is_stopped = True
            if is_stopped:
                break
            if config.patience is not None and epoch - best.epoch >= config.patience:
                break
            is_due = time.perf_counter() >= checkpoint_due or (
                is_checkpoint_wanted is not None and is_checkpoint_wanted()
            )
            if on_checkpoint is not None and is_due:
                on_checkpoint(run.take_checkpoint(best.weights, history))
                checkpoint_due = time.perf_counter() + checkpoint_seconds

    last = history[-1]
    variance = source.y_variance if task == "regression" else 1.0
    hopeless = _HOPELESS_LOSS * max(1.0, variance)
    if min(p.train_loss for p in history) > hopeless and not is_stopped:
        raise _diverged(f"The loss still was {last.train_loss:.3g}", last.epoch, config)
    model.load_state_dict(best.weights)
    return Fit(
        model=model.cpu().eval(),
        history=history,
        best_epoch=best.epoch,
        best_score=best.score,
        stopped_early=is_stopped,
        seconds=time.perf_counter() - started,
    )


def _finish(checkpoint: Checkpoint, model: LoMETab) -> Fit:
    """What a run that is finished came to."""
    model.load_state_dict(checkpoint.state_of("best.", torch.device("cpu")))
    last = checkpoint.history[-1]
    return Fit(
        model=model.eval(),
        history=[*checkpoint.history],
        best_epoch=last.best_epoch,
        best_score=last.best_score,
        stopped_early=False,
        seconds=last.seconds,
    )
