"""`${env:NAME}` and `${file:path}`: references to values that are read when Floe connects, not before."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, SecretStr, ValidationError

from floe_core.errors import ConfigurationError
from floe_core.security.redaction import is_credential_key, protect, redact
from floe_core.wording import value_problem

__all__ = [
    "Reference",
    "is_reference",
    "malformed_reference",
    "protect_references",
    "references_in",
    "resolve",
    "resolve_model",
    "uri_password",
]

_REFERENCE = re.compile(r"\$\{(env|file):([^{}]+)\}")

_ADDRESS = r"(?:[A-Za-z][A-Za-z0-9+.-]*:)+//"
_URI_PASSWORD = re.compile(_ADDRESS + r"(?:\$\{[^{}]*\}|[^/@:$]|\$(?!\{))*:(?P<password>.+)@[^@/]+")
_URI_PARAMETER = re.compile(
    _ADDRESS + r".*[;?&](?i:[\w.-]*(?:passw(?:or)?d|token|secret))=(?P<password>\$\{[^{}]*\}|[^;&#]+)"
)

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Reference:
    """The source of a value."""

    scheme: str
    target: str

    def __str__(self) -> str:
        return f"${{{self.scheme}:{self.target}}}"

    def problem(self, root: Path, environ: Mapping[str, str] | None = None) -> str | None:
        """Why this reference cannot be read now, or None."""
        if self.scheme == "env":
            if self.target not in (os.environ if environ is None else environ):
                return f"environment variable {self.target} is not set; set it before connecting"
            return None
        path = root / self.target
        return None if path.is_file() else f"file {self.target} does not exist; create it before connecting"

    def read(self, root: Path) -> str:
        """The value itself."""
        problem = self.problem(root)
        if problem:
            raise ConfigurationError(f"{self}: {problem}")
        if self.scheme == "env":
            return os.environ[self.target]
        try:
            return (root / self.target).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigurationError(f"{self}: the file cannot be read as text: {type(exc).__name__}") from None


def references_in(text: str) -> list[Reference]:
    """The references in a value, in order."""
    return [Reference(scheme, target) for scheme, target in _REFERENCE.findall(text)]


def is_reference(text: str) -> bool:
    """Whether the whole value is one reference."""
    return _REFERENCE.fullmatch(text) is not None


def malformed_reference(text: str) -> str | None:
    """The first `${…}` that is neither an environment variable nor a file, or None."""
    match = re.search(r"\$\{[^}]*\}?", _REFERENCE.sub("", text))
    return match[0] if match else None


def resolve(text: str, *, root: Path) -> str:
    """The value with each reference replaced by what it refers to."""
    return _REFERENCE.sub(lambda match: Reference(match[1], match[2]).read(root), text)


def resolve_model(model: Model, *, root: Path) -> Model:
    """The same settings with every reference resolved; secrets are protected from then on."""
    resolved = {name: _resolve_value(name, item, root) for name, item in model}
    try:
        return type(model).model_validate(resolved)
    except ValidationError as exc:
        reasons = "; ".join(
            ": ".join([*map(str, error["loc"]), value_problem(error["type"], error["msg"], error.get("ctx"))])
            for error in exc.errors(include_input=False, include_url=False)
        )
        raise ConfigurationError(f"the values of the references are invalid: {redact(reasons)}") from None


def protect_references(*models: BaseModel, root: Path) -> None:
    """Mask the secrets of these settings from now on, before anything connects; unset references are skipped."""
    for model in models:
        _protect_value("", model, root)


def _protect_value(key: str, value: Any, root: Path) -> None:
    """Each value on its own, so that an unset reference leaves no other value unprotected."""
    if isinstance(value, BaseModel | Mapping):
        for name, item in value.items() if isinstance(value, Mapping) else value:
            _protect_value(str(name), item, root)
    elif isinstance(value, list | tuple):
        for item in value:
            _protect_value(key, item, root)
    else:
        try:
            _resolve_value(key, value, root)
        except ConfigurationError:
            _protect_parts(key, value, root)


def _protect_parts(key: str, value: str | SecretStr, root: Path) -> None:
    """Protect each readable reference of a value in which others cannot be read."""
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    is_secret = isinstance(value, SecretStr) or is_credential_key(key)
    for reference in references_in(text if is_secret else uri_password(text) or ""):
        with suppress(ConfigurationError):
            protect(reference.read(root))
    protect(uri_password(_REFERENCE.sub(lambda match: _read_or_keep(match, root), text)) or "")


def _read_or_keep(match: re.Match[str], root: Path) -> str:
    try:
        return Reference(match[1], match[2]).read(root)
    except ConfigurationError:
        return match[0]


def _resolve_value(key: str, value: Any, root: Path) -> Any:
    if isinstance(value, SecretStr):
        return SecretStr(_resolve_secret(value.get_secret_value(), root))
    if isinstance(value, str):
        if is_credential_key(key):
            return _resolve_secret(value, root)
        resolved = resolve(value, root=root)
        written = uri_password(value)
        if written:
            _resolve_secret(written, root)
        protect(uri_password(resolved) or "")
        return resolved
    if isinstance(value, BaseModel):
        return {name: _resolve_value(name, item, root) for name, item in value}
    if isinstance(value, Mapping):
        return {name: _resolve_value(str(name), item, root) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_resolve_value(key, item, root) for item in value)
    return value


def _resolve_secret(text: str, root: Path) -> str:
    secret = resolve(text, root=root)
    protect(secret)
    return secret


def uri_password(text: str) -> str | None:
    """The password inside `scheme://user:password@host` or `scheme://host;token=password`, or None."""
    match = _URI_PASSWORD.match(text) or _URI_PARAMETER.match(text)
    return match["password"] if match else None
