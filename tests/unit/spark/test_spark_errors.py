"""What a failure of Spark means, by the words in which classic and Connect sessions tell it."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # it has no stubs

from floe_core import errors as floe
from floe_core.identifiers import TableIdentifier
from floe_spark.errors import is_doubt, is_lost_process, is_refused, text_of, translate

TABLE = TableIdentifier.from_string("bronze.orders")
STAGE = "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed:"


class Told(Exception):  # noqa: N818 - as PySpark would raise it
    """A failure of Spark in its words."""


@pytest.mark.parametrize(
    ("words", "kind", "told"),
    [
        (
            "org.apache.iceberg.exceptions.NotAuthorizedException: Not authorized: ",
            floe.CatalogAuthenticationError,
            "Authentication failed: check catalog credentials in floe.yaml",
        ),
        (
            "org.apache.iceberg.exceptions.ForbiddenException: Forbidden: no",
            floe.PermissionDeniedError,
            "does not allow this: no. Ask whoever runs the catalog",
        ),
        (
            (
                "An error occurred while calling o85.create.\n: org.apache.iceberg.exceptions.ForbiddenException: "
                "Forbidden: Principal 'reader' with activated PrincipalRoles '[r]' and activated grants via '[r]' is "
                "not authorized for op CREATE_TABLE_STAGED_WITH_WRITE_DELEGATION\n\tat org.apache.iceberg.rest.Errors"
            ),
            floe.PermissionDeniedError,
            "knows 'reader' and does not allow CREATE_TABLE_STAGED_WITH_WRITE_DELEGATION",
        ),
        (
            (
                "org.apache.iceberg.exceptions.ForbiddenException: Forbidden: Unable to create entity at location "
                "'s3://lake/a' because it conflicts with existing table or namespace at location 's3://lake/a/'"
            ),
            floe.FloeStorageError,
            "location='s3://lake/a-2'",
        ),
        (
            (
                "org.apache.iceberg.exceptions.ForbiddenException: Forbidden: Access Denied. (Service: S3, Status "
                "Code: 403, Request ID: 1) (SDK Attempt Count: 1)"
            ),
            floe.StorageAuthenticationError,
            "refused the catalog server's own key",
        ),
        (
            "org.apache.iceberg.exceptions.BadRequestException: can't add snapshot with sequence number 7, must be > 7",
            floe.ConcurrencyConflictError,
            "run it again",
        ),
        (
            (
                f"{STAGE} software.amazon.awssdk.services.s3.model.S3Exception: The provided token has expired. "
                f"(Service: S3, Status Code: 400, Request ID: null)"
            ),
            floe.StorageAuthenticationError,
            "the catalog agreed and the object store did not",
        ),
        (
            (
                f"{STAGE} software.amazon.awssdk.services.s3.model.AccessDeniedException: Access Denied. (Service: S3, "
                f"Status Code: 403, Request ID: 1)"
            ),
            floe.StorageAuthenticationError,
            "needs TABLE_WRITE_DATA to write",
        ),
        (
            'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s3"',
            floe.FloeStorageError,
            "Add storage: {type: s3, bucket: …} to floe.yaml",
        ),
        (
            "software.amazon.awssdk.services.s3.model.NoSuchBucketException: The specified bucket does not exist",
            floe.FloeStorageError,
            "check storage.bucket",
        ),
        (
            "software.amazon.awssdk.core.exception.SdkClientException: Unable to execute HTTP request: refused",
            floe.FloeStorageError,
            "Check storage.endpoint",
        ),
        (
            "java.lang.IllegalStateException: Table UUID does not match: current=42997abe != refreshed=68e0c2a9",
            floe.ConcurrencyConflictError,
            "was dropped and created again while Spark worked; nothing was committed",
        ),
        (
            "(java.lang.IllegalStateException) Table UUID does not match: current=42997abe != refreshed=68e0c2a9",
            floe.ConcurrencyConflictError,
            "was dropped and created again while Spark worked; nothing was committed",
        ),
        (
            f"{STAGE} java.lang.OutOfMemoryError: Java heap space",
            floe.FloeStorageError,
            "ran out of memory while it worked on 'bronze.orders' (java.lang.OutOfMemoryError: Java heap space)",
        ),
        (
            "(org.apache.iceberg.exceptions.NotFoundException) Location does not exist: s3://lake/snap-1.avro",
            floe.FloeStorageError,
            "s3://lake/snap-1.avro. If snapshots were expired",
        ),
        (
            "java.lang.IllegalArgumentException: Cannot find snapshot with ID 8708175296835289755",
            floe.FloeStorageError,
            "expired since the DataFrame was made (Cannot find snapshot with ID 8708175296835289755); make the",
        ),
        (
            (
                "org.apache.iceberg.exceptions.NotFoundException: Failed to open input stream for file: "
                "file:/lake/bronze/raw/metadata/26a4dbc6-m0.avro\n\tat org.apache.iceberg.hadoop.HadoopInputFile"
            ),
            floe.FloeStorageError,
            "/bronze/raw/metadata/26a4dbc6-m0.avro. If snapshots were expired after the DataFrame was made, make it",
        ),
        (
            f"{STAGE} org.apache.iceberg.exceptions.NotFoundException: Location does not exist: s3://lake/a.parquet",
            floe.FloeStorageError,
            "s3://lake/a.parquet. If snapshots were expired",
        ),
        (
            f"{STAGE} org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device",
            floe.FloeStorageError,
            "no space left on a disk that Spark writes to",
        ),
        (
            f"{STAGE} java.io.IOException: Mkdirs failed to create file:/lake/t/data/note={'v' * 4000} (exists=false)",
            floe.FloeStorageError,
            "makes too long a file name; use truncate or bucket",
        ),
        (
            f"{STAGE} java.io.FileNotFoundException: /lake/t/data/note=v/0.parquet (File name too long)",
            floe.FloeStorageError,
            "makes too long a file name; use truncate or bucket",
        ),
        (
            "software.amazon.awssdk.services.s3.model.S3Exception: Your key is too long (Service: S3)",
            floe.FloeStorageError,
            "makes too long a file name; use truncate or bucket",
        ),
    ],
)
def test_what_spark_met_says_what_to_do(words: str, kind: type[floe.FloeError], told: str) -> None:
    error = translate(Told(words), "spark.append", TABLE)
    assert type(error) is kind
    assert told in str(error)


@pytest.mark.parametrize(
    "words",
    [
        f"{STAGE} ValueError: crm: com.acme.NotAuthorizedException: not you",
        f"{STAGE} org.apache.iceberg.exceptions.NotAuthorizedException: said a function of the user",
        "java.nio.file.AlreadyExistsException: /data/out",
        "com.acme.ForbiddenException: no",
        "java.lang.IllegalStateException: something else",
        f"{STAGE} java.io.IOException: Mkdirs failed to create file:/lake/t/data/note=v (exists=false)",
        f"{STAGE} PythonException: OSError: [Errno 28] No space left on device",
        f"{STAGE} PythonException: OSError: [Errno 36] File name too long: '/tmp/a'",
        "[CAST_INVALID_INPUT] The value 'a java.lang.OutOfMemoryError: b' of the type STRING cannot be cast to INT",
        (
            "org.apache.iceberg.exceptions.NotFoundException: Failed to open input stream for file: "
            "file:/lake/t/metadata/00002-1.metadata.json"
        ),
    ],
)
def test_what_others_raise_under_the_same_names_is_not_taken_for_the_catalogs(words: str) -> None:
    assert translate(Told(words), "spark.append", TABLE) is None


NOT_FOUND = "[TABLE_OR_VIEW_NOT_FOUND] The table or view {} cannot be found. Verify the spelling. SQLSTATE: 42P01"
NO_TABLE = "org.apache.iceberg.exceptions.NoSuchTableException: Table does not exist: {}"


@pytest.mark.parametrize(
    "words",
    [
        NOT_FOUND.format("`lake`.`bronze`.`orders`"),
        NOT_FOUND.format("`lake`.`bronze`.`orders`.`branch_floe_1`"),
        NOT_FOUND.format("bronze.orders"),
        NO_TABLE.format("bronze.orders"),
        "org.apache.iceberg.exceptions.NoSuchTableException: 404",
    ],
)
def test_a_target_that_is_missing_is_a_table_not_found(words: str) -> None:
    assert type(translate(Told(words), "spark.append", TABLE)) is floe.TableNotFoundError


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (NOT_FOUND.format("`raw`"), "`raw`"),
        (NOT_FOUND.format("`orders`"), "`orders`"),
        (NOT_FOUND.format("`spark_catalog`.`bronze`.`orders`"), "`spark_catalog`.`bronze`.`orders`"),
        (NOT_FOUND.format("bronze.orders_raw"), "bronze.orders_raw"),
        (NO_TABLE.format("bronze.customers"), "bronze.customers"),
    ],
)
def test_a_source_that_is_missing_is_named_and_not_taken_for_the_target(words: str, missing: str) -> None:
    error = translate(Told(words), "spark.append", TABLE)
    assert type(error) is floe.FloeStorageError
    assert f"the data is read from {missing}, which" in str(error)


def test_a_procedure_that_misses_a_file_is_not_told_to_make_a_dataframe_again() -> None:
    words = "org.apache.iceberg.exceptions.NotFoundException: File does not exist: file:/lake/t/data/a.parquet"
    assert translate(Told(words), "spark.rewrite_data_files", TABLE) is None


def test_only_the_catalog_refuses_a_token() -> None:
    refused = Told("org.apache.iceberg.exceptions.NotAuthorizedException: Not authorized: ")
    explained = floe.CatalogAuthenticationError("Authentication failed")
    explained.__cause__ = refused
    assert is_refused(refused)
    assert is_refused(explained)
    assert not is_refused(Told("com.acme.NotAuthorizedException: not you"))
    own_cause = floe.FloeStorageError("refused")
    own_cause.__cause__ = own_cause
    assert not is_refused(own_cause)


@pytest.mark.parametrize(
    ("exc", "lost"),
    [
        (Py4JError("An error occurred while calling o12.append"), True),
        (Py4JNetworkError("Answer from Java side is empty"), True),
        (Py4JError("An error occurred while calling o12.append. Trace:\npy4j.Py4JException: no such method"), False),
        (Py4JError("org.acme.Missing does not exist in the JVM"), False),
    ],
)
def test_a_call_that_spark_did_not_answer_may_have_committed(exc: Exception, lost: bool) -> None:
    assert is_lost_process(exc) is lost
    assert is_doubt(exc) is lost


class Unasked(Exception):  # noqa: N818 - as Py4J names its own
    """An error whose text only a process knows that is gone after the first question, as Py4J's is."""

    asked = 0

    def __str__(self) -> str:
        self.asked += 1
        if self.asked > 1:
            raise ConnectionRefusedError(111, "Connection refused")
        return "An error occurred while calling o1.create: java.lang.IllegalStateException"


class Silent(Exception):  # noqa: N818 - as above
    def __str__(self) -> str:
        raise ConnectionRefusedError(111, "Connection refused")


def test_the_text_of_an_error_is_asked_for_once() -> None:
    failure = Unasked()
    assert [text_of(failure) for _ in range(2)] == [str(Unasked())] * 2
    assert translate(failure, "spark.append", TABLE) is None


def test_an_error_that_a_lost_process_cannot_report_leaves_its_commit_in_doubt() -> None:
    assert text_of(Silent()) == "the Spark process ended before it could report the error"
    assert is_doubt(Silent())
