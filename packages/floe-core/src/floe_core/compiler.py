"""floe.yaml -> CompiledArtifacts. Nothing else reads floe.yaml."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from floe_core.config.artifacts import CompiledArtifacts
from floe_core.config.documents import Document, KeyPath, dotted, read_document
from floe_core.config.references import is_reference, malformed_reference, references_in, uri_password
from floe_core.config.spec import CATALOG_NAME, FloeSpec, LocalStorageConfig, RestCatalogConfig, conf_problem
from floe_core.disk import usable_path
from floe_core.errors import ConfigurationError, Problem
from floe_core.identifiers import check_name
from floe_core.plugins.discovery import PluginType, registry
from floe_core.security.project_owner import refuse_foreign_project
from floe_core.security.redaction import is_credential_key
from floe_core.wording import value_problem

__all__ = ["SPEC_FILE", "Compilation", "compile_project", "find_project", "is_stale"]

SPEC_FILE = "floe.yaml"

_PLUGIN_SECTIONS = {
    "catalog": (PluginType.CATALOG, ("sql", "rest", "polaris")),
    "storage": (PluginType.STORAGE, ("local", "s3")),
}
_TAGS = frozenset({"sql", "rest", "polaris", "local", "s3", "plugin"})


@dataclass(frozen=True)
class Compilation:
    """A compiled contract, and the warnings to show before connecting."""

    artifacts: CompiledArtifacts
    warnings: tuple[Problem, ...] = ()


def find_project(start: Path | None = None) -> Path:
    """The folder of the nearest floe.yaml, here or above; refused if it belongs to another user."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / SPEC_FILE).is_file():
            refuse_foreign_project(folder, SPEC_FILE)
            return folder
    raise ConfigurationError(f"no {SPEC_FILE} in {here} or above; create a project with: floe init NAME")


def compile_project(root: Path, environment: str | None = None) -> Compilation:
    """Compile the floe.yaml of a project to the contract of one environment.

    All environments are checked. If the file has problems, one ConfigurationError lists all of them.

    Args:
        root: The folder that holds floe.yaml.
        environment: The environment whose overlay is applied. By default none.

    Returns:
        The contract as `artifacts`, and `warnings`, such as references to variables that are not set.

    Example:
        >>> from pathlib import Path
        >>> from floe_core import CompiledArtifacts, compile_project
        >>> _ = Path("floe.yaml").write_text("name: shop")
        >>> artifacts = compile_project(Path()).artifacts
        >>> artifacts.tables.default_namespace
        'public'
        >>> artifacts.write().name
        'compiled.json'
        >>> CompiledArtifacts.load(Path()) == artifacts
        True
    """
    if "?" in str(root.resolve()):  # SQLite, in which Dagster too keeps its records, reads what follows as settings
        usable_path(root)
    document = read_document(root / SPEC_FILE)
    problems = list(document.problems)
    overlays = _take_overlays(document, problems)
    chosen, base_problems = _check(document, ())
    problems += base_problems
    known = {(problem.path, problem.message) for problem in base_problems}
    for name, overlay in overlays.items():
        at = ("environments", name)
        merged = document.overlaid(overlay, at)
        spec, overlay_problems = _check(merged, at)
        # Problems of the base are reported once, not again for each overlay.
        prefix = dotted(at) + "."
        own = {dotted(path) for path, _ in _leaves(overlay)}
        problems += [
            problem
            for problem in overlay_problems
            if problem.path.startswith(prefix)
            and ((path := problem.path[len(prefix) :]) in own or (path, problem.message) not in known)
        ]
        if name == environment:
            document, chosen = merged, spec
    if environment is not None and environment not in overlays:
        problems.append(_unknown_environment(environment, overlays, document))
    if problems or chosen is None:
        raise ConfigurationError.of(sorted(dict.fromkeys(problems), key=lambda problem: problem.line or 0))
    source = (root / SPEC_FILE).read_bytes()
    artifacts = CompiledArtifacts.model_validate(
        {
            **dict(chosen),
            "maintenance": chosen.maintenance.resolved(),
            "environment": environment,
            "source_sha256": hashlib.sha256(source).hexdigest(),
        }
    )
    return Compilation(artifacts.at(root), (*_unset_references(document, root), *_local_storage(document, artifacts)))


def is_stale(artifacts: CompiledArtifacts) -> bool:
    """Whether floe.yaml changed after it was compiled."""
    source = artifacts.root / SPEC_FILE
    return source.is_file() and hashlib.sha256(source.read_bytes()).hexdigest() != artifacts.source_sha256


