"""Floe's errors for the exceptions of Spark and Iceberg: by Java class, for classic sessions and for Connect."""

from __future__ import annotations

import re
from contextlib import suppress

from floe_core import errors as floe
from floe_core.catalog_refusals import explain_refusal
from floe_core.identifiers import TableIdentifier
from floe_core.models import StorageErrorDetail
from floe_core.security import redact

__all__ = [
    "is_column_mismatch",
    "is_doubt",
    "is_lost_process",
    "is_lost_server",
    "is_refused",
    "java_classes",
    "translate",
]

# Spark and Iceberg report a missing source of the data as they report a missing target.
_NOT_FOUND = ("NoSuchTableException", "TABLE_OR_VIEW_NOT_FOUND")
_MISSING_NAME = re.compile(r"The table or view (\S+) cannot be found|Table does not exist: ([^\s,;]+)")
_SOURCE_MISSING = (
    floe.FloeStorageError,
    (
        "the data is read from {missing}, which Spark cannot find; create it again, or make the DataFrame again. "
        "Nothing was written to '{name}'"
    ),
)
_TABLE: dict[str, tuple[type[floe.FloeStorageError], str]] = {
    "CommitStateUnknownException": (
        floe.CommitStateUnknownError,
        "the commit to '{name}' may have succeeded; check its snapshots before you retry",
    ),
    "CommitFailedException": (
        floe.ConcurrencyConflictError,
        "other writers changed '{name}' faster than this write could commit; nothing was written: run it again",
    ),
    **dict.fromkeys(
        _NOT_FOUND,
        (
            floe.TableNotFoundError,
            "Table '{name}' not found in catalog. It was dropped during this operation, or never written",
        ),
    ),
    "INCOMPATIBLE_DATA_FOR_TABLE": (
        floe.SchemaEvolutionError,
        "Schema mismatch: {reason} Nothing was written to '{name}': cast the data, or write to a new table",
    ),
    "NotAuthorizedException": (
        floe.CatalogAuthenticationError,
        (
            "Authentication failed: check catalog credentials in floe.yaml. The catalog refused Spark's token while it "
            "worked on '{name}' ({reason}); run: floe doctor"
        ),
    ),
    # Iceberg raises it at the commit, Spark when it checks before the write.
    **dict.fromkeys(
        ("AlreadyExistsException", "TABLE_OR_VIEW_ALREADY_EXISTS"),
        (
            floe.TableAlreadyExistsError,
            "table '{name}' was created by another writer during this write; run it again",
        ),
    ),
}
# By whether Iceberg's validation failed because of a conflict, or for another reason.
_VALIDATION = {
    True: (
        floe.ConcurrencyConflictError,
        "another writer changed the same rows of '{name}' during this write; nothing was written: run it again",
    ),
    False: (floe.FloeStorageError, "Iceberg refused the write to '{name}', and nothing was written: {reason}"),
}
_STORAGE_REFUSED = (
    floe.StorageAuthenticationError,
    (
        "the catalog agreed and the object store did not: {reason} (files of '{name}'). Nothing was committed. Where "
        "the catalog vends the keys, its principal needs TABLE_WRITE_DATA to write and TABLE_READ_DATA to read. "
        "Otherwise check the keys in storage, or what the catalog's own role may do with its store; credentials that "
        "expired during a long job are renewed in Spark only where the catalog has an endpoint for it"
    ),
)
# The errors of an object store that refuses access; Iceberg wraps them in several ways.
_STORE_REFUSALS = re.compile(
    r"ExpiredToken|InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|RequestTimeTooSkewed|\bAccessDenied"
    r"|token has expired[^\n]*Service: S3|Exception: [^\n]*Service: S3, Status Code: 40[13]"
)
_ByText = tuple[tuple[str, type[floe.FloeStorageError], str], ...]
# Failures of writes and reads whose DataFrame was made before the tables it reads were changed.
_OF_FRAMES: _ByText = (
    (
        r"Cannot find snapshot with ID \d+",
        floe.FloeStorageError,
        (
            "the data is read from a snapshot that has expired since the DataFrame was made ({found}); make the "
            "DataFrame again. Nothing was committed to '{name}'"
        ),
    ),
    (
        # A missing metadata file is not caused by expiry: the table itself is damaged.
        (
            r"iceberg\.exceptions\.NotFoundException\)?:? (?:Failed to open input stream for file|File does not exist"
            r"|Location does not exist): (?!\S+\.metadata\.json)"
        ),
        floe.FloeStorageError,
        (
            "a file that Spark reads for '{name}' does not exist: {reason}. If snapshots were expired after the "
            "DataFrame was made, make it again; if not, a table has lost the file. Nothing was committed"
        ),
    ),
)
# Failures that no Java class distinguishes: tables, memory, disks, stores, timestamps.
_BY_TEXT: _ByText = (
    (
        r"IllegalStateException\)?:? Table UUID does not match",
        floe.ConcurrencyConflictError,
        (
            "'{name}', or a table that is read for it, was dropped and created again while Spark worked; nothing was "
            "committed. Check that it is the table you mean, make the DataFrame again and run it again"
        ),
    ),
    (
        # Values of the data appear in quotes, and are not matched.
        r"(?m)^[^'\"`\n]*?(java\.lang\.OutOfMemoryError(?:\)?:? [^\n]+)?)",
        floe.FloeStorageError,
        (
            "Spark ran out of memory while it worked on '{name}' ({found}). Give it more with spark: {{conf: "
            "{{spark.driver.memory: 4g}}}} in floe.yaml (on a cluster: spark.executor.memory), or write in smaller "
            "parts. Nothing was committed"
        ),
    ),
    (
        # Java gives no reason when it cannot create a folder; file systems limit a name to 255 bytes.
        (
            r"(?:FSError|IOException|FileSystemException|FileNotFoundException)[^\n]*File name too long"
            r"|(?:Mkdirs failed to create|Failed to create file:?) [^\n]*/[^/\s]{256,}"
            r"|awssdk[^\n]*(?:KeyTooLong|key is too long)"
        ),
        floe.FloeStorageError,
        "a partition value of '{name}' makes too long a file name; use truncate or bucket. Nothing was committed",
    ),
    (
        r"(?:FSError|IOException|SQLiteException)[^\n]*(?:No space left on device|Disk quota exceeded|SQLITE_FULL)",
        floe.FloeStorageError,
        (
            "no space left on a disk that Spark writes to: that of the files of '{name}', or that of its temporary "
            "files (spark.local.dir). Free some, then run it again. Nothing was committed"
        ),
    ),
    (
        r"Invalid update timestamp|\[BUG\] Expected sorted",
        floe.FloeStorageError,
        (
            "Iceberg refuses the timestamps of '{name}' ({reason}): Spark's clock is behind its last commit, or a "
            "writer's clock went back. Set the clocks (NTP), and see: floe tables health --table {name}"
        ),
    ),
    (
        r"No FileSystem for scheme",
        floe.FloeStorageError,
        (
            "floe.yaml has no storage for the files of '{name}': {reason}. Add storage: {{type: s3, bucket: …}} to "
            "floe.yaml. Nothing was committed"
        ),
    ),
    (
        r"awssdk\S*NoSuchBucketException",
        floe.FloeStorageError,
        "the bucket for the files of '{name}' does not exist; check storage.bucket in floe.yaml. Nothing was committed",
    ),
    (
        r"awssdk\S*SdkClientException: (?:Unable to execute HTTP request|Received an UnknownHostException)",
        floe.FloeStorageError,
        (
            "the object store with the files of '{name}' did not answer: {reason}. Check storage.endpoint in "
            "floe.yaml, and that the store runs. Nothing was committed"
        ),
    ),
)
_SHOWN = 500
_ON_FRAMES = {"spark.append", "spark.overwrite", "spark.upsert", "spark.read"}
# The errors of Iceberg's readers for a file with wrong content; those for a missing or unreachable file differ.
_DAMAGED_FILE = re.compile(r"Failed to (?:open|open Parquet|fetch) file: (\S+)|(\S+) is not a Parquet file")
_DAMAGE = re.compile(
    r"EOFException|Not an Avro data file|AvroRuntimeException|Invalid sync|is not a Parquet file"
    r"|Incorrect length provided for file"
)
_JAVA_CLASS = re.compile(r"\b((?:[a-z][\w$]*\.)+)([A-Z][\w$]*(?:Exception|Error))\b")
# The packages whose exceptions are known here; those of others may have the same names.
_PACKAGES = ("org.apache.iceberg.", "org.apache.spark.", "org.apache.h", "java.net.", "java.sql.", "org.postgresql.")


