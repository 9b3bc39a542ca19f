"""The tables of the store. `migrations/` leads an older database here; a test compares the two.

Only types that SQLite and PostgreSQL share: text, integer, double, and JSON kept as text.

`runs` (columns for queries, JSON text for the rest; `version` for optimistic locking) · `waits` (which run
waits for which) · `events` · `meta`.
"""

from __future__ import annotations

from sqlalchemy import Column, Double, Index, Integer, MetaData, Table, Text

SCHEMA = "0002"  # the newest migration

metadata = MetaData()

runs = Table(
    "runs", metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("name_stem", Text, nullable=False),
    Column("name_number", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("wish", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("first_attempt", Integer, nullable=False),
    Column("settled_attempt", Integer, nullable=False),
    Column("reason", Text),
    Column("exit_code", Integer),
    Column("target", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("queued_at", Double, nullable=False),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("restart_at", Double),
    Column("priority", Integer, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("slots", Integer, nullable=False),
    Column("gpu_uuids", Text, nullable=False),  # JSON list
    Column("reachability", Text, nullable=False),
    Column("pinned", Integer, nullable=False),
    Column("limits", Text, nullable=False),  # JSON
    Column("limits_written", Integer, nullable=False),
    Column("kept_at", Double, nullable=False),
    Column("used_s", Double, nullable=False),
    Column("stop_grace", Text),  # JSON list
    Column("stop_asked", Integer, nullable=False),
    Column("stop_sent", Integer, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("folder_hash", Text, nullable=False),
    Column("command_hash", Text, nullable=False),
    Column("in_place", Integer, nullable=False),
    Column("spec", Text, nullable=False),  # JSON
    Column("evidence", Text, nullable=False),  # JSON
    Column("warnings", Text, nullable=False),  # JSON list
    Column("version", Integer, nullable=False),
    Index("ix_runs_name", "name", unique=True),
    Index("ix_runs_stem", "name_stem", "name_number"),
    Index("ix_runs_created", "created_at"),
    Index("ix_runs_queue", "state", "target", "priority", "queued_at"),
    Index("ix_runs_place", "folder_hash", "command_hash"),
)

events = Table(
    "events", metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("run_id", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Index("ix_events_run", "run_id", "number"),
)

waits = Table(
    "waits", metadata,  # `run_id` waits for the good end of `after_id`
    Column("run_id", Text, primary_key=True),
    Column("after_id", Text, primary_key=True),
    Index("ix_waits_after", "after_id"),
)

meta = Table(
    "meta", metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
