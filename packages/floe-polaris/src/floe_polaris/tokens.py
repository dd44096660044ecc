"""Bearer tokens: fetched, renewed before they expire, and renewed once when the catalog refuses a valid one."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any
from urllib.parse import quote_plus

import requests
from pydantic import BaseModel, SecretStr, ValidationError
from requests.auth import AuthBase

from floe_core.errors import CatalogConnectionError, FloeError
from floe_core.observability import note, operation
from floe_core.retry import Retry
from floe_core.security import protect, protect_for_now
from floe_polaris.responses import AskedForToken, checked_token
from floe_polaris.transport_errors import Server

__all__ = ["BearerAuth", "ClientCredentials", "GivenToken", "NoToken", "TokenSource"]

_REFUSED = (401, 419)
# The longest time before its expiry that a token is renewed; otherwise a fifth of its lifetime.
_LONGEST_MARGIN = 60.0
# The delay before a token endpoint that does not answer is asked again.
_PAUSE = 5.0


class TokenSource(ABC):
    """The source of the token. Thread-safe."""

    @abstractmethod
    def current(self) -> str | None:
        """The token to send now; None where the catalog needs none."""

    @abstractmethod
    def renewed(self, refused: str) -> str | None:
        """A token other than the refused one, or None if there is no other."""


class NoToken(TokenSource):
    """For catalogs without authentication."""

    def current(self) -> str | None:
        return None

    def renewed(self, refused: str) -> str | None:
        del refused
        return None


class GivenToken(TokenSource):
    """A token issued outside of Floe; `read` reads it again, from a file that may have been rotated."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read
        self._token = self._clean(read())

    def current(self) -> str:
        return self._token

    def renewed(self, refused: str) -> str | None:
        self._token = self._clean(self._read())
        return self._token if self._token != refused else None

    @staticmethod
    def _clean(token: str) -> str:
        return checked_token(token)


class _Answer(BaseModel):
    access_token: SecretStr
    expires_in: Any = None

    @property
    def life(self) -> float:
        """In seconds; a token without an expiry is valid until it is refused."""
        try:
            seconds = float(self.expires_in)
        except (TypeError, ValueError, OverflowError):
            return inf
        return seconds if seconds > 0 else inf


@dataclass(frozen=True)
class _Token:
    text: str = field(repr=False)
    # By the monotonic clock: the wall clock of this machine may be wrong.
    renew_at: float
    ends_at: float


class ClientCredentials(TokenSource):
    """OAuth2 client credentials, exchanged for a token at the catalog or at an identity provider."""

    def __init__(
        self,
        session: requests.Session,
        server: Server,
        *,
        client_id: str,
        client_secret: SecretStr,
        scope: str,
        retry: Retry,
        refresh: bool,
    ) -> None:
        self._session = session
        self._server = server
        self._asked = AskedForToken(scope, server.setting, server.corrected)
        self._form = {"grant_type": "client_credentials", "client_id": client_id, "scope": scope}
        self._secret = client_secret
        self._retry = retry
        self._refresh = refresh
        self._lock = threading.Lock()
        self._token: _Token | None = None
        self._attempts = 0
        self._failure: FloeError | None = None
        protect(quote_plus(client_secret.get_secret_value()))  # as encoded in the form

    def current(self) -> str:
        with self._in_turn():
            token = self._token
            if token is None or (self._refresh and time.monotonic() >= token.renew_at):
                try:
                    token = self._fetched()
                except CatalogConnectionError:
                    if token is None or time.monotonic() >= token.ends_at:
                        raise
                    token = replace(token, renew_at=time.monotonic() + _PAUSE)  # it is still valid
                self._token = token
            protect_for_now(token.text)  # only the newest stay protected, and this one is in use
            return token.text

    def renewed(self, refused: str) -> str | None:
        if not self._refresh:
            return None
        with self._in_turn():
            # Another thread may have renewed it already, after the same refusal.
            if self._token is None or self._token.text == refused:
                note("reconnecting", reason="the catalog refused the token")
                self._token = self._fetched()
            return self._token.text

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        """One thread at a time; threads that waited for a failed attempt raise its error instead of trying again."""
        seen = self._attempts
        with self._lock:
            failure = self._failure
            if failure is not None and self._attempts != seen:
                raise type(failure)(str(failure)) from failure
            try:
                yield
            except FloeError as exc:
                self._failure = exc
                raise
            else:
                self._failure = None
            finally:
                self._attempts += 1

    def _fetched(self) -> _Token:
        with operation("polaris.authenticate", scope=self._form["scope"], server=self._server.uri):
            requested_at = time.monotonic()
            answer = self.answered()
            text = checked_token(answer.access_token.get_secret_value(), "The answer of the token endpoint")
            protect_for_now(text)
            ends_at = requested_at + answer.life
            return _Token(text, ends_at - min(answer.life / 5, _LONGEST_MARGIN), ends_at)

    def answered(self) -> _Answer:
        """The token endpoint's response, retried as catalog.retry sets."""
        attempts = 0

        def ask() -> _Answer:
            nonlocal attempts
            attempts += 1
            return self._ask()

        try:
            return self._retry.call_unguarded(ask)
        except requests.RequestException as exc:
            exc.request = None  # it holds the secret
            raise self._server.unreachable(exc, attempts=attempts) from exc

    def _ask(self) -> _Answer:
        form = {**self._form, "client_secret": self._secret.get_secret_value()}
        response = self._session.post(
            self._server.uri,
            data=form,
            headers={"Content-Type": "application/x-www-form-urlencoded", "Authorization": None},
            # Otherwise the session would fetch a token to fetch a token, and check the response as a catalog's.
            auth=lambda request: request,
            hooks={"response": [self._asked.check]},
        )
        try:
            return _Answer.model_validate_json(response.content)
        except ValidationError:
            raise self._asked.no_token(response) from None


class BearerAuth(AuthBase):
    """Sends the token; if it is refused after it was accepted before, repeats the request once with a new one."""

    def __init__(self, source: TokenSource) -> None:
        self.source = source
        self._was_accepted = False

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        token = self.source.current()
        if token is None:
            return request
        request.headers["Authorization"] = f"Bearer {token}"
        request.register_hook("response", self._retry_if_refused)  # type: ignore[no-untyped-call] # no stubs
        return request

    def _retry_if_refused(self, response: requests.Response, **options: Any) -> requests.Response:
        if response.status_code not in _REFUSED:
            self._was_accepted |= response.status_code < 500
            return response
        if not self._was_accepted:  # another token of the same kind would be refused too
            return response
        sent = str(response.request.headers.get("Authorization", "")).removeprefix("Bearer ")
        token = self.source.renewed(sent)
        if token is None or token == sent:
            return response
        _ = response.content  # read to its end, so that the connection can be used again
        response.close()
        again = response.request.copy()
        again.headers["Authorization"] = f"Bearer {token}"
        answer: requests.Response = response.connection.send(again, **options)
        answer.history.append(response)
        answer.request = again
        return answer

    def auth_header(self) -> str | None:
        """Called by PyIceberg when it signs requests itself."""
        token = self.source.current()
        return None if token is None else f"Bearer {token}"