# The text of an error in the JVM that ended before the text was read.
LOST_TEXT = "the Spark process ended before it could report the error"


def text_of(exc: BaseException) -> str:
    """The text of an error. Py4J requests it from the JVM each time: it is cached, because the JVM may be ending."""
    text: str | None = getattr(exc, "floe_text", None)
    if text is None:
        try:
            text = str(exc)
        except Exception:  # noqa: BLE001 - whatever the error: the connection is broken
            text = LOST_TEXT
        with suppress(AttributeError):
            exc.floe_text = text  # type: ignore[attr-defined]
    return text


def java_classes(exc: BaseException) -> list[str]:
    """Simple names of the Java exceptions behind a PySpark error, outermost first.

    A classic session and a Connect server both print them with their package; nothing else carries them in both.
    """
    lines = (line for line in text_of(exc).splitlines() if not line.lstrip().startswith("at "))
    return [name for line in lines for package, name in _JAVA_CLASS.findall(line) if package.startswith(_PACKAGES)]


# After these the outcome of a commit is unknown.
_OUTCOME_UNKNOWN = {
    "CommitStateUnknownException",
    "InternalServerError",
    "NoHttpResponseException",
    "RESTException",
    "ServiceFailureException",
    "ServiceUnavailableException",
    "SocketException",
    "SocketTimeoutException",
    "UncheckedInterruptedException",
    "UncheckedSQLException",
}
_LOST_SERVER = {"RpcError", "RetriesExceeded"}


