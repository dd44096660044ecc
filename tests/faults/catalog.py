"""A catalog whose commits go wrong in the ways of a script, and whose look-ups fail for a while."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.table import CommitTableResponse, Table

from floe_core.plugins.ports import Catalog as CatalogPort

__all__ = ["Fault", "Held", "Outage", "after", "answer_lost", "faulty", "not_applied"]

Send = Callable[[], CommitTableResponse]
# What happens to one commit: given the way to send it, answer or raise.
Fault = Callable[[Send], CommitTableResponse]


def answer_lost(error: Exception) -> Fault:
    """The catalog commits, and the caller gets this error instead of its answer."""

    def fault(send: Send) -> CommitTableResponse:
        send()
        raise error

    return fault


def not_applied(error: Exception) -> Fault:
    """The catalog never sees the commit."""

    def fault(send: Send) -> CommitTableResponse:
        raise error

    return fault


def after(action: Callable[[], object]) -> Fault:
    """Something else happens just before the commit arrives."""

    def fault(send: Send) -> CommitTableResponse:
        action()
        return send()

    return fault


class Held:
    """A commit that is on its way for so long that its sender gives up on it, and that arrives in the end."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self._send: Send | None = None
        self.refused = False

    def hold(self, send: Send) -> CommitTableResponse:
        self._send = send
        raise self._error

    def arrive(self) -> None:
        assert self._send is not None, "nothing is held"
        try:
            self._send()
        except (CommitFailedException, TableAlreadyExistsError):
            self.refused = True

    def arrives_first(self, send: Send) -> CommitTableResponse:
        """It arrives just before its repetition."""
        self.arrive()
        return send()

    def arrives_last(self, send: Send) -> CommitTableResponse:
        """It arrives when its repetition has been committed."""
        answer = send()
        self.arrive()
        return answer


class Outage:
    """The catalog cannot be asked about tables for so many times, or until it is over."""

    def __init__(self, error: Exception, *, times: int | None = None) -> None:
        self._error = error
        self._times = times
        self._begun = False
        self.looks = 0

    def begins_after(self, send: Send) -> CommitTableResponse:
        """The catalog commits, and goes dark before it answers."""
        send()
        self._begun = True
        raise self._error

    def end(self) -> None:
        self._begun = False

    def check(self) -> None:
        if self._begun:
            self.looks += 1
            if self._times is None or self.looks <= self._times:
                raise self._error


@contextmanager
def faulty(
    catalog: CatalogPort, monkeypatch: pytest.MonkeyPatch, *script: Fault, outage: Outage | None = None
) -> Iterator[None]:
    """Let the first commits go as the script says, and those after it well; the whole script must be used."""
    assert isinstance(catalog, Catalog)
    commit, load = catalog.commit_table, catalog.load_table
    waiting = deque(script)

    def commit_table(table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        fault: Fault = waiting.popleft() if waiting else lambda send: send()
        return fault(lambda: commit(table, requirements, updates))

    def load_table(identifier: Any) -> Table:
        if outage is not None:
            outage.check()
        return load(identifier)

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "commit_table", commit_table)
        patch.setattr(catalog, "load_table", load_table)
        yield
    assert not waiting, f"{len(waiting)} faults were not met"
