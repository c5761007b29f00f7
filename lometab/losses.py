"""What training makes smaller, and the scores that choose its epoch."""

import torch
import torch.nn.functional as F
from torch import Tensor

from lometab.config import Task

_MIN_PROBABILITY = 1e-12


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


def nll(outputs: Tensor, y: Tensor, weight: Tensor | None) -> float:
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
