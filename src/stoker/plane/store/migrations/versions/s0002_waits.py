"""`--after`: which run waits for the good end of which, indexed from both sides."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "waits",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("after_id", sa.Text, primary_key=True),
    )
    op.create_index("ix_waits_after", "waits", ["after_id"])


def downgrade() -> None:
    op.drop_table("waits")
