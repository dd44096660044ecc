"""What counts as a secret, and how its value is masked."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floe_core.security import redaction
from floe_core.security.redaction import SPARK_REDACTION_REGEX, is_credential_key, protect, redact

CREDENTIALS = [
    "client_secret",
    "clientSecret",
    "token",
    "session_token",
    "s3.session-token",
    "password",
    "PASSWORD",
    "passwd",
    "spark.ssl.keyPassword",
    "credential",
    "credentials",
    "s3.access-key-id",
    "s3.secret-access-key",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.hadoop.fs.s3a.access.key",
    "spark.hadoop.fs.azure.account.key.lake.blob.core.windows.net",
    "private_key",
    "api-key",
    "apiKey",
    "adls.sas-token",
    "fs.azure.sas.container",
    "header.Authorization",
]


@pytest.mark.parametrize("key", CREDENTIALS)
def test_these_keys_hold_secrets(key: str) -> None:
    assert is_credential_key(key)


@pytest.mark.parametrize(
    "key",
    [
        "token_refresh_enabled",
        "scope",
        "tokenizer",
        "bucket",
        "uri",
        "client_id",
        "access_delegation",
        "oauth2_server_uri",
        "spark.sql.shuffle.partitions",
        "spark.hadoop.fs.s3a.endpoint",
        "spark.hadoop.fs.s3a.aws.credentials.provider",
        "spark.sql.catalog.other.header.X-Iceberg-Access-Delegation",
        "write.parquet.compression-codec",
        "keyspace",
        "sasquatch",
    ],
)
def test_these_keys_do_not(key: str) -> None:
    assert not is_credential_key(key)


@pytest.mark.parametrize("key", [*CREDENTIALS, "spark.sql.catalog.lake.uri", "spark.sql.catalog.lake.jdbc.password"])
def test_spark_hides_at_least_what_floe_hides(key: str) -> None:
    assert re.search(SPARK_REDACTION_REGEX, key)


def test_a_protected_value_is_masked_everywhere_in_a_text() -> None:
    protect("planted")
    assert redact("planted, and unplanted planted") == "***, and un*** ***"
    assert redact("nothing here") == "nothing here"


def test_a_longer_secret_is_masked_before_a_shorter_one_inside_it() -> None:
    protect("planted")
    protect("planted-too")
    assert redact("planted-too") == "***"


@pytest.mark.parametrize("secret", ["", "a", "abc"])
def test_a_value_too_short_to_be_a_secret_does_not_destroy_messages(secret: str) -> None:
    protect(secret)
    assert redact("a b c abc") == "a b c abc"


@settings(deadline=None, max_examples=60)
@given(st.text(alphabet="abcXYZ019", min_size=4), st.text(alphabet="def -", max_size=10))
def test_no_secret_survives_redaction(secret: str, around: str) -> None:
    redaction._protected.clear()
    protect(secret)
    assert secret not in redact(f"{around}{secret}{around}{secret}")


@pytest.mark.parametrize("secret", ['it\'s "quoted"', "back\\slash", "line\nbreak", "a/b+c d=="])
def test_a_secret_is_masked_in_the_disguises_of_repr_json_and_addresses(secret: str) -> None:
    protect(secret)
    for disguise in (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], quote(secret), quote(secret, safe="")):
        assert redact(f"<{disguise}>") == "<***>"
