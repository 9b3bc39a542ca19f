"""Alembic's entry: all missing steps in one transaction, on the connection that the store hands over."""

from alembic import context

from stoker.base import crash


def _after_step(**_: object) -> None:
    crash.point("migrate.middle")


context.configure(
    connection=context.config.attributes["connection"],
    on_version_apply=_after_step,
    transaction_per_migration=False,
)
context.run_migrations()
