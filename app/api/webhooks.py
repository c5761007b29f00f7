"""Webhooks of a workspace, and what was sent to them."""

import datetime as dt
import json
from typing import Annotated, Any, Self

import sqlalchemy as sa
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session

from app import webhooks
from app.access import Writer
from app.api.bodies.common import Id, Page
from app.api.deps import ReadSessionDep
from app.api.paging import After, Before, Cursor, Limit, link_next, read_page
from app.api.responses import problems
from app.errors import NotFound
from app.storage import db
from app.storage.enums import DeliveryStatus, WebhookEvent
from app.storage.tables import Delivery, Webhook

router = APIRouter(prefix="/webhooks", tags=["webhooks"])

WebhookId = Annotated[
    Id, Path(description="A webhook's id.", examples=["wh_0123456789ab"])
]
DeliveryId = Annotated[
    Id, Path(description="A message's id.", examples=["msg_0123456789ab"])
]
Events = Annotated[
    list[WebhookEvent],
    Field(min_length=1, max_length=len(WebhookEvent), description="What to tell of."),
]
Description = Annotated[str, Field(max_length=200, description="For people.")]


class WebhookCreate(BaseModel):
    """A webhook to be made."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "url": "https://hooks.example.com/lometab",
                "events": ["job.succeeded", "job.failed"],
            }
        },
    )

    url: str = Field(
        min_length=1,
        max_length=2000,
        description="Where messages are posted to: https, and a public address.",
    )
    events: Events
    description: Description | None = None


class WebhookChange(BaseModel):
    """What is to be another than before; the rest stays."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"is_enabled": False}}
    )

    url: str | None = Field(default=None, min_length=1, max_length=2000)
    events: Events | None = None
    description: Description | None = None
    is_enabled: bool | None = Field(
        default=None, description="While it is off, nothing is sent or kept for it."
    )


class WebhookRead(BaseModel):
    """A webhook."""

    id: str
    url: str
    events: list[WebhookEvent]
    description: str | None
    is_enabled: bool
    n_failed: int = Field(description="Attempts in a row that failed.")
    not_before: dt.datetime | None = Field(
        description="As it failed, nothing is sent to it before this time."
    )
    created_at: dt.datetime

    @classmethod
    def of(cls, webhook: Webhook) -> Self:
        return cls.model_validate(webhook, from_attributes=True)


class WebhookWithSecret(WebhookRead):
    """A webhook, and what its messages are signed with: shown this once."""

    secret: str = Field(description="`whsec_` and 32 bytes in base64.")


class AttemptRead(BaseModel):
    """One attempt to deliver a message."""

    attempt: int
    at: dt.datetime
    status: int | None = Field(
        description="Of the receiver's answer, if there was one."
    )
    error: str | None = Field(description="Why it does not count; null: it does.")
    seconds: float


class DeliveryRead(BaseModel):
    """A message to a webhook, and what became of it."""

    id: str = Field(description="The header `webhook-id`, in each attempt.")
    type: WebhookEvent
    status: DeliveryStatus
    attempt: int = Field(description="How often it was sent, or is being sent.")
    next_at: dt.datetime = Field(description="When it is due, if it is pending.")
    attempts: list[AttemptRead] = Field(description="The last ten.")
    body: dict[str, Any]
    created_at: dt.datetime
    delivered_at: dt.datetime | None

    @classmethod
    def of(cls, delivery: Delivery) -> Self:
        names = cls.model_fields.keys() - {"body"}
        values = {name: getattr(delivery, name) for name in names}
        return cls(**values, body=json.loads(delivery.body))


def _find(
    session: Session, id_: str, workspace_id: str, *, lock: bool = False
) -> Webhook:
    statement = sa.select(Webhook).where(
        Webhook.id == id_, Webhook.workspace_id == workspace_id
    )
    found = session.scalar(statement.with_for_update() if lock else statement)
    if found is None:
        raise NotFound(f"there is no webhook {id_!r}")
    return found


@router.post(
    "",
    status_code=201,
    response_model=WebhookWithSecret,
    summary="Have an address told of what happens",
    responses=problems(400, 422),
)
def create_webhook(
    caller: Writer, response: Response, body: WebhookCreate
) -> WebhookWithSecret:
    """Messages are posted as JSON, signed as Standard Webhooks has it: `webhook-id`,
    `webhook-timestamp`, `webhook-signature`. Each is delivered at least once: a
    receiver tells a second one by its `webhook-id`. The secret is shown this once."""
    with db.transaction() as session:
        webhook = webhooks.create_webhook(
            session,
            workspace_id=caller.workspace_id,
            url=body.url,
            events=[*dict.fromkeys(body.events)],
            description=body.description,
        )
    response.headers["Location"] = f"/webhooks/{webhook.id}"
    return WebhookWithSecret.of(webhook)


