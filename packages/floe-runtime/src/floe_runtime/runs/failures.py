"""Why an asset failed: the message, the line of the user's code, and a log of the run with the traceback."""

from __future__ import annotations

import inspect
import linecache
import logging
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dagster import AssetCheckEvaluation, AssetCheckSeverity, DagsterEventType

from floe_core.security import create_private, make_folder, redact

if TYPE_CHECKING:
    from dagster import DagsterInstance, ExecuteInProcessResult

    from floe_runtime.runs.pipeline import Pipeline

__all__ = [
    "Failure",
    "Place",
    "causes",
    "failed_checks",
    "failures_of",
    "is_interruption",
    "log_lines",
    "log_path",
    "place_in",
    "place_of",
    "sentence",
    "write_log",
]

# How many logs of failed runs are kept.
KEPT_LOGS = 20

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_INTERRUPTIONS = ("DagsterExecutionInterruptedError", "KeyboardInterrupt")
_CHECK_FAILED = "DagsterAssetCheckFailedError"
_FACTS = 5  # entries of the metadata of a check that its error has
_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Place:
    """A line of the user's code."""

    file: str
    line: int
    function: str
    source: str

    @classmethod
    def of(cls, file: str, line: int, function: str, root: Path) -> Place:
        path = Path(file)
        shown = str(path.relative_to(root)) if path.is_relative_to(root) else file
        return cls(shown, line, function, redact(linecache.getline(file, line).strip()))


@dataclass(frozen=True)
class Failure:
    """An asset, or another step, that failed; without a place, the error was not raised in the user's code."""

    notebook_fields: ClassVar = ("asset", "error")

    asset: str
    error: str
    place: Place | None = None
    defined: Place | None = None

    def __str__(self) -> str:
        return f"{self.asset} failed: {self.error}"


def failed_checks(events: Iterable[Any], error: Any = None, step: str | None = None) -> list[Failure]:
    """The checks of a run that failed with severity ERROR.

    Args:
        events: The events of the run.
        error: Why a step failed: then only if that is a check, and of this step.
        step: The step.
    """
    if error is not None and all(cause.cls_name != _CHECK_FAILED for cause in causes(error)):
        return []
    evaluations = (
        event.asset_check_evaluation_data
        for event in events
        if event.event_type is DagsterEventType.ASSET_CHECK_EVALUATION and (step is None or event.step_key == step)
    )
    return [
        Failure(f"check {found.check_name} of {found.asset_key.to_user_string()}", redact(_reason(found)))
        for found in evaluations
        if not found.passed and found.severity is AssetCheckSeverity.ERROR
    ]


def _reason(evaluation: AssetCheckEvaluation) -> str:
    """Why a check failed: its description, or else its metadata."""
    values = ((name, metadata.value) for name, metadata in evaluation.metadata.items())
    facts = [f"{name} = {value}" for name, value in values if isinstance(value, str | int | float)]
    return evaluation.description or ", ".join(facts[:_FACTS]) or "no reason given"


def failures_of(pipeline: Pipeline, result: ExecuteInProcessResult) -> list[Failure]:
    """The failed steps and checks of a run, in the order in which they failed."""
    failures: list[Failure] = []
    for event in result.all_events:
        if event.event_type is DagsterEventType.STEP_FAILURE:
            if checks := failed_checks(result.all_events, event.step_failure_data.error, event.step_key):
                failures += checks
                continue
            step = event.step_key or "a step"
            names, error = pipeline.steps.get(step, [step]), event.step_failure_data.error
            place = place_of(error, pipeline.artifacts.root)
            failures.append(
                Failure(
                    ", ".join(names), redact(sentence(error)), place, None if place else _definition(pipeline, names[0])
                )
            )
    return failures


def sentence(error: Any) -> str:
    """The message of the error that user code raised, without Dagster's wrappers."""
    raised = _raised(error)
    if raised is None:
        return "no reason given"
    return str(raised.message).strip().removeprefix(f"floe_core.errors.{raised.cls_name}: ")


def causes(error: Any) -> Iterator[Any]:
    while error is not None:
        yield error
        error = error.cause


