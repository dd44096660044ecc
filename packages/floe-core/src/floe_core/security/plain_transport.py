"""Addresses without encryption: refused for other machines unless the settings allow it."""

from __future__ import annotations

from urllib.parse import urlparse, urlsplit

from floe_core.security.loopback import is_loopback

__all__ = ["plain_http_problem", "plain_spark_problem"]


def plain_http_problem(key: str, address: str | None) -> str | None:
    """Why an address is refused without `allow_insecure`, or None; one with references is checked once resolved."""
    if address is None or "${" in address or not address.strip().lower().startswith("http://"):
        return None
    host = _host(address)
    return None if not host or is_loopback(host) else _problem(key, "http://", "write https://")


def plain_spark_problem(key: str, address: str | None) -> str | None:
    """The same for a Spark Connect server, which is also sent the catalog's credentials."""
    if address is None or "${" in address or not address.startswith("sc://") or is_loopback(_host(address)):
        return None
    # Parsed as PySpark's client does: names are case-sensitive, the last one wins, and a token enables TLS.
    parameters = urlparse(f"http{address[2:]}").params.split(";")
    given = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
    if given.get("use_ssl", "").lower() == "true" or given.get("token"):
        return None
    return _problem(key, "sc:// without TLS", "write sc://host:port/;use_ssl=true")


def _host(address: str) -> str:
    """The host; empty if there is none, which other checks refuse."""
    try:
        parts = urlsplit(address.strip())
        # Libraries disagree about where the host begins in an address with a backslash.
        return parts.netloc if "\\" in address else parts.hostname or ""
    except ValueError:
        return ""


def _problem(key: str, scheme: str, remedy: str) -> str:
    return (
        f"{key}: {scheme} to another machine sends credentials and data unencrypted; {remedy}, or set "
        "allow_insecure: true beside it if the network is trusted"
    )