def is_doubt(exc: BaseException) -> bool:
    """Whether a commit that failed like this may have been applied. A failed task comes before the commit."""
    if isinstance(exc, floe.CommitStateUnknownError | floe.CatalogConnectionError | ConnectionError | TimeoutError):
        return True
    if is_lost_process(exc) or _LOST_SERVER & {kind.__name__ for kind in type(exc).__mro__}:
        return True
    text = text_of(exc)
    if "Job aborted due to stage failure" in text:
        return False
    return bool(_OUTCOME_UNKNOWN.intersection(java_classes(exc))) or "StatusCode.UNAVAILABLE" in text


def is_lost_process(exc: BaseException) -> bool:
    """Whether the Spark process of this machine did not answer a call."""
    # Py4J raises its base class for a call without an answer; an answer of the JVM comes with its trace.
    unanswered = (
        type(exc).__name__ == "Py4JError" and "occurred while calling" in text_of(exc) and "Trace:" not in text_of(exc)
    )
    lost = unanswered or text_of(exc) == LOST_TEXT
    return lost or "Py4JNetworkError" in {kind.__name__ for kind in type(exc).__mro__}


def is_lost_server(exc: BaseException) -> bool:
    """Whether the Spark Connect server did not answer, as opposed to the catalog behind it."""
    names = {kind.__name__ for kind in type(exc).__mro__}
    return bool(_LOST_SERVER & names) or "StatusCode.UNAVAILABLE" in text_of(exc)


def is_refused(exc: BaseException) -> bool:
    """Whether the catalog refused Spark's token; nothing was done then."""
    return any("NotAuthorizedException" in java_classes(error) for error in (exc, exc.__cause__) if error is not None)


def is_column_mismatch(exc: BaseException) -> bool:
    """Whether Spark could not match the columns of the data with those of the table."""
    return bool({"INCOMPATIBLE_DATA_FOR_TABLE", "UNRESOLVED_COLUMN", "FIELD_NOT_FOUND"}.intersection(_conditions(exc)))


def _is_conflict(exc: BaseException) -> bool:
    """Whether a failed validation is a conflict: Iceberg raises one class for several failures; the text differs."""
    return any(
        fragment in text_of(exc)
        for fragment in (
            "conflicting",
            "Cannot commit, found",
            "Cannot determine history",
            "Missing required files",
            "missing data files",
            "could not be found in the latest snapshot",
        )
    )


