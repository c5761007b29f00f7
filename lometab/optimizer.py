"""AdamW by the kernel of `torch.optim.AdamW(fused=True)`, one call for each group.

The first optimiser of `torch.optim` imports torch's compiler, which takes as long as
torch itself (decision 25). Numbers and the names of the state are the same.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

BETAS = (0.9, 0.999)
EPS = 1e-8


class AdamW:
    """Adam with decoupled weight decay.

    Args:
        groups: parameters as `params`, each group with its `weight_decay`.
        lr: the learning rate of all groups; `group["lr"]` may be set anew.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], lr: float) -> None:
        self.param_groups = [{"lr": lr, **group} for group in groups if group["params"]]
        self.state: dict[Tensor, dict[str, Tensor]] = {
            parameter: {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
            for group in self.param_groups
            for parameter in group["params"]
        }

    def zero_grad(self) -> None:
        for parameter in self.state:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            used = [p for p in group["params"] if p.grad is not None]
            if not used:
                continue
            states = [self.state[parameter] for parameter in used]
            steps = [state["step"] for state in states]
            torch._foreach_add_(steps, 1)
            torch._fused_adamw_(
                used,
                [parameter.grad for parameter in used],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                steps,
                lr=group["lr"],
                beta1=BETAS[0],
                beta2=BETAS[1],
                weight_decay=group["weight_decay"],
                eps=EPS,
                amsgrad=False,
                maximize=False,
            )
