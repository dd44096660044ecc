"""What every refusal of a catalog must be: Floe's own, with what to do next, and without a secret."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, quote_plus

import pytest

from floe_core.errors import CatalogAuthenticationError, FloeError, FloeStorageError
from tests.faults.proxy import Answer
from tests.servers.scripted import TOKEN_TEXT

__all__ = ["GIVEN_TOKEN", "SECRET", "brief", "check_discreet", "refused"]

# Odd enough to be found in whatever disguise they appear.
SECRET = "S&cret=42 %41+ü/\\é"
GIVEN_TOKEN = "given.token-x9/+="

_AUTHENTICATION_FAILED = "Authentication failed: check catalog credentials in floe.yaml"
# Somebody who reads the message knows where to begin: at a setting, a variable or a command.
_ACTIONABLE = re.compile(
    r"catalog\.\w+|floe\.yaml|polaris [a-z-]+|HTTPS_PROXY|access_delegation|Ask whoever|without purge|the location"
)


@contextmanager
def refused(kind: type[FloeError], words: str) -> Iterator[None]:
    """The block raises exactly this, in these words, with what to do, and without a secret."""
    with pytest.raises(kind, match=words) as caught:
        yield
    message = str(caught.value)
    assert type(caught.value) is kind
    assert _ACTIONABLE.search(message), message
    if kind is CatalogAuthenticationError:
        assert message.startswith(_AUTHENTICATION_FAILED)
        assert len(message) > len(_AUTHENTICATION_FAILED) + 20
    check_discreet(caught.value)


def check_discreet(error: BaseException) -> None:
    """Neither an error, nor what it was raised from, nor its detail shows a secret or goes on for pages."""
    detail = error.detail if isinstance(error, FloeStorageError) else None
    texts = [repr(detail), "".join(traceback.format_exception(error))]
    chain: BaseException | None = error
    while chain is not None:
        texts += [str(chain), repr(chain), repr(chain.args)]
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    for secret in (SECRET, TOKEN_TEXT, GIVEN_TOKEN):
        for disguise in (secret, quote(secret), quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1]):
            assert all(disguise not in text for text in texts)
    assert len(str(error)) < 2000


def brief(value: object) -> str:
    """The name of a parameter."""
    if isinstance(value, Answer):
        return f"{value.status} {brief(value.body)}"
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
    return re.sub(r"[^ -~]", "?", text[:60])