def translate(exc: Exception, operation: str, identifier: TableIdentifier) -> floe.FloeError | None:
    """Floe's error for a failure of Spark, or None if there is none."""
    refused = "software.amazon.awssdk" in text_of(exc) and _STORE_REFUSALS.search(text_of(exc)) is not None
    # A task may fail for any reason, such as an error in a user's function; the commit comes after all tasks.
    classes = [*([] if "Job aborted due to stage failure" in text_of(exc) else java_classes(exc)), *_conditions(exc)]
    if refused:
        classes.insert(0, "S3Exception")
    if "sequence number" in text_of(exc) and {"BadRequestException", "ValidationException"} & set(classes):
        classes.insert(0, "CommitFailedException")  # a commit to another branch; not every server answers 409
    for pattern, error, message in (*_BY_TEXT, *(_OF_FRAMES if operation in _ON_FRAMES else ())):
        match = re.search(pattern, text_of(exc))
        if match is not None:
            text = message.format(name=identifier, reason=_reason(exc), found=match[match.lastindex or 0])
            return error(text, detail=_detail(exc, operation, identifier))
    damaged = None if refused else _damaged(exc, operation, identifier)
    if damaged is not None:
        return damaged
    for java_class in classes:
        if java_class == "ForbiddenException" and not refused:
            refusal = explain_refusal(_forbidden(exc), bearer="Spark's principal", show=lambda part: part[:_SHOWN])
            message = f"{refusal.message} (at '{identifier}')"
            return refusal.error(message, detail=_detail(exc, operation, identifier, java_class))
        known = _VALIDATION[_is_conflict(exc)] if java_class == "ValidationException" else _TABLE.get(java_class)
        missing = _missing_source(exc, identifier) if java_class in _NOT_FOUND else None
        if missing is not None:
            known = _SOURCE_MISSING
        if refused:
            known = _STORAGE_REFUSED
        if known is not None:
            error, message = known
            detail = _detail(exc, operation, identifier, java_class, retryable=error is floe.ConcurrencyConflictError)
            return error(message.format(name=identifier, reason=_reason(exc), missing=missing), detail=detail)
    return None


def _forbidden(exc: BaseException) -> str:
    """The message of the catalog's 403."""
    messages = re.findall(r"ForbiddenException\)?: (?:Forbidden: )?([^\n]*)", redact(text_of(exc)))
    return messages[-1].strip() if messages else ""


def _damaged(exc: Exception, operation: str, identifier: TableIdentifier) -> floe.DamagedFileError | None:
    match = _DAMAGED_FILE.search(text_of(exc))
    if match is None or _DAMAGE.search(text_of(exc)) is None:
        return None
    file = match[1] or match[2]
    return floe.DamagedFileError(
        f"table '{identifier}': {file} is damaged, and Spark cannot read it. Nothing was committed. Restore the file "
        f"from a backup or from an earlier version of the object. Without one, go back to a snapshot that does not "
        f"need it with rollback_to_snapshot, or overwrite what it belongs to",
        file=file,
        detail=_detail(exc, operation, identifier),
    )


def _missing_source(exc: BaseException, target: TableIdentifier) -> str | None:
    """The name of the table or view that Spark did not find, unless it is the target or one of its branches."""
    match = _MISSING_NAME.search(text_of(exc))
    if match is None:
        return None
    shown = (match[1] or match[2]).rstrip(".")
    # Spark may prefix the name with that of the catalog.
    own = re.escape(str(target).lower())
    is_target = re.fullmatch(rf"((?!spark_catalog\.)[^.]+\.)?{own}(\.branch_.*)?", shown.replace("`", "").lower())
    return None if is_target else shown


def _detail(
    exc: Exception, operation: str, identifier: TableIdentifier, kind: str = "", *, retryable: bool = False
) -> StorageErrorDetail:
    return StorageErrorDetail(
        error_type=kind or type(exc).__name__,
        operation=operation,
        table=str(identifier),
        message=redact(text_of(exc))[:2000],
        retryable=retryable,
    )


def _conditions(exc: BaseException) -> list[str]:
    """The first part of Spark's error condition: [INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_FIND_DATA]."""
    return re.findall(r"^\[([A-Z_]+)", text_of(exc))


def _reason(exc: BaseException) -> str:
    """The message of the innermost Java exception, or the first line of Spark's without its SQLSTATE."""
    text = redact(text_of(exc))
    reasons = re.findall(
        r"(?:ValidationException|NotAuthorizedException|ForbiddenException|awssdk\S*Exception"
        r"|UnsupportedFileSystemException|iceberg\.exceptions\.NotFoundException)"
        r"\)?:? ([^\n]+)",
        text,
    )
    return reasons[-1].strip() if reasons else text.splitlines()[0].partition(" SQLSTATE")[0]