def _take_overlays(document: Document, problems: list[Problem]) -> dict[str, dict[str, Any]]:
    """Remove `environments` from the document and return its well-formed overlays."""
    raw = document.data.pop("environments", None)
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        problems.append(_problem(document, ("environments",), "write environments as NAME: {overlay}"))
        return {}
    overlays = {}
    for name, overlay in raw.items():
        path = ("environments", name)
        try:
            check_name(name)
        except ValueError as exc:
            problems.append(_problem(document, path, str(exc)))
            continue
        if not isinstance(overlay, dict):
            problems.append(_problem(document, path, "write an overlay as keys and values, as at the top level"))
            continue
        overlays[name] = overlay
    return overlays


def _unknown_environment(environment: str, overlays: Mapping[str, Any], document: Document) -> Problem:
    known = ", ".join(overlays) or "none"
    return Problem(
        f"environment {environment!r} is not defined (defined: {known}){_nearest(environment, overlays)}",
        document.file,
        document.line(("environments",)),
        "environments",
    )


def _check(document: Document, at: KeyPath) -> tuple[FloeSpec | None, list[Problem]]:
    """Validate one effective document; `at` is the overlay whose keys are reported with their own path."""
    problems = [
        _problem(document, path, message, at)
        for path, value in _leaves(document.data)
        if (message := _value_problem(path, value))
    ]
    problems += [
        _problem(document, ("spark", "conf", key), conf_problem(key), at) for key in _conf_of_catalog(document.data)
    ]
    spec = None
    try:
        spec = FloeSpec.model_validate(document.data)
    except ValidationError as exc:
        for error in exc.errors(include_input=False, include_url=False):
            path, message = _explain(error["loc"], error, document.data)
            problems.append(_problem(document, path, message, at))
    for section, (kind, built_in) in _PLUGIN_SECTIONS.items():
        settings = document.data.get(section)
        if isinstance(settings, dict) and isinstance(settings.get("type"), str) and settings["type"] not in built_in:
            problems += [
                _problem(document, (section, *path), message, at)
                for path, message in _plugin_problems(kind, built_in, settings)
            ]
    return spec, problems


def _conf_of_catalog(data: Mapping[str, Any]) -> list[str]:
    """The Spark settings in the file that belong to the project's own catalog, whatever its name is."""
    catalog, spark = data.get("catalog"), data.get("spark")
    conf = spark.get("conf") if isinstance(spark, dict) else None
    own = f"spark.sql.catalog.{catalog.get('name', CATALOG_NAME) if isinstance(catalog, dict) else CATALOG_NAME}"
    return [key for key in conf if key == own or key.startswith(f"{own}.")] if isinstance(conf, dict) else []


def _problem(document: Document, path: KeyPath, message: str, at: KeyPath = ()) -> Problem:
    in_overlay = at and any((*at, *path[:length]) in document.lines for length in range(len(path), 0, -1))
    shown = (*at, *path) if in_overlay else path
    return Problem(message, document.file, document.line(shown), dotted(shown))


def _leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, str(index)))
    else:
        yield path, value


def _value_problem(path: KeyPath, value: Any) -> str | None:
    """Report literal secrets and malformed references; the value itself is never shown."""
    if value is None or isinstance(value, bool):
        return None
    key = path[-1]
    name = key.upper().replace(".", "_").replace("-", "_")
    text = value if isinstance(value, str) else None
    # YAML parses a password of digits as a number; it is still a secret.
    if is_credential_key(key) and (text is None or not (is_reference(text) or text.lower() in ("true", "false", ""))):
        return (
            f'floe.yaml must not contain secrets: write "${{env:{name}}}" and set {name} in the environment, '
            f'or "${{file:path}}" for a mounted file'
        )
    if text is None:
        return None
    password = uri_password(text)
    if password is not None and not is_reference(password):
        return 'floe.yaml must not contain passwords: write "${env:NAME}" in the address instead'
    malformed = malformed_reference(text)
    if malformed:
        shown = malformed if len(malformed) <= 40 else malformed[:40] + "…"
        return f"{shown} is not a valid reference: write ${{env:NAME}} or ${{file:path}}"
    return None


