"""Training: one visible loop, early stopping, checkpoints that resume bit by bit."""

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lometab.batches import Part, Source, load
from lometab.checkpoint import Checkpoint, Progress, restore_, take_checkpoint
from lometab.config import Task, TrainConfig
from lometab.embedding import compute_bins
from lometab.errors import ConfigError, TrainingDiverged
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
    "score",
    "use_threads",
]

_MAX_GRAD_NORM = 1.0
# Numbers in the widest activation of an evaluation batch: 64 MiB in float32.
_MAX_ACTIVATION = 2**24
_MIN_PROBABILITY = 1e-12
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


def member_loss(
    outputs: Tensor, y: Tensor, task: Task, weight: Tensor | None = None
) -> Tensor:
    """Mean over members of each member's own loss, never the loss of the mean.

    Args:
        outputs: `(B, K, D_out)`.
        y: `(B,)`, or `(B, K)` where each member has its own rows.
        weight: as `y`: how much each row counts, one on average over all rows.
    """
    if weight is not None:
        return _weighted_loss(outputs, y, task, weight)
    y = y[:, None].expand(outputs.shape[:2]) if y.ndim == 1 else y  # (B, K)
    if task == "regression":
        return F.mse_loss(outputs.squeeze(-1), y)
    if task == "binary":
        return F.binary_cross_entropy_with_logits(outputs.squeeze(-1), y.float())
    return F.cross_entropy(outputs.flatten(0, 1), y.flatten())


def _weighted_loss(outputs: Tensor, y: Tensor, task: Task, weight: Tensor) -> Tensor:
    n_rows, k, _ = outputs.shape
    y = y[:, None].expand(n_rows, k) if y.ndim == 1 else y  # (B, K)
    weight = weight[:, None].expand(n_rows, k) if weight.ndim == 1 else weight
    if task == "regression":
        losses = F.mse_loss(outputs.squeeze(-1), y, reduction="none")
    elif task == "binary":
        losses = F.binary_cross_entropy_with_logits(
            outputs.squeeze(-1), y.float(), reduction="none"
        )
    else:
        losses = F.cross_entropy(
            outputs.flatten(0, 1), y.flatten(), reduction="none"
        ).view(n_rows, k)
    return (losses * weight).mean()


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


def score(
    outputs: Tensor,
    y: Tensor,
    *,
    task: Task,
    y_std: float,
    weight: Tensor | None = None,
) -> tuple[float, float, float | None]:
    """The ensemble's score, the mean of its members' scores, and their diversity.

    Scores are the RMSE in target units for regression and the accuracy else. The
    diversity is the ambiguity or the pairwise KL of the paper's appendix, and None
    for a single member. Sums are in float64. With `weight`, rows count so much for the
    scores (one on average); the diversity is of all rows alike.
    """
    n_rows, k, _ = outputs.shape
    each = torch.ones_like(y, dtype=torch.float64) if weight is None else weight
    if task == "regression":
        members = outputs.squeeze(-1).double() * y_std  # (N, K)
        y = y.double()[:, None] * y_std  # (N, 1)
        mean = members.mean(1, keepdim=True)  # (N, 1)
        errors, own = (mean - y).square(), (members - y).square()
        if weight is not None:  # one on average, so that the means stay means
            errors, own = errors * weight[:, None], own * weight[:, None]
        ensemble_score = errors.mean().sqrt()
        member_score = own.mean(0).sqrt().mean()
        ambiguity = (members - mean).square().mean()
        return (
            ensemble_score.item(),
            member_score.item(),
            ambiguity.item() if k > 1 else None,
        )
    n_right, n_member_right, divergence = 0.0, 0.0, 0.0
    parts = (torch.split(tensor, 8192) for tensor in (outputs, y, each))
    for out, target, counts in zip(*parts, strict=True):
        p = _probabilities(out).double()  # (N, K, C)
        n_right += ((p.mean(1).argmax(-1) == target) * counts).sum().item()
        is_right = p.argmax(-1) == target[:, None]
        n_member_right += (is_right * counts[:, None]).sum().item()
        # The mean over all pairs of sum_c (p_i - p_j)(log p_i - log p_j) / 2 is the
        # sample covariance over members of p and log p, summed over classes.
        p = p.clamp_min(_MIN_PROBABILITY)
        log_p = p.log()
        p = p - p.mean(1, keepdim=True)
        log_p = log_p - log_p.mean(1, keepdim=True)
        divergence += (p * log_p).sum().item()
    return (
        n_right / each.sum().item(),
        n_member_right / (each.sum().item() * k),
        divergence / (n_rows * (k - 1)) if k > 1 else None,
    )


def _nll(outputs: Tensor, y: Tensor, weight: Tensor | None) -> float:
    """Negative log-likelihood of the mean of the members, in float64."""
    total = 0.0
    each = torch.ones_like(y, dtype=torch.float64) if weight is None else weight
    parts = (torch.split(tensor, 8192) for tensor in (outputs, y, each))
    for out, target, counts in zip(*parts, strict=True):
        p = _probabilities(out).double().mean(1)  # (N, C)
        p = p.gather(1, target[:, None]).clamp_min(_MIN_PROBABILITY)
        total -= (p.log().squeeze(1) * counts).sum().item()
    return total / len(y)


