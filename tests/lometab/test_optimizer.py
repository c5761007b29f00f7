"""AdamW is torch's own, to the bit."""

from typing import Any

import torch
from torch import Tensor, nn

from lometab.optimizer import AdamW


def make_groups() -> tuple[list[nn.Parameter], list[dict[str, Any]]]:
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(shape)) for shape in [(3, 5), (4,), (2, 2)]]
    first, *others = parameters
    return parameters, [
        {"params": [first], "weight_decay": 0.1},
        {"params": others, "weight_decay": 0.0},
    ]


def train(parameters: list[nn.Parameter], optimizer: Any) -> list[Tensor]:
    for step in range(6):
        optimizer.zero_grad()
        for i, parameter in enumerate(parameters):
            if (step, i) != (2, 1):  # one that had no part in the loss
                parameter.grad = torch.sin(parameter.detach() * (step + i + 1))
        if step == 3:
            for group in optimizer.param_groups:
                group["lr"] = 3e-3
        optimizer.step()
    states = [optimizer.state[parameter] for parameter in parameters]
    names = ("step", "exp_avg", "exp_avg_sq")
    return [*parameters, *(state[name] for state in states for name in names)]


def test_steps_are_those_of_torch() -> None:
    own, groups = make_groups()
    others, other_groups = make_groups()
    found = train(own, AdamW(groups, lr=1e-2))
    expected = train(others, torch.optim.AdamW(other_groups, lr=1e-2, fused=True))
    assert len(found) == 12
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def test_a_group_without_parameters_is_no_group() -> None:
    (_, groups) = make_groups()
    optimizer = AdamW([*groups, {"params": [], "weight_decay": 1.0}], lr=1e-2)
    assert len(optimizer.param_groups) == 2
    optimizer.step()  # no gradients: nothing moves
    assert all(state["step"] == 0 for state in optimizer.state.values())