def _explain(loc: tuple[int | str, ...], error: ErrorDetails, data: Any) -> tuple[KeyPath, str]:
    """The key path of a validation error in floe.yaml, and the message for it."""
    path: KeyPath = ()
    model: Any = FloeSpec
    for part in loc:
        text = str(part)
        if text in _TAGS and _is_union(model):
            model = _member(model, text)
            continue
        if text == "[key]":
            continue
        path = (*path, text)
        model = _field_type(model, text)
    known = _keys_beside(FloeSpec, path, data)
    if len(path) == 1 and path[-1] != "environments":
        known.append("environments")
    if error["type"] == "extra_forbidden" and path == ("catalog", "name"):
        return path, "unknown key 'name', which is for type: sql; did you mean 'warehouse'?"
    if error["type"] == "extra_forbidden" and "credentials" in known and path[-1] in ("client_id", "client_secret"):
        hint = 'write credentials: {client_id: …, client_secret: "${env:NAME}"}'
        return path, f"unknown key {path[-1]!r} here; {hint}"
    return _error_message(path, error, known)


def _error_message(path: KeyPath, error: ErrorDetails, known: Iterable[str]) -> tuple[KeyPath, str]:
    """The key path and the message of one Pydantic error; `known` are the keys allowed there."""
    kind = error["type"]
    if kind == "extra_forbidden":
        return path, f"unknown key {path[-1]!r}{_nearest(path[-1], known)}"
    if kind == "missing":
        return path[:-1], f"the key {path[-1]!r} is missing"
    return path, value_problem(kind, error["msg"], error.get("ctx"))


def _keys_beside(model: Any, path: KeyPath, data: Any) -> list[str]:
    """The keys allowed in place of the last one of `path`; unions are resolved by the `type` given in the data."""
    for part in path[:-1]:
        data = data.get(part) if isinstance(data, dict) else None
        model = _field_type(model, part)
        if _is_union(model):
            model = _member(model, data.get("type") if isinstance(data, dict) else None)
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


def _is_union(model: Any) -> bool:
    return get_origin(model) in (Union, UnionType)


def _member(union: Any, tag: str | None) -> Any:
    """The member of a union of settings with this `type`, or its first."""
    members = [_unwrap(member) for member in get_args(union) if member is not type(None)]
    for member in members:
        if isinstance(member, type) and issubclass(member, BaseModel) and "type" in member.model_fields:
            literal = member.model_fields["type"].annotation
            if get_origin(literal) is Literal and tag in get_args(literal):
                return member
    return members[0]


def _unwrap(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _field_type(model: Any, name: str) -> Any:
    if get_origin(model) is dict:  # with keys that the user chooses
        return _unwrap(get_args(model)[1])
    if not (isinstance(model, type) and issubclass(model, BaseModel)) or name not in model.model_fields:
        return None
    return _unwrap(model.model_fields[name].annotation)


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _plugin_problems(
    kind: PluginType, built_in: tuple[str, ...], settings: dict[str, Any]
) -> Iterator[tuple[KeyPath, str]]:
    """Problems of a type that is not built in: no such plugin, or keys that its schema refuses."""
    name = settings["type"]
    known = [*built_in, *(plugin for plugin in registry.names(kind) if plugin not in built_in)]
    if name not in known:
        yield ("type",), f"unknown type {name!r}{_nearest(name, known)}; known types: {', '.join(known)}"
        return
    schema = registry.get(kind, name).get_config_schema()
    if schema is None:
        yield from (((key,), f"unknown key {key!r}") for key in settings if key != "type")
        return
    try:
        schema.model_validate(settings)
    except ValidationError as exc:
        for error in exc.errors(include_input=False, include_url=False):
            path = tuple(str(part) for part in error["loc"])
            yield _error_message(path, error, _keys_beside(schema, path, settings))


def _local_storage(document: Document, artifacts: CompiledArtifacts) -> Iterator[Problem]:
    """Warn about a catalog server with local storage: its tables are rarely on this machine."""
    if isinstance(artifacts.catalog, RestCatalogConfig) and isinstance(artifacts.storage, LocalStorageConfig):
        yield _problem(
            document,
            ("catalog",),
            "a catalog server with storage: local; if its tables are in a bucket, Spark needs storage: {type: s3, "
            "bucket: …}",
        )


def _unset_references(document: Document, root: Path) -> Iterator[Problem]:
    for path, value in _leaves(document.data):
        for reference in references_in(value) if isinstance(value, str) else []:
            message = reference.problem(root, os.environ)
            if message:
                yield _problem(document, path, message)
