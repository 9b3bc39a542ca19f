"""Alembic's entry: all missing steps in one transaction, on the connection that the store hands over."""

from typing import Any, cast

from alembic import context

from stoker.base import crash


def _after_step(**_: Any) -> None:
    crash.point("migrate.middle")


context.configure(
    connection=context.config.attributes["connection"],
    on_version_apply=cast("Any", _after_step),  # it takes what Alembic passes by name
    transaction_per_migration=False,
)
context.run_migrations()
