"""Permanent reasons why a file or a table cannot be read."""

from __future__ import annotations

from pyiceberg.exceptions import ForbiddenError

from floe_core.errors import DamagedFileError, PermissionDeniedError

__all__ = ["is_hidden", "is_lasting", "is_missing"]


def is_missing(exc: BaseException | None) -> bool:
    """Is the file missing? Arrow reports a missing object of an S3 store as an OSError with the store's response."""
    return isinstance(exc, FileNotFoundError) or _mentions(exc, "NO_SUCH_KEY", "HTTP status 404")


def is_hidden(exc: BaseException | None) -> bool:
    """Is this user not allowed to read it? Expired or wrong credentials are another error, which the user can fix."""
    refusal = ForbiddenError | PermissionDeniedError | PermissionError
    return isinstance(exc, refusal) or _mentions(exc, "AWS Error ACCESS_DENIED")


def is_lasting(exc: BaseException | None) -> bool:
    return isinstance(exc, DamagedFileError) or is_missing(exc) or is_hidden(exc)


def _mentions(exc: BaseException | None, *responses: str) -> bool:
    return isinstance(exc, OSError) and any(response in str(exc) for response in responses)
