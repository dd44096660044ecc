"""The trust boundary: redaction, foreign settings, file modes, ownership and plain transport."""

from floe_core.security.foreign_settings import (
    PYTHON_LOCATION_PROVIDER,
    OwnSettings,
    java_refusals,
    sift,
    table_refusals,
    vended_stores,
)
from floe_core.security.loopback import is_loopback
from floe_core.security.plain_transport import plain_http_problem
from floe_core.security.private_files import STATE_FOLDER, create_private, make_folder, narrow
from floe_core.security.project_owner import refuse_foreign_project
from floe_core.security.redaction import (
    SPARK_REDACTION_REGEX,
    is_credential_key,
    knows_secrets,
    masked,
    protect,
    protect_for_now,
    redact,
)

__all__ = [
    "PYTHON_LOCATION_PROVIDER",
    "SPARK_REDACTION_REGEX",
    "STATE_FOLDER",
    "OwnSettings",
    "create_private",
    "is_credential_key",
    "is_loopback",
    "java_refusals",
    "knows_secrets",
    "make_folder",
    "masked",
    "narrow",
    "plain_http_problem",
    "protect",
    "protect_for_now",
    "redact",
    "refuse_foreign_project",
    "sift",
    "table_refusals",
    "vended_stores",
]
