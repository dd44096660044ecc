"""What Floe depends on, as CycloneDX JSON: python -m tools.sbom FILE

The same lock and jars give the same bytes: the serial number is derived from the content, and a time is only written
where SOURCE_DATE_EPOCH gives one.
"""

from __future__ import annotations

import json
import os
import re
import sys
import uuid
from collections.abc import Iterable
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path
from typing import Any

from cyclonedx.exception import MissingOptionalDependencyException
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, License, LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from license_expression import ExpressionError, get_spdx_licensing  # type: ignore[import-untyped] # no stubs
from packageurl import PackageURL

from tools.locked import Pinned, pinned_jars, pinned_packages

__all__ = ["main", "problem_of", "sbom"]

# As their POMs state it.
_JAR_LICENCES = {
    "org.apache.iceberg": "Apache-2.0",
    "org.checkerframework": "MIT",
    "org.postgresql": "BSD-2-Clause",
    "org.xerial": "Apache-2.0",
}
_LONGEST_NAME = 60  # some packages put the whole text into the field for the name of the licence


def sbom(pinned: Iterable[Pinned]) -> str:
    """The CycloneDX document, ending with a line break."""
    bom = Bom()
    floe = Component(
        name="floe",
        version=version("floe-core"),
        type=ComponentType.APPLICATION,
        bom_ref="floe",
        licenses=[LicenseExpression("Apache-2.0")],
    )
    bom.metadata.component = floe
    components = [_component(one) for one in pinned]
    bom.components.update(components)
    bom.register_dependency(floe, components)
    document: dict[str, Any] = json.loads(JsonV1Dot6(bom).output_as_string())
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    document["metadata"].pop("timestamp")
    document.pop("serialNumber")
    if epoch:
        document["metadata"]["timestamp"] = datetime.fromtimestamp(int(epoch), timezone.utc).isoformat()
    # RFC 4122 has a kind of UUID for this: version 5, a digest of a name.
    name = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(document, sort_keys=True))
    return json.dumps({**document, "serialNumber": name.urn}, indent=2, sort_keys=True) + "\n"


def _component(pinned: Pinned) -> Component:
    if pinned.ecosystem == "PyPI":
        purl = PackageURL("pypi", name=pinned.name, version=pinned.version)
        group, name, licence = None, pinned.name, _licence_of_installed(pinned)
    else:
        group, name = pinned.name.split(":")
        purl = PackageURL("maven", namespace=group, name=name, version=pinned.version, qualifiers={"type": "jar"})
        licence = LicenseExpression(_JAR_LICENCES[group])
    return Component(
        group=group,
        name=name,
        version=pinned.version,
        type=ComponentType.LIBRARY,
        bom_ref=purl.to_string(),
        purl=purl,
        # One for each file that the index has for this version; each of them is accepted.
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in pinned.sha256],
        licenses=[licence] if licence else [],
    )


def _licence_of_installed(pinned: Pinned) -> License | None:
    """The licence as the package states it; unknown for one that this platform does not install."""
    try:
        stated = metadata(pinned.name)
    except PackageNotFoundError:
        return None
    if stated["Version"] != pinned.version:
        return None
    fields = [stated[field] for field in ("License-Expression", "License") if field in stated]
    expression = fields[0] if fields else ""
    if expression and _is_spdx(expression):
        return LicenseExpression(expression)
    named = [text.split(" :: ")[-1] for text in stated.get_all("Classifier", []) if text.startswith("License :: ")]
    name = " / ".join(sorted(set(named))) or expression.strip()
    return DisjunctiveLicense(name=name) if name and len(name) <= _LONGEST_NAME and "\n" not in name else None


_spdx = cache(get_spdx_licensing)  # it reads the list of all licences


def _is_spdx(expression: str) -> bool:
    if not re.fullmatch(r"[A-Za-z0-9.+() -]+", expression):
        return False
    try:
        return not _spdx().validate(expression, strict=True).errors
    except ExpressionError:
        return False


def problem_of(document: str) -> str | None:
    """What CycloneDX's own schema finds wrong with the document."""
    from cyclonedx.validation.json import JsonStrictValidator  # it compiles grammars, which takes a second

    try:
        problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(document)
    except MissingOptionalDependencyException as exc:
        return str(exc)
    return None if problem is None else str(problem)


def main(arguments: list[str]) -> int:
    (target,) = map(Path, arguments)
    document = sbom([*pinned_packages(), *pinned_jars()])
    problem = problem_of(document)
    if problem:
        print(f"error: the document does not follow the schema of CycloneDX: {problem}", file=sys.stderr)
        return 1
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(document, encoding="utf-8")
    print(f"wrote {target}: {document.count('bom-ref') - 1} components")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
