"""Commits of several tables: published together, loaded together, and finished by another process after a crash."""

from floe_iceberg.transactions.loading import load_at_once, load_each
from floe_iceberg.transactions.moves import HeadAssertion, HeadMove, head_of
from floe_iceberg.transactions.moves import State as MoveState
from floe_iceberg.transactions.publication import Isolation, publish, recover
from floe_iceberg.transactions.replay import REPLAYED, Replay, branch_start, plan_replay
from floe_iceberg.transactions.run_branches import NewTable, is_only_of
from floe_iceberg.transactions.undo_plan import LaterWrite, RestoredTable, UndoPlan
from floe_iceberg.transactions.undone import undone_runs

__all__ = [
    "REPLAYED",
    "HeadAssertion",
    "HeadMove",
    "Isolation",
    "LaterWrite",
    "MoveState",
    "NewTable",
    "Replay",
    "RestoredTable",
    "UndoPlan",
    "branch_start",
    "head_of",
    "is_only_of",
    "load_at_once",
    "load_each",
    "plan_replay",
    "publish",
    "recover",
    "undone_runs",
]
