"""Some members of an ensemble as an ensemble of their own, whatever their networks."""

import copy
from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from lometab.config import TrainConfig
from lometab.ensemble import Ensemble, Prepared, answer_scores
from lometab.evaluation import choose_members
from lometab.nn import BatchEnsembleLinear, LoMETab, LoMETabLinear, MemberLinear
from lometab.train import Fit

_OF_MEMBERS = {
    LoMETabLinear: ("a", "b", "bias"),
    BatchEnsembleLinear: ("r", "s", "bias"),
    MemberLinear: ("weight", "bias"),
}
"""The parameters of each layer that have a member as their first dimension."""
MAX_MEMBERS = 32
"""Of an ensemble that is made of several networks: each answers every row."""
_FEW_ROWS = 1000
_LEAST_MEMBERS = 8
_LEAST_ON_FEW_ROWS = 16


def combine(prepared: Prepared, fits: Sequence[Fit]) -> Ensemble:
    """One ensemble of those members of all networks that answer best together.

    They are chosen on the part `val`, greedily.
    """
    first, *others = fits
    whole = Ensemble(
        prepared.schema,
        prepared.preprocessor,
        _config(first),
        first,
        tuple(others),
    )
    val = prepared.parts["val"]
    _, members = answer_scores(whole, whole.models, val.x_num, val.x_cat)
    y = prepared.targets["val"]
    least = find_least(len(y))
    chosen = choose_members(y, members, most=MAX_MEMBERS, least=least)
    return select_members(whole, chosen)


def find_least(n_rows: int) -> int:
    """Members that are chosen at least, by the number of rows that choose them.

    The best few on few rows are that by luck, and worse on other rows than more of
    them; on many rows fewer do as well, at a lower price (`benchmarks/choice.py`).
    """
    return _LEAST_ON_FEW_ROWS if n_rows < _FEW_ROWS else _LEAST_MEMBERS


def select_members(ensemble: Ensemble, members: Sequence[int]) -> Ensemble:
    """The ensemble of these members alone, by their numbers over all networks.

    They keep their order, and a network none of whose members is named is left out.
    """
    if not members or not {*members} <= {*range(ensemble.k)}:
        raise ValueError(
            f"members must be one or more of 0 to {ensemble.k - 1}, however: {members}"
        )
    fits, start = [], 0
    for fit in ensemble.fits:
        own = [m - start for m in sorted({*members}) if m - start in range(fit.k)]
        start += fit.k
        if own:
            fits.append(_keep(fit, own))
    first, *others = fits
    return replace(ensemble, config=_config(first), fit=first, others=tuple(others))


def _config(fit: Fit) -> TrainConfig:
    assert isinstance(fit.model.config, TrainConfig)
    return fit.model.config


def _keep(fit: Fit, members: Sequence[int]) -> Fit:
    numbers = fit.members or range(fit.k)
    return replace(
        fit,
        model=keep_members(fit.model, members),
        members=tuple(numbers[m] for m in members),
    )


def keep_members(model: LoMETab, members: Sequence[int]) -> LoMETab:
    """A network with these members alone; what they share is the same."""
    kept = copy.deepcopy(model)
    kept.config = replace(model.config, k=len(members))
    if model.embeddings:
        kept.embeddings = nn.ModuleList(kept.embeddings[m] for m in members)
    for layer in (*kept.blocks, kept.head):
        assert isinstance(layer, LoMETabLinear | BatchEnsembleLinear | MemberLinear)
        layer.k = len(members)
        kind = next(kind for kind in _OF_MEMBERS if isinstance(layer, kind))
        for name in _OF_MEMBERS[kind]:
            values = getattr(layer, name).detach()[[*members]].clone()
            setattr(layer, name, nn.Parameter(values))
    return kept
