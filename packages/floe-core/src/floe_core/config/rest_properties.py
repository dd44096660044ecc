"""The properties of a REST catalog that are passed to both engines as written: an allow list."""

from __future__ import annotations

import re
from collections.abc import Mapping

from floe_core.security.redaction import is_credential_key

__all__ = ["HEADER", "header_properties", "rest_property_problem"]

HEADER = "header."
# Classes, addresses and secrets have settings of their own, or none: both engines load and call what they name.
# snapshot-loading-mode=refs would hide the history by which a repeated write is found.
_ALLOWED = frozenset(
    {
        "namespace-separator",
        "rest-metrics-reporting-enabled",
        "rest-page-size",
        "rest.client.connections-per-route",
        "rest.client.max-connections",
        "view-endpoints-supported",
    }
)
# Headers that have a setting of their own.
_SETTINGS = {
    "authorization": "catalog.token or catalog.credentials",
    "polaris-realm": "catalog.realm",
    "x-iceberg-access-delegation": "catalog.access_delegation",
}
# Headers of one request. An Idempotency-Key that is the same for all would let a server answer a second commit with the
# result of the first; a condition or a range would hide an existing table.
_OWN = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "idempotency-key",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-unmodified-since",
        "range",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "x-http-method-override",
    }
)
# In addition to the names of credentials in settings: gateways use many header names for keys, such as
# X-Functions-Key.
_SECRET = re.compile(r"(?i)cookie|(^|[-_.])(key|auth|token|jwt|session|signature)([-_.]|$)")


def rest_property_problem(key: str, value: str) -> str | None:
    """Why a property is not passed to the engines, or None."""
    name = key.removeprefix(HEADER)
    if key == name:
        allowed = ", ".join(sorted(_ALLOWED))
        return None if key in _ALLOWED else f"{key} is not passed to the catalog; allowed are header.NAME, {allowed}"
    if name.lower() in _SETTINGS:
        return f"{key} is set by {_SETTINGS[name.lower()]}; write that instead"
    if name.lower() in _OWN:
        return f"{key} is set by the engines; remove it"
    if is_credential_key(name) or _SECRET.search(name):
        return f"{key} looks like a secret, which Spark would show in its settings; use catalog.token or credentials"
    if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
        return f"{key} does not end in the name of a header: letters, digits and dashes"
    if not re.fullmatch(r"[\x20-\x7e]+", value):
        return f"{key}: the value of a header is one line of ASCII"
    return None


def header_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The headers among the properties."""
    return {key.removeprefix(HEADER): value for key, value in properties.items() if key.startswith(HEADER)}
