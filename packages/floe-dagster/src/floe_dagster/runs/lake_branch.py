"""The branch of the lake that a run writes to, and the Dagster instance that has its history."""

from __future__ import annotations

from collections.abc import Mapping

from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from floe_core.errors import ConfigurationError

__all__ = ["BRANCH_TAG", "begin_history_of", "keep_history_of", "refuse_branch_tag", "refuse_other_history"]

# The tag of a run, with its branch of the lake.
BRANCH_TAG = "floe/lake_branch"
# The key under which an instance records the branch whose history it has.
_MARK = "floe/lake_branch"
_ENDED = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]


def refuse_branch_tag(tags: Mapping[str, str], branch: str | None, asset: str) -> None:
    """Refuse a tag that asks for another branch than the one that the project is open at."""
    wanted = tags.get(BRANCH_TAG)
    if wanted is not None and wanted != branch:
        raise ConfigurationError(
            f"asset {asset}: the tag {BRANCH_TAG!r} asks for branch {wanted!r} of the lake, and this run writes to "
            f"{branch or 'main'}, because Dagster would record its materializations there. Start it with floe run "
            f"--branch {wanted}, or in floe dev --branch {wanted}. Nothing was written"
        )


def keep_history_of(instance: DagsterInstance, branch: str) -> None:
    """Record that an instance has the history of a branch."""
    instance.run_storage.set_cursor_values({_MARK: branch})


def begin_history_of(instance: DagsterInstance, branch: str) -> None:
    """Record that an instance in which no run has ended has the history of a branch, before the first of them does.

    A run that fails before it writes counts as well: otherwise the next one would take the instance for that of main.
    """
    is_new = not instance.run_storage.get_cursor_values({_MARK})
    if is_new and not instance.get_runs(filters=RunsFilter(statuses=_ENDED), limit=1):
        keep_history_of(instance, branch)


def refuse_other_history(instance: DagsterInstance, branch: str | None) -> None:
    """Refuse an instance that has the history of main, or of another branch: materializations would mix.

    Args:
        instance: The instance of the run.
        branch: The branch of the lake that the run writes to; None for main.
    """
    found = instance.run_storage.get_cursor_values({_MARK}).get(_MARK)
    if found == branch:
        return
    if found is None and branch is not None:
        raise ConfigurationError(
            f"this Dagster instance has the history of main, and this run writes to branch {branch!r} of the lake, so "
            f"that main would appear materialized. Start it with floe run --branch {branch} or floe dev --branch "
            f"{branch}, or set DAGSTER_HOME to another folder. Nothing was written"
        )
    raise ConfigurationError(
        f"this Dagster instance has the history of branch {found!r} of the lake, and this run writes to "
        f"{branch or 'main'}. Start it with --branch {found}, or set DAGSTER_HOME to the folder of "
        f"{branch or 'main'}. Nothing was written"
    )
