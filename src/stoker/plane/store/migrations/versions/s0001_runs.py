"""Runs, their events, and a few facts about the database itself."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("name_stem", sa.Text, nullable=False),
        sa.Column("name_number", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("wish", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("first_attempt", sa.Integer, nullable=False),
        sa.Column("settled_attempt", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("exit_code", sa.Integer),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("queued_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("ended_at", sa.Double),
        sa.Column("restart_at", sa.Double),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("slots", sa.Integer, nullable=False),
        sa.Column("gpu_uuids", sa.Text, nullable=False),
        sa.Column("reachability", sa.Text, nullable=False),
        sa.Column("pinned", sa.Integer, nullable=False),
        sa.Column("limits", sa.Text, nullable=False),
        sa.Column("limits_written", sa.Integer, nullable=False),
        sa.Column("kept_at", sa.Double, nullable=False),
        sa.Column("used_s", sa.Double, nullable=False),
        sa.Column("stop_grace", sa.Text),
        sa.Column("stop_asked", sa.Integer, nullable=False),
        sa.Column("stop_sent", sa.Integer, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("folder_hash", sa.Text, nullable=False),
        sa.Column("command_hash", sa.Text, nullable=False),
        sa.Column("in_place", sa.Integer, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("evidence", sa.Text, nullable=False),
        sa.Column("warnings", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
    )
    op.create_index("ix_runs_name", "runs", ["name"], unique=True)
    op.create_index("ix_runs_stem", "runs", ["name_stem", "name_number"])
    op.create_index("ix_runs_created", "runs", ["created_at"])
    op.create_index("ix_runs_queue", "runs", ["state", "target", "priority", "queued_at"])
    op.create_index("ix_runs_place", "runs", ["folder_hash", "command_hash"])
    op.create_table(
        "events",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
    )
    op.create_index("ix_events_run", "events", ["run_id", "number"])
    op.create_table(
        "meta",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.execute("INSERT INTO meta (key, value) VALUES ('product', 'stoker')")


def downgrade() -> None:
    for table in ("meta", "events", "runs"):
        op.drop_table(table)
