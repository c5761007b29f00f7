"""What goes between supervisor and child comes out as it went in."""

import math
from dataclasses import FrozenInstanceError, replace

import pytest

from tests.support.fake_child import SPEC
from worker import messages
from worker.messages import Message, Spec, from_line, is_order, to_line


@pytest.mark.parametrize(
    "message",
    [
        messages.PhaseBegun("training"),
        messages.EpochDone({"epoch": 1, "val_score": 0.25}),
        messages.Examined(1, 4),
        messages.CheckpointWritten("checkpoint-3", 3),
        messages.Resumed(3),
        messages.CheckpointUnusable("two\nlines"),
        messages.Failed("diverged", "the loss became nan"),
        messages.Done(),
    ],
)
def test_messages_are_lines(message: Message) -> None:
    line = to_line(message)
    assert "\n" not in line
    assert from_line(line) == from_line(line.encode()) == message


def test_a_spec_is_a_line_and_no_order() -> None:
    line = SPEC.to_json()
    assert "\n" not in line and not is_order(line)
    assert Spec.from_json(line) == SPEC
    assert is_order("stop") and is_order("leave")


def test_what_was_sent_stays_as_it_was() -> None:
    with pytest.raises(FrozenInstanceError):
        SPEC.attempt = 3  # type: ignore[misc]


def test_no_number_that_json_lacks() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_line(messages.EpochDone({"val_score": math.nan}))


@pytest.mark.parametrize(
    ("role", "makes_model"),
    [
        *(("train", True), ("refit", True)),
        *(("cell", False), ("trial", False), ("repeat", False)),
    ],
)
def test_roles(role: messages.Role, makes_model: bool) -> None:
    assert replace(SPEC, role=role).makes_model == makes_model
