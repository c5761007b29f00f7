"""Lines of models: those of one name, counted from 1."""

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import Conflict, ModelHasAlias
from app.storage.tables import ModelAlias, TrainedModel


def next_version(session: Session, workspace_id: str, name: str | None) -> int | None:
    """The number of the next model of a name; None for no name."""
    if name is None:
        return None
    newest = session.scalar(
        sa.select(sa.func.max(TrainedModel.version)).where(
            TrainedModel.workspace_id == workspace_id,
            TrainedModel.name == name,
        )
    )
    return (newest or 0) + 1


def rename_model(session: Session, model: TrainedModel, name: str | None) -> None:
    """Make it the newest version of another name, or of none.

    Raises:
        ModelHasAlias: whoever asks `name@alias` would find nothing.
    """
    if name == model.name:
        return
    alias = session.scalar(
        sa.select(ModelAlias.alias)
        .where(ModelAlias.model_id == model.id)
        .order_by(ModelAlias.alias)
        .limit(1)
    )
    if alias is not None:
        raise ModelHasAlias(
            f"{model.name}@{alias} stands for this model; move or remove the alias "
            "before it gets another name"
        )
    model.version = next_version(session, model.workspace_id, name)
    model.name = name
    try:
        session.flush()
    except sa.exc.IntegrityError:
        raise Conflict(
            f"another model became the version {model.version} of {name!r} at the same "
            "moment; send the request again"
        ) from None
