"""Every foreign exception has one meaning in Floe's words."""

from __future__ import annotations

import errno
import os
import sqlite3

import pytest
import requests
from pyarrow.fs import LocalFileSystem
from pyiceberg import exceptions as iceberg

from floe_core import errors as floe
from floe_core.models import StorageErrorDetail
from floe_iceberg.errors import translated


def system_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("raised", "expected", "said"),
    [
        (iceberg.NoSuchTableError("x"), floe.TableNotFoundError, "'a.b' not found"),
        (iceberg.TableAlreadyExistsError("x"), floe.TableAlreadyExistsError, "exists already"),
        (iceberg.CommitFailedException("x"), floe.ConcurrencyConflictError, "run it again"),
        (iceberg.CommitStateUnknownException("x"), floe.CommitStateUnknownError, "may have succeeded"),
        (iceberg.ValidationException("x"), floe.ConcurrencyConflictError, "the same rows of 'a.b'"),
        (iceberg.UnauthorizedError("x"), floe.CatalogAuthenticationError, "refused the credentials"),
        (iceberg.AuthorizationExpiredError("x"), floe.CatalogAuthenticationError, "refused the credentials"),
        (iceberg.OAuthError("x"), floe.CatalogAuthenticationError, "catalog.credentials"),
        (iceberg.ForbiddenError("role r lacks DROP"), floe.PermissionDeniedError, "role r lacks DROP"),
        (iceberg.ServiceUnavailableError("x"), floe.CatalogConnectionError, "did not answer"),
        (iceberg.TooManyRequestsError("x"), floe.CatalogConnectionError, "did not answer"),
        (iceberg.ServerError("x"), floe.CatalogConnectionError, "did not answer"),
        (iceberg.BadRequestError("no such thing"), floe.FloeStorageError, "about 'a.b': no such thing"),
        (requests.ConnectionError("refused"), floe.CatalogConnectionError, "did not answer"),
        (requests.ReadTimeout("slow"), floe.CatalogConnectionError, "did not answer"),
        (requests.ConnectTimeout("slow"), floe.CatalogConnectionError, "did not answer"),
        (requests.exceptions.ChunkedEncodingError("cut"), floe.CatalogConnectionError, "did not answer"),
        (system_error(errno.ENOSPC), floe.FloeStorageError, "no space left where the files of 'a.b' are written"),
        (system_error(errno.EDQUOT), floe.FloeStorageError, "free some, then run it again. Nothing was committed"),
        (OSError("Error writing. Detail: [errno 28] No space left"), floe.FloeStorageError, "no space left"),
        (system_error(errno.EROFS), floe.FloeStorageError, "read-only file system"),
        (system_error(errno.EACCES), floe.StorageAuthenticationError, "no permission to read or write"),
        (system_error(errno.EPERM), floe.StorageAuthenticationError, "no permission to read or write"),
        (PermissionError("AWS Error [code 15]"), floe.StorageAuthenticationError, "AWS Error"),
        (
            OSError("AWS Error ACCESS_DENIED during CreateMultipartUpload operation: Access Denied."),
            floe.StorageAuthenticationError,
            "grant its principal TABLE_WRITE_DATA",
        ),
        (
            OSError("AWS Error ACCESS_DENIED during HeadObject operation: Access Denied."),
            floe.StorageAuthenticationError,
            "Check the keys in storage",
        ),
        (FileNotFoundError("x"), floe.FloeStorageError, "floe doctor"),
        (sqlite3.OperationalError("database or disk is full"), floe.FloeStorageError, "no space left on the disk"),
        (sqlite3.OperationalError("disk I/O error"), floe.FloeStorageError, "free some space"),
        (sqlite3.OperationalError("attempt to write a readonly database"), floe.FloeStorageError, "read-only"),
        (
            ValueError("Table UUID does not match: current=1 != refreshed=2"),
            floe.ConcurrencyConflictError,
            "replaced 'a.b' by another table",
        ),
    ],
    ids=lambda value: f"{type(value).__name__} {value}"[:60] if isinstance(value, Exception) else "",
)
def test_a_foreign_exception_becomes_floes(raised: Exception, expected: type[floe.FloeError], said: str) -> None:
    with pytest.raises(floe.FloeStorageError) as caught, translated("load_table", "a.b"):
        raise raised
    assert type(caught.value) is expected
    assert said in str(caught.value)
    assert caught.value.__cause__ is raised
    assert caught.value.detail is not None
    assert caught.value.detail.retryable is (expected in (floe.CatalogConnectionError, floe.ConcurrencyConflictError))


@pytest.mark.parametrize(
    "raised",
    [
        floe.FloeStorageError("said already"),
        floe.ConfigurationError("said already"),
        ValueError("something else"),
        OSError("nobody knows"),
        KeyError("k"),
    ],
)
def test_what_is_floes_own_or_unknown_passes_unchanged(raised: Exception) -> None:
    with pytest.raises(type(raised)) as caught, translated("load_table", "a.b"):
        raise raised
    assert caught.value is raised


@pytest.mark.parametrize("namespace", [False, True])
def test_the_detail_of_an_error_of_floe_names_what_it_was_about(namespace: bool) -> None:
    lost = StorageErrorDetail(error_type="Timeout", operation="GET /v1/x", message="no answer", retry_count=2)
    for raised, expected in [
        (floe.CatalogConnectionError("no answer", detail=lost), ("Timeout", "GET /v1/x", 2)),
        (floe.ConcurrencyConflictError("changed"), ("ConcurrencyConflictError", "append", 0)),
    ]:
        with pytest.raises(floe.FloeStorageError) as caught, translated("append", "a.b", namespace=namespace):
            raise raised
        detail = caught.value.detail
        assert detail is not None
        assert (detail.error_type, detail.operation, detail.retry_count) == expected
        assert (detail.table, detail.namespace) == ((None, "a.b") if namespace else ("a.b", None))
    with pytest.raises(floe.FloeStorageError), translated("outer", "c.d"):
        raise caught.value  # the innermost operation knows it best
    assert "c.d" not in repr(caught.value.detail)


@pytest.mark.parametrize(
    ("place", "expected", "said"),
    [
        ("/dev/full", floe.FloeStorageError, "no space left where the files of"),
        ("/sys/floe.parquet", floe.StorageAuthenticationError, "no permission to read or write"),
    ],
)
def test_what_arrow_says_of_a_full_or_forbidden_place_is_understood(
    place: str, expected: type[floe.FloeError], said: str
) -> None:
    # Not write_table(): it would remove the device after the failure.
    with (
        pytest.raises(expected, match=said),
        translated("append", "a.b"),
        LocalFileSystem().open_output_stream(place) as stream,
    ):
        stream.write(b"x" * 1_000_000)