def _probabilities(outputs: Tensor) -> Tensor:
    """Logits `(N, K, D_out)` to probabilities `(N, K, C)`."""
    if outputs.shape[-1] > 1:
        return outputs.softmax(-1)
    p = outputs.sigmoid()
    return torch.cat([1 - p, p], dim=-1)


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
    is_cuda = where.type == "cuda"
    source = Source(train, task, where)
    n_rows = source.n_rows
    x_num_val, x_cat_val, y_val, weight_val = load(val, task, where, weight=np.float64)

    is_bf16 = is_cuda and torch.cuda.is_bf16_supported(including_emulation=False)
    amp_dtype = torch.bfloat16 if is_bf16 else torch.float16
    scaler = torch.amp.GradScaler(where.type, enabled=is_cuda and not is_bf16)

    with torch.random.fork_rng([where] if is_cuda else []):
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
        model.to(where)
        parameters = [*model.parameters()]
        optimizer = AdamW(
            _parameter_groups(
                model, config.weight_decay, decay_masks=config.decay_masks
            ),
            lr=config.lr,
        )
        # What is validated and kept: the weights, or their average over steps.
        kept = copy.deepcopy(model) if config.ema else model
        history: list[Progress] = []
        best = _snapshot(model)
        if resume is not None:
            history = [*resume.history]
            best = restore_(resume, model, kept, optimizer, scaler)
        best_epoch = history[-1].best_epoch if history else 0
        worst = math.inf if task == "regression" else -math.inf
        best_score = history[-1].best_score if history else worst

        # What chooses the epoch: the score, or minus the NLL (more is better too).
        is_on_nll = config.stop_on == "nll" and task != "regression"
        best_merit = best_score
        if is_on_nll and history:
            at_best = copy.deepcopy(model)
            at_best.load_state_dict(best)
            outputs = predict(at_best, x_num_val, x_cat_val)
            best_merit = -_nll(outputs, y_val, weight_val)

        is_stopped = False
        started = time.perf_counter() - (history[-1].seconds if history else 0.0)
        checkpoint_due = time.perf_counter() + checkpoint_seconds
        for epoch in range(len(history) + 1, config.max_epochs + 1):
            model.train()
            for group in optimizer.param_groups:
                group["lr"] = _learning_rate(config, history)
            total, max_norm = torch.zeros(2, device=where)
            n_seen = 0
            n_before = (epoch - 1) * math.ceil(n_rows / config.batch_size)
            for step, batch in enumerate(source.batches(config), n_before + 1):
                with torch.autocast(where.type, amp_dtype, enabled=is_cuda):
                    outputs = model(batch.x_num, batch.x_cat)  # (B, K, D_out)
                loss = member_loss(outputs.float(), batch.y, task, batch.weight)
                optimizer.zero_grad()
                scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
                scaler.unscale_(optimizer)  # type: ignore[arg-type]
                norm = nn.utils.clip_grad_norm_(
                    parameters, _MAX_GRAD_NORM, foreach=True
                )
                scaler.step(optimizer)  # type: ignore[arg-type]
                scaler.update()
                if kept is not model:
                    _average_(kept, model, step, config.ema)
                total += loss.detach() * len(batch.y)
                max_norm = torch.maximum(max_norm, norm)
                n_seen += len(batch.y)
                if is_stop_wanted is not None and is_stop_wanted():
                    is_stopped = True
                    break
            train_loss = total.item() / n_seen  # the first wait for the device
            if not math.isfinite(train_loss):
                raise _diverged(f"The loss became {train_loss}", epoch, config)
            # Clipping turns infinite gradients into none: nothing is learned any more.
            # (The scaler tries scales that are too large, on purpose.)
            if not max_norm.isfinite() and not scaler.is_enabled():
                raise _diverged(f"The gradient became {max_norm}", epoch, config)

            outputs = predict(kept, x_num_val, x_cat_val)
            if not outputs.isfinite().all():
                raise _diverged("The outputs stopped being finite", epoch, config)
            val_score, member_score, diversity = score(
                outputs, y_val, task=task, y_std=y_std, weight=weight_val
            )
            if not math.isfinite(val_score):
                raise _diverged(f"The score became {val_score}", epoch, config)
            merit = -_nll(outputs, y_val, weight_val) if is_on_nll else val_score
            if _is_better(merit, best_merit, task):
                best, best_epoch, best_score = _snapshot(kept), epoch, val_score
                best_merit = merit
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
            if is_stopped:
                break
            if config.patience is not None and epoch - best_epoch >= config.patience:
                break
            is_due = time.perf_counter() >= checkpoint_due or (
                is_checkpoint_wanted is not None and is_checkpoint_wanted()
            )
            if on_checkpoint is not None and is_due:
                on_checkpoint(
                    take_checkpoint(
                        model, kept, optimizer, scaler, best, history, config
                    )
                )
                checkpoint_due = time.perf_counter() + checkpoint_seconds

    last = history[-1]
    variance = source.y_variance if task == "regression" else 1.0
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