def is_interruption(error: Any) -> bool:
    """Whether Ctrl-C ended a step: Dagster records it as a failure."""
    return any(cause.cls_name in _INTERRUPTIONS for cause in causes(error))


def _raised(error: Any) -> Any:
    return next((cause for cause in causes(error) if not (cause.cls_name or "").startswith("Dagster")), error)


def _stack(error: Any) -> Sequence[str]:
    raised = _raised(error)
    return raised.stack if raised is not None else ()


def place_of(error: Any, root: Path) -> Place | None:
    """The line of the user's code that raised an error, as Dagster stored it."""
    return place_in(_stack(error), root)


def place_in(stack: Sequence[str], root: Path) -> Place | None:
    """The innermost frame of the user's code: in the project, or else in a module that is not installed."""
    matches = [match for entry in stack if (match := _FRAME.match(entry))]
    frames = [(match["file"], int(match["line"]), match["function"]) for match in matches]
    own = [frame for frame in frames if _is_own(Path(frame[0]))]
    inside = [frame for frame in own if Path(frame[0]).is_relative_to(root)]
    chosen = (inside or own)[-1:]
    return Place.of(*chosen[0], root) if chosen else None


def _is_own(path: Path) -> bool:
    """Whether the file is the user's: not of the standard library, not installed, not of Floe."""
    if not path.is_absolute() or any(part in _INSTALLED for part in path.parts):
        return False
    return not any(path.is_relative_to(folder) for folder in (Path(sysconfig.get_path("stdlib")), *_floe_folders()))


def _floe_folders() -> list[Path]:
    """The packages of Floe, which may be installed from a clone."""
    names = [name for name in sys.modules if name.startswith("floe_") and "." not in name]
    return [Path(file).parent for name in names if (file := getattr(sys.modules[name], "__file__", None))]


def _definition(pipeline: Pipeline, asset: str) -> Place | None:
    """Where the function of an asset is defined, for an error raised elsewhere, such as a failed write."""
    keys = {key.to_user_string(): key for key in pipeline.graph.materializable_asset_keys}
    if asset not in keys:
        return None
    compute: Any = getattr(pipeline.graph.assets_def_for_key(keys[asset]).node_def, "compute_fn", None)
    function = inspect.unwrap(getattr(compute, "decorated_fn", None) or (lambda: None))
    code = getattr(function, "__code__", None)  # partials and other callables have none
    if code is None or not _is_own(Path(code.co_filename)):
        return None
    return Place.of(code.co_filename, code.co_firstlineno, function.__name__, pipeline.artifacts.root)


def write_log(pipeline: Pipeline, run_id: str) -> Path | None:
    """Everything that Dagster recorded of a failed run, tracebacks included; None if it cannot be written."""
    path = log_path(pipeline.artifacts.root, run_id)
    folder = path.parent
    try:
        make_folder(folder)
        create_private(path)
        path.write_text(redact("".join(log_lines(pipeline.instance, run_id))), encoding="utf-8")
        kept = sorted(folder.glob("run-*.log"), key=lambda log: log.stat().st_mtime)
    except OSError:
        return None
    for old in kept[:-KEPT_LOGS]:
        with suppress(OSError):
            old.unlink()
    return path


def log_path(root: Path, run_id: str) -> Path:
    """Where the log of a failed run is written."""
    return root / ".floe" / "logs" / f"run-{run_id}.log"


def log_lines(instance: DagsterInstance, run_id: str) -> Iterator[str]:
    """Everything that Dagster recorded of a run, with the tracebacks of what failed."""
    for entry in instance.all_logs(run_id):
        moment = datetime.fromtimestamp(entry.timestamp, timezone.utc).isoformat(timespec="milliseconds")
        level = "EVENT" if entry.dagster_event is not None else _level(entry.level)
        yield f"{moment} {level} {entry.step_key or '-'} {entry.message or entry.user_message}\n"
        event = entry.dagster_event
        if event is not None and event.event_type in (DagsterEventType.STEP_FAILURE, DagsterEventType.RUN_FAILURE):
            error = getattr(event.event_specific_data, "error", None)
            yield f"{error.to_string()}\n" if error is not None else ""


def _level(number: int | str) -> str:
    return logging.getLevelName(number) if isinstance(number, int) else number