@router.get(
    "",
    response_model=Page[WebhookRead],
    summary="The webhooks of the workspace",
    responses=problems(),
)
def list_webhooks(session: ReadSessionDep, caller: Writer) -> Page[WebhookRead]:
    """All of them, newest first, without their secrets."""
    rows = session.scalars(
        sa.select(Webhook)
        .where(Webhook.workspace_id == caller.workspace_id)
        .order_by(Webhook.created_at.desc(), Webhook.id.desc())
    )
    return Page[WebhookRead](data=[WebhookRead.of(r) for r in rows], next_cursor=None)


@router.get(
    "/{webhook_id}",
    response_model=WebhookRead,
    summary="One webhook",
    responses=problems(404, 422),
)
def read_webhook(
    session: ReadSessionDep, caller: Writer, webhook_id: WebhookId
) -> WebhookRead:
    """Without its secret."""
    return WebhookRead.of(_find(session, webhook_id, caller.workspace_id))


@router.patch(
    "/{webhook_id}",
    response_model=WebhookRead,
    summary="Change a webhook, or turn it off",
    responses=problems(400, 404, 422),
)
def change_webhook(
    caller: Writer, webhook_id: WebhookId, body: WebhookChange
) -> WebhookRead:
    """What is left out stays. One that is turned on again is tried at once."""
    if body.url is not None:
        webhooks.check_target(body.url)
    with db.transaction() as session:
        webhook = _find(session, webhook_id, caller.workspace_id, lock=True)
        if body.url is not None:
            webhook.url = body.url
        if body.events is not None:
            webhook.events = [*dict.fromkeys(map(str, body.events))]
        if body.description is not None:
            webhook.description = body.description
        if body.is_enabled is not None:
            webhook.is_enabled = body.is_enabled
        if body.is_enabled or body.url is not None:
            webhook.n_failed, webhook.not_before = 0, None
    return WebhookRead.of(webhook)


@router.delete(
    "/{webhook_id}",
    status_code=204,
    summary="Delete a webhook",
    responses=problems(404, 422),
)
def delete_webhook(caller: Writer, webhook_id: WebhookId) -> None:
    """Its messages go with it, those that wait included."""
    with db.transaction() as session:
        webhook = _find(session, webhook_id, caller.workspace_id, lock=True)
        session.execute(sa.delete(Delivery).where(Delivery.webhook_id == webhook.id))
        session.delete(webhook)


@router.post(
    "/{webhook_id}/rotate",
    response_model=WebhookWithSecret,
    summary="Give a webhook another secret",
    responses=problems(404, 422),
)
def rotate_webhook(caller: Writer, webhook_id: WebhookId) -> WebhookWithSecret:
    """For a day messages are signed with both, so that no receiver misses one."""
    with db.transaction() as session:
        webhook = _find(session, webhook_id, caller.workspace_id, lock=True)
        webhooks.rotate_secret(session, webhook)
    return WebhookWithSecret.of(webhook)


@router.get(
    "/{webhook_id}/deliveries",
    response_model=Page[DeliveryRead],
    summary="What was sent to a webhook",
    responses=problems(404, 422),
)
def list_deliveries(
    request: Request,
    response: Response,
    session: ReadSessionDep,
    caller: Writer,
    webhook_id: WebhookId,
    status: Annotated[
        DeliveryStatus | None, Query(description="Only those of this status.")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    created_after: After = None,
    created_before: Before = None,
) -> Page[DeliveryRead]:
    """Newest first, in pages, with the last attempts of each. They are kept for as long
    as the service is set to (30 days)."""
    webhook = _find(session, webhook_id, caller.workspace_id)
    statement = sa.select(Delivery).where(Delivery.webhook_id == webhook.id)
    if status is not None:
        statement = statement.where(Delivery.status == status)
    rows, next_cursor = read_page(
        session,
        statement,
        Delivery,
        limit=limit,
        cursor=cursor,
        created_after=created_after,
        created_before=created_before,
    )
    response.headers.update(link_next(request, next_cursor))
    return Page[DeliveryRead](
        data=[DeliveryRead.of(row) for (row,) in rows], next_cursor=next_cursor
    )


@router.post(
    "/{webhook_id}/deliveries/{delivery_id}/redeliver",
    status_code=202,
    response_model=DeliveryRead,
    summary="Send a message again",
    responses=problems(404, 422),
)
def redeliver(
    caller: Writer, webhook_id: WebhookId, delivery_id: DeliveryId
) -> DeliveryRead:
    """As soon as a worker comes to it, whatever became of it before: with the same
    `webhook-id`, and the next number in `lometab-attempt`."""
    with db.transaction() as session:
        webhook = _find(session, webhook_id, caller.workspace_id, lock=True)
        delivery = session.get(Delivery, delivery_id, with_for_update=True)
        if delivery is None or delivery.webhook_id != webhook.id:
            raise NotFound(f"there is no message {delivery_id!r} to this webhook")
        webhooks.redeliver(session, webhook, delivery)
    return DeliveryRead.of(delivery)
