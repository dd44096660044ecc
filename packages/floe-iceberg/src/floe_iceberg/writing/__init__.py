"""Writes: the request, the source, staged files, what is replaced, the commit and its outcome."""

from floe_iceberg.writing import commit_outcome, commits
from floe_iceberg.writing.arrow_source import ArrowSource, source_of
from floe_iceberg.writing.commit_outcome import CommitOutcome, Outcome
from floe_iceberg.writing.commits import StagedBranch
from floe_iceberg.writing.file_layout import check_properties
from floe_iceberg.writing.overwrites import NOTHING, Finder, Replacement, files_of_partitions, files_under, state_of
from floe_iceberg.writing.request import (
    Committed,
    Target,
    WriteRequest,
    WriteResult,
    check_branch,
    check_table,
    created_by_another,
    refuse_strategy,
    report_missing_columns,
    unmarked,
    write_operation,
)
from floe_iceberg.writing.staging import Staged, files_since

__all__ = [
    "NOTHING",
    "ArrowSource",
    "CommitOutcome",
    "Committed",
    "Finder",
    "Outcome",
    "Replacement",
    "Staged",
    "StagedBranch",
    "Target",
    "WriteRequest",
    "WriteResult",
    "check_branch",
    "check_properties",
    "check_table",
    "commit_outcome",
    "commits",
    "created_by_another",
    "files_of_partitions",
    "files_since",
    "files_under",
    "refuse_strategy",
    "report_missing_columns",
    "source_of",
    "state_of",
    "unmarked",
    "write_operation",
]
