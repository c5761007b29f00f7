"""A file of fewer members answers as these members did, and is smaller."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lometab.ensemble import Ensemble
from lometab.errors import DataError
from lometab.evaluation import Calibrator
from lometab.export import calibrate_on, to_onnx
from lometab.predictor import Predictor
from lometab.pruning import choose, prune
from tests.support.ensembles import TABLE, rows_of, train


def no_calibration(_: Predictor) -> Calibrator:
    return Calibrator(conformity=np.array([1.0, 2.0, 3.0]))


def join(one: Ensemble, other: Ensemble) -> Ensemble:
    """Both networks as one ensemble, whatever the field is called."""
    name = "others" if hasattr(one, "others") else "other_seeds"
    return replace(one, **{name: (other.fit,)})


def cut(ensemble: Ensemble, members: list[int]) -> tuple[Predictor, Predictor, Any]:
    content = to_onnx(ensemble)
    whole = Predictor(content)
    x_num, x_cat, _ = whole.encode(rows_of(TABLE, 60))
    pruned, pruning = prune(content, members, x_num, x_cat, calibrate=no_calibration)
    return whole, Predictor(pruned), pruning


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["lometab", "additive", "tabm", "deep-ensemble"])
@pytest.mark.parametrize("target", ["price", "grade"])
def test_members_answer_as_they_did(variant: str, target: str) -> None:
    whole, kept, pruning = cut(train(target, variant=variant), [0, 2])
    x_num, x_cat, _ = whole.encode(rows_of(TABLE, 60))
    before, after = whole.run_all(x_num, x_cat), kept.run_all(x_num, x_cat)
    expected = before.members[:, [0, 2]]
    np.testing.assert_allclose(after.members, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(after.mean, expected.mean(axis=1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(after.novelty, before.novelty)
    assert (kept.k, pruning.k_before, pruning.k_after) == (2, 4, 2)
    assert kept.folded_bytes == whole.folded_bytes // 2 == pruning.folded_bytes_after
    assert kept.metadata["conformity"][49] == 2.0  # it is calibrated anew
    assert pruning.seconds_before > 0 < pruning.seconds_after


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["lometab", "deep-ensemble"])
@pytest.mark.parametrize("members", [[1, 6], [4, 5, 7], [0]])
def test_members_of_several_networks(variant: str, members: list[int]) -> None:
    """A network none of whose members is kept is gone."""
    ensemble = join(
        train("sold", variant=variant), train("sold", variant=variant, seed=1)
    )
    whole, kept, pruning = cut(ensemble, members)
    x_num, x_cat, _ = whole.encode(rows_of(TABLE, 60))
    np.testing.assert_allclose(
        kept.run(x_num, x_cat)[1], whole.run(x_num, x_cat)[1][:, members], atol=1e-6
    )
    assert kept.folded_bytes == whole.folded_bytes * len(members) // 8
    assert pruning.file_bytes_after < pruning.file_bytes_before
    if len(members) == 3:  # and once more
        content = to_onnx(ensemble)
        first, _ = prune(content, members, x_num, x_cat, calibrate=no_calibration)
        second, _ = prune(first, [1], x_num, x_cat, calibrate=no_calibration)
        np.testing.assert_allclose(
            Predictor(second).run(x_num, x_cat)[1][:, 0],
            whole.run(x_num, x_cat)[1][:, members[1]],
            atol=1e-6,
        )
    assert kept.k == len(members)


def test_the_best_members_are_chosen() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=400)
    noise = np.array([0.1, 5.0, 0.1, 5.0, 0.1])
    members = y[:, None] + noise * rng.normal(size=(400, 5))
    assert choose(y, members, "selected") == [0, 2, 4]
    assert choose(y, members, "all") == [0, 1, 2, 3, 4]
    assert len(choose(y, members, 4)) == 4
    assert choose(y, members, 1)[0] in (0, 2, 4)
    with pytest.raises(DataError, match="has 5 members, and 6 cannot be kept"):
        choose(y, members, 6)


def test_a_pruned_file_is_calibrated_by_its_own_answers() -> None:
    content = to_onnx(train("price"))
    whole = Predictor(content)
    x_num, x_cat, _ = whole.encode(rows_of(TABLE))
    y = np.array(TABLE["price"])
    pruned, _ = prune(
        content, [1, 3], x_num, x_cat, calibrate=calibrate_on(x_num, x_cat, y)
    )
    kept = Predictor(pruned)
    mean, _ = kept.run(x_num, x_cat)
    scores = np.sort(np.abs(y - mean))
    assert kept.metadata["conformity"][89] == pytest.approx(scores[360], rel=1e-5)
    assert kept.metadata["conformal"]["n_rows"] == len(y)
