"""Commits of several tables: published together, loaded together, and finished by another process after a crash."""

from floe_iceberg.transactions.loading import load_at_once, load_each
from floe_iceberg.transactions.moves import HeadAssertion, HeadMove, head_of
from floe_iceberg.transactions.publication import Isolation, publish, recover
from floe_iceberg.transactions.replay import REPLAYED
from floe_iceberg.transactions.run_branches import NewTable
from floe_iceberg.transactions.undo_plan import LaterWrite, RestoredTable, UndoPlan
from floe_iceberg.transactions.undone import undone_runs

__all__ = [
    "REPLAYED",
    "HeadAssertion",
    "HeadMove",
    "Isolation",
    "LaterWrite",
    "NewTable",
    "RestoredTable",
    "UndoPlan",
    "head_of",
    "load_at_once",
    "load_each",
    "publish",
    "recover",
    "undone_runs",
]
