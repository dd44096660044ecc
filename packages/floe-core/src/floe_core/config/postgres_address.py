"""The address of a PostgreSQL database, as floe.yaml writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from floe_core.config.references import references_in
from floe_core.security.loopback import is_loopback
from floe_core.security.redaction import protect

__all__ = ["PostgresAddress", "is_postgres", "postgres_problem"]

_SSL_MODES = ("disable", "prefer", "require", "verify-ca", "verify-full")
_VERIFYING = ("verify-ca", "verify-full")
_OPTIONS = ("sslmode", "sslrootcert")

_REFERENCE = r"\$\{[^{}]*\}"
# Anything may precede the last @: the password behind a reference is not always escaped.
_ADDRESS = re.compile(
    rf"postgres(?:ql)?://(?P<user>(?:{_REFERENCE}|[^:@/?#])+)(?::(?P<password>.*))?"
    rf"@(?P<host>\[[0-9A-Fa-f:.]+\]|(?:{_REFERENCE}|[^\[\]@:/?#,\s])+)(?::(?P<port>{_REFERENCE}|\d+))?"
    rf"/(?P<database>(?:{_REFERENCE}|[^@/?#])+)(?:\?(?P<options>[^@#]*))?"
)


@dataclass(frozen=True)
class PostgresAddress:
    """The address of a database, and the user to connect as."""

    user: str
    host: str
    port: int
    database: str
    password: str | None = field(default=None, repr=False)
    sslmode: str = "require"
    sslrootcert: Path | None = None

    @classmethod
    def parse(cls, uri: str, *, root: Path) -> PostgresAddress:
        """Parse an address without references; its password is masked from then on."""
        match, problem = _ADDRESS.fullmatch(uri), postgres_problem(uri)
        if match is None or problem is not None:
            raise ValueError(problem)
        options = dict(parse_qsl(match["options"] or ""))
        password, host = unquote(match["password"] or ""), match["host"].strip("[]")
        protect(password)
        return cls(
            user=unquote(match["user"]),
            host=host,
            port=int(match["port"] or 5432),
            database=unquote(match["database"]),
            password=password or None,
            sslmode=options.get("sslmode") or ("prefer" if is_loopback(host) else "require"),
            sslrootcert=root / options["sslrootcert"] if "sslrootcert" in options else None,
        )

    @property
    def authority(self) -> str:
        """Host and port, as an address writes them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"postgresql://{self.authority}/{self.database}"


def is_postgres(uri: str) -> bool:
    """Whether this is written as an address of PostgreSQL, valid or not."""
    return re.match(r"postgres(ql)?(\+\w*)?:", uri) is not None


def postgres_problem(uri: str) -> str | None:
    """The problem of an address, which may contain references, without showing it; None if it is valid."""
    driver = re.match(r"postgres(?:ql)?\+(\w*):", uri)
    if driver:
        return f"write postgresql:// without +{driver[1]}: each engine uses its own driver"
    match = _ADDRESS.fullmatch(uri)
    if match is None:
        return (
            "write postgresql://user:${env:PGPASSWORD}@host:5432/database, with special characters in the names "
            "URL-escaped"
        )
    port = match["port"] or ""
    if port.isdecimal() and not 0 < int(port) < 65536:
        return f"port {port} is out of range: use 1 to 65535"
    return _options_problem(match["options"] or "")


def _options_problem(text: str) -> str | None:
    options = dict(parse_qsl(text, keep_blank_values=True))
    unknown = [key for key in options if key not in _OPTIONS]
    if unknown:
        return f"unknown option {unknown[0]!r} after the database; both engines support {' and '.join(_OPTIONS)}"
    mode, authorities = options.get("sslmode", "require"), options.get("sslrootcert")
    if references_in(mode):
        return None
    if mode not in _SSL_MODES:
        return f"sslmode must be one of {', '.join(_SSL_MODES)}"
    if (mode in _VERIFYING) != bool(authorities):
        return (
            "sslmode=verify-ca and sslmode=verify-full need sslrootcert=FILE, a PEM file with the trusted authorities; "
            "the other modes do not accept it"
        )
    return None
