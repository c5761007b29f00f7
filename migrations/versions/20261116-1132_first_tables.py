"""First tables

Revision: 0001, after .
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("hint", sa.String(), nullable=False),
        sa.Column(
            "scopes", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("sha256", name=op.f("uq_api_keys_sha256")),
    )
    op.create_table(
        "blob_chunks",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint(
            "workspace_id", "sha256", "index", name=op.f("pk_blob_chunks")
        ),
    )
    op.create_table(
        "blobs",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "sha256", name=op.f("pk_blobs")),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("locked_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "response", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=True
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint(
            "workspace_id", "key", name=op.f("pk_idempotency_keys")
        ),
    )
    with op.batch_alter_table("idempotency_keys", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_idempotency_keys_created_at"), ["created_at"], unique=False
        )

    op.create_table(
        "workers",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("queue", sa.String(), nullable=False),
        sa.Column("beat_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    op.create_table(
        "datasets",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("options_sha256", sa.String(length=64), nullable=False),
        sa.Column("table_sha256", sa.String(length=64), nullable=False),
        sa.Column("filename", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("n_rows", sa.BigInteger(), nullable=False),
        sa.Column("n_columns", sa.Integer(), nullable=False),
        sa.Column(
            "read_options",
            sa.JSON().with_variant(JSONB(), "postgresql"),
            nullable=False,
        ),
        sa.Column(
            "reading", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False
        ),
        sa.Column(
            "profile", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["workspace_id", "table_sha256"],
            ["blobs.workspace_id", "blobs.sha256"],
            name=op.f("fk_datasets_workspace_id_table_sha256_blobs"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
        sa.UniqueConstraint(
            "workspace_id",
            "sha256",
            "options_sha256",
            name=op.f("uq_datasets_workspace_id_sha256_options_sha256"),
        ),
    )
    with op.batch_alter_table("datasets", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_datasets_workspace_id_created_at_id"),
            ["workspace_id", "created_at", "id"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_datasets_workspace_id_table_sha256"),
            ["workspace_id", "table_sha256"],
            unique=False,
        )

    op.create_table(
        "jobs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("dataset_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=True),
        sa.Column(
            "tags", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False
        ),
        sa.Column("queue", sa.String(), nullable=False),
        sa.Column(
            "config", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False
        ),
        sa.Column(
            "schema", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False
        ),
        sa.Column(
            "estimate", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False
        ),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("phase", sa.String(), nullable=True),
        sa.Column(
            "progress", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False
        ),
        sa.Column(
            "error", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=True
        ),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("lost_attempts", sa.Integer(), nullable=False),
        sa.Column("is_stop_wished", sa.Boolean(), nullable=False),
        sa.Column("checkpoint_sha256", sa.String(length=64), nullable=True),
        sa.Column("checkpoint_epoch", sa.Integer(), nullable=True),
        sa.Column("checkpoint_attempt", sa.Integer(), nullable=True),
        sa.Column("event_seq", sa.Integer(), nullable=False),
        sa.Column("lease_owner", sa.String(), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(status IN ('running', 'stopping', 'cancelling'))"
            " = (lease_owner IS NOT NULL)",
            name=op.f("ck_jobs_lease"),
        ),
        sa.CheckConstraint("queue IN ('cpu', 'gpu')", name=op.f("ck_jobs_queue")),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'stopping', 'cancelling', 'succeeded', "
            "'failed', 'cancelled')",
            name=op.f("ck_jobs_status"),
        ),
        sa.ForeignKeyConstraint(
            ["dataset_id"], ["datasets.id"], name=op.f("fk_jobs_dataset_id_datasets")
        ),
        sa.ForeignKeyConstraint(
            ["workspace_id", "checkpoint_sha256"],
            ["blobs.workspace_id", "blobs.sha256"],
            name=op.f("fk_jobs_workspace_id_checkpoint_sha256_blobs"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_jobs_dataset_id"), ["dataset_id"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_jobs_status_queue_created_at"),
            ["status", "queue", "created_at"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_jobs_workspace_id_created_at_id"),
            ["workspace_id", "created_at", "id"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_jobs_workspace_id_dataset_id_created_at_id"),
            ["workspace_id", "dataset_id", "created_at", "id"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_jobs_workspace_id_kind_created_at_id"),
            ["workspace_id", "kind", "created_at", "id"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_jobs_workspace_id_status_created_at_id"),
            ["workspace_id", "status", "created_at", "id"],
            unique=False,
        )

    op.create_table(
        "attempts",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_attempts_job_id_jobs")
        ),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_attempts")),
    )
    op.create_table(
        "events",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column(
            "data", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_events_job_id_jobs")
        ),
        sa.PrimaryKeyConstraint("job_id", "seq", name=op.f("pk_events")),
    )
    op.create_table(
        "models",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("onnx_sha256", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column(
            "metrics", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "(name IS NULL) = (version IS NULL)", name=op.f("ck_models_version")
        ),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_models_job_id_jobs")
        ),
        sa.ForeignKeyConstraint(
            ["workspace_id", "onnx_sha256"],
            ["blobs.workspace_id", "blobs.sha256"],
            name=op.f("fk_models_workspace_id_onnx_sha256_blobs"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("job_id", name=op.f("uq_models_job_id")),
        sa.UniqueConstraint(
            "workspace_id",
            "name",
            "version",
            name=op.f("uq_models_workspace_id_name_version"),
        ),
    )
    with op.batch_alter_table("models", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_models_workspace_id_created_at_id"),
            ["workspace_id", "created_at", "id"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_models_workspace_id_onnx_sha256"),
            ["workspace_id", "onnx_sha256"],
            unique=False,
        )

    op.create_table(
        "reports",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column(
            "body", sa.JSON().with_variant(JSONB(), "postgresql"), nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_reports_job_id_jobs")
        ),
        sa.PrimaryKeyConstraint("job_id", "kind", name=op.f("pk_reports")),
    )
    op.create_table(
        "model_aliases",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("alias", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_model_aliases_model_id_models")
        ),
        sa.PrimaryKeyConstraint(
            "workspace_id", "name", "alias", name=op.f("pk_model_aliases")
        ),
    )
    with op.batch_alter_table("model_aliases", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_model_aliases_model_id"), ["model_id"], unique=False
        )


def downgrade() -> None:
    with op.batch_alter_table("model_aliases", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_model_aliases_model_id"))

    op.drop_table("model_aliases")
    op.drop_table("reports")
    with op.batch_alter_table("models", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_models_workspace_id_onnx_sha256"))
        batch_op.drop_index(batch_op.f("ix_models_workspace_id_created_at_id"))

    op.drop_table("models")
    op.drop_table("events")
    op.drop_table("attempts")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_jobs_workspace_id_status_created_at_id"))
        batch_op.drop_index(batch_op.f("ix_jobs_workspace_id_kind_created_at_id"))
        batch_op.drop_index(batch_op.f("ix_jobs_workspace_id_dataset_id_created_at_id"))
        batch_op.drop_index(batch_op.f("ix_jobs_workspace_id_created_at_id"))
        batch_op.drop_index(batch_op.f("ix_jobs_status_queue_created_at"))
        batch_op.drop_index(batch_op.f("ix_jobs_dataset_id"))

    op.drop_table("jobs")
    with op.batch_alter_table("datasets", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_datasets_workspace_id_table_sha256"))
        batch_op.drop_index(batch_op.f("ix_datasets_workspace_id_created_at_id"))

    op.drop_table("datasets")
    op.drop_table("workers")
    with op.batch_alter_table("idempotency_keys", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_idempotency_keys_created_at"))

    op.drop_table("idempotency_keys")
    op.drop_table("blobs")
    op.drop_table("blob_chunks")
    op.drop_table("api_keys")
