"""What is in deploy/ is safe to start, and the floe.yaml files of its guide compile."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from floe_core.compiler import compile_project

ROOT = Path(__file__).parents[2]
STACK = ROOT / "deploy" / "polaris"
GUIDE = ROOT / "docs" / "guides" / "polaris.md"
README = STACK / "README.md"
COMPOSE: dict[str, Any] = yaml.safe_load((STACK / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
JOBS = {"bootstrap", "setup"}

_FROM_ENV = re.compile(r"\$\{([A-Z][A-Z0-9_]*):\?[^}]+\}")
_SECRET_NAME = re.compile(r"(?i)password|secret|token$|(access|signing|secret)[_-]?key|credential$")


def _blocks(page: Path, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def _floe_files() -> Iterator[Any]:
    for page in (GUIDE, README):
        for place, text in enumerate(_blocks(page, "yaml floe.yaml"), 1):
            yield pytest.param(text, id=f"{page.parent.name}/{page.name}-{place}")


def _values(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its name; JSON inside of a text is opened."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _values(item, str(key))
    elif isinstance(value, list):
        for item in value:
            yield from _values(item, name)
    elif isinstance(value, str) and value.lstrip().startswith("{"):
        yield from _values(json.loads(value), name)
    else:
        yield name, value


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_is_pinned_to_a_version(name: str) -> None:
    _, _, tag = SERVICES[name]["image"].rpartition(":")
    assert re.fullmatch(r"\d+(\.\d+)+(-[a-z0-9.]+)?", tag), SERVICES[name]["image"]


def test_server_and_bootstrap_are_of_one_version() -> None:
    versions = {SERVICES[name]["image"].rpartition(":")[2] for name in ("polaris", "bootstrap")}
    assert versions == {"1.7.0"}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_reachable_from_this_machine_only(name: str) -> None:
    assert "network_mode" not in SERVICES[name]
    for port in SERVICES[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), port


def test_no_secret_stands_in_the_compose_file() -> None:
    secrets = [(name, value) for name, value in _values(COMPOSE) if _SECRET_NAME.search(name)]
    assert {"QUARKUS_DATASOURCE_PASSWORD", "AWS_SECRET_ACCESS_KEY", "secretKey", "signingKey", "client-secret"} <= {
        name for name, _ in secrets
    }
    for name, value in secrets:
        assert _FROM_ENV.fullmatch(str(value)), f"{name} is written out"


def test_the_example_names_every_value_and_holds_no_secret() -> None:
    example = (STACK / ".env.example").read_text(encoding="utf-8")
    given = dict(re.findall(r"^(\w+)=(.*)$", example, re.MULTILINE))
    asked = set(_FROM_ENV.findall((STACK / "compose.yaml").read_text(encoding="utf-8")))
    assert set(given) == asked
    assert {name: value for name, value in given.items() if value} == {"POLARIS_CLIENT_ID": "floe"}
    assert ".env" in (STACK / ".gitignore").read_text(encoding="utf-8").split()


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_for_what_it_needs(name: str) -> None:
    for needed, how in SERVICES[name].get("depends_on", {}).items():
        wanted = "service_completed_successfully" if needed in JOBS else "service_healthy"
        assert how["condition"] == wanted
    if name in JOBS:
        assert SERVICES[name]["restart"] == "no"
    else:
        assert SERVICES[name]["healthcheck"]["test"]


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_mounts_is_there(name: str) -> None:
    for mount in SERVICES[name].get("volumes", []):
        source = mount.partition(":")[0]
        assert (STACK / source).is_file() if source.startswith(".") else source in COMPOSE["volumes"]
    for config in SERVICES[name].get("configs", []):
        assert config["source"] in COMPOSE["configs"]


def _scripts() -> Iterator[Any]:
    yield pytest.param((STACK / "setup.sh").read_text(encoding="utf-8"), id="setup.sh")
    for page in (GUIDE, README):
        for place, text in enumerate(_blocks(page, "console"), 1):
            # What follows a prompt or is indented is typed; the rest is what the command prints.
            typed = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith(("$ ", " "))]
            yield pytest.param("\n".join(typed) + "\n", id=f"{page.parent.name}/{page.name}-{place}")
    for name, service in SERVICES.items():
        for key in ("command", "entrypoint", "healthcheck"):
            words = service.get(key, [])
            words = words["test"] if isinstance(words, dict) else words
            assert isinstance(words, list), f"{name}.{key}: write a list, which no shell takes apart"
            assert words[:1] != ["CMD-SHELL"], f"{name}.{key}: write CMD"
            if "-c" in words and words[0].endswith("sh"):
                yield pytest.param(words[words.index("-c") + 1].replace("$$", "$"), id=f"{name}.{key}")


@pytest.mark.parametrize("script", list(_scripts()))
def test_a_shell_understands(script: str) -> None:
    done = subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_stack_grants_what_the_guide_grants() -> None:
    setup = (STACK / "setup.sh").read_text(encoding="utf-8")
    stack = re.findall(r'^privileges="(.+)"', setup, re.MULTILINE)
    guide = re.findall(r"for privilege in (.+?);", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert [set(one.split()) for one in stack] == [set(one.replace("\\", " ").split()) for one in guide]


@pytest.mark.parametrize("text", list(_floe_files()))
def test_a_floe_file_of_the_guide_compiles(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = text.replace("${file:/", f"${{file:{tmp_path.as_posix()}/")
    for scheme, target in re.findall(r"\$\{(env|file):([^}]+)\}", text):
        if scheme == "env":
            monkeypatch.setenv(target, "placeholder")
        else:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            Path(target).write_text("placeholder\n", encoding="utf-8")
    (tmp_path / "floe.yaml").write_text(text, encoding="utf-8")
    compiled = compile_project(tmp_path)
    assert compiled.warnings == ()
    assert compiled.artifacts.catalog.type in ("polaris", "rest")
    assert compiled.artifacts.storage.type == "s3"
