"""Leases whose holder failed: given back by the holder where it can, released by hand otherwise."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from tests.faults.disk import broken_disk
from tests.lakes import open_manager

from floe_core.errors import CommitStateUnknownError, FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_iceberg import IcebergTableManager
from floe_iceberg.maintenance import leases
from floe_iceberg.maintenance.leases import LEASE, LeaseHeldError, holder_of, leased, refuse_held
from floe_iceberg.snapshots import refs

ORDERS = TableIdentifier.from_string("bronze.orders")


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IcebergTableManager:
    monkeypatch.setattr("floe_iceberg.backoff.delay", lambda _number: 0.0)
    made = open_manager(tmp_path)
    made.write_data(ORDERS, pa.table({"id": [1]}), mode="append")
    return made


def fail_on(disk: AbstractContextManager[None], tables: IcebergTableManager) -> None:
    """Hold the lease, and fail when the disk is full."""
    with leased(tables, ORDERS):
        disk.__enter__()
        raise FloeStorageError("compaction failed")


def leave_a_lease(tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail on a disk that stays full, so that the lease cannot be given back."""
    disk = broken_disk(monkeypatch, files=r"\.metadata\.json$")
    with pytest.raises(FloeStorageError, match="compaction failed"):
        fail_on(disk, tables)
    disk.__exit__(None, None, None)
    assert holder_of(tables.load_table(ORDERS)) is not None


def test_a_holder_that_failed_gives_its_lease_back_once_there_is_space_again(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[int] = []
    disk = broken_disk(monkeypatch, files=r"\.metadata\.json$")

    def pause(number: int) -> float:
        pauses.append(number)
        if len(pauses) == 3:  # the failed step has deleted its files by now
            disk.__exit__(None, None, None)
        return 0.0

    monkeypatch.setattr("floe_iceberg.backoff.delay", pause)
    with pytest.raises(FloeStorageError, match="compaction failed"):
        fail_on(disk, tables)
    assert len(pauses) == 3
    assert holder_of(tables.load_table(ORDERS)) is None


def test_a_lease_that_could_not_be_given_back_is_released_by_hand(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_a_lease(tables, monkeypatch)
    with pytest.raises(LeaseHeldError, match=r"floe maintain release bronze\.orders"):
        refuse_held(tables.load_table(ORDERS), ORDERS, time.time())
    released = tables.release_lease(ORDERS)
    assert released is not None
    assert released.endswith(f"_{os.getpid()}")
    assert set(tables.load_table(ORDERS).refs()) == {"main"}
    assert tables.release_lease(ORDERS) is None
    with leased(tables, ORDERS):
        pass


def test_the_lease_of_a_process_that_runs_here_is_released_only_by_force(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: other.pid)
            leave_a_lease(tables, monkeypatch)
        with pytest.raises(LeaseHeldError, match="runs on this machine"):
            tables.release_lease(ORDERS)
        assert holder_of(tables.load_table(ORDERS)) is not None
        assert tables.release_lease(ORDERS, force=True) is not None
        other.kill()
    assert holder_of(tables.load_table(ORDERS)) is None


def test_the_lease_of_another_machine_is_released(tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: "another-machine")
        leave_a_lease(tables, monkeypatch)
    assert str(tables.release_lease(ORDERS)).startswith("another_machine_")


def test_a_holder_whose_lease_was_released_stops_before_its_next_step(tables: IcebergTableManager) -> None:
    with leased(tables, ORDERS) as check:
        check()
        tables.release_lease(ORDERS, force=True)
        with pytest.raises(LeaseHeldError, match="was lost"):
            check()


def test_a_branch_with_the_name_of_the_lease_is_not_released(tables: IcebergTableManager) -> None:
    table = tables.load_table(ORDERS)
    with table.manage_snapshots() as manage:  # as another tool may; Floe refuses the name
        manage.create_branch(table.metadata.snapshots[-1].snapshot_id, LEASE)
    assert tables.release_lease(ORDERS, force=True) is None
    assert LEASE in tables.load_table(ORDERS).refs()


@pytest.mark.parametrize("holder", ["renews", "changes"])
def test_only_the_lease_that_was_looked_at_is_released(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch, holder: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: "another-machine")
        leave_a_lease(tables, monkeypatch)
    real, calls = refs.commit_refs, list[object]()

    def late(table: Table, *arguments: object) -> None:
        calls.append(table)
        if len(calls) == 1:  # the holder is alive, and commits first
            name = "another_machine_1" if holder == "changes" else holder_of(table).name  # type: ignore[union-attr]
            tag = f"{LEASE}-{int(time.time() * 1000) + 900_000}-{name}-0123456789ab"
            present = tables.load_table(ORDERS)
            with present.manage_snapshots() as manage:
                manage.remove_tag(holder_of(present).tag)  # type: ignore[union-attr]
                manage.create_tag(present.current_snapshot().snapshot_id, tag)  # type: ignore[union-attr]
        real(table, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(leases, "commit_refs", late)
    with pytest.raises(LeaseHeldError, match="is running, or another maintenance has begun"):
        tables.release_lease(ORDERS)
    assert holder_of(tables.load_table(ORDERS)) is not None
    assert tables.release_lease(ORDERS, force=True) is not None


def test_a_release_whose_answer_is_lost_names_the_holder(
    tables: IcebergTableManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_a_lease(tables, monkeypatch)
    real, calls = refs.commit_refs, list[object]()

    def lost(table: Table, *arguments: object) -> None:
        real(table, *arguments)  # type: ignore[arg-type]
        calls.append(table)
        if len(calls) == 1:
            raise CommitStateUnknownError("no answer")

    monkeypatch.setattr(leases, "commit_refs", lost)
    assert str(tables.release_lease(ORDERS)).endswith(f"_{os.getpid()}")
