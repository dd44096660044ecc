"""What reaches a user's machine is what was reviewed: pinned, listed, and built the same way twice."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.audit import is_affected
from tools.audit import main as audit
from tools.locked import pinned_jars, pinned_packages
from tools.sbom import problem_of, sbom

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.name for path in (ROOT / "packages").iterdir())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")

BUILD = """
import os, sys
from pathlib import Path
from hatchling.builders.wheel import WheelBuilder
os.umask(int(sys.argv[2], 8))
for package in sorted(Path(sys.argv[1]).iterdir()):
    list(WheelBuilder(str(package)).build(directory=sys.argv[3], versions=["standard"]))
"""


def build_wheels(source: Path, umask: str, target: Path) -> dict[str, bytes]:
    subprocess.run([sys.executable, "-c", BUILD, str(source), umask, str(target)], check=True, capture_output=True)
    return {path.name: path.read_bytes() for path in sorted(target.glob("*.whl"))}


def copied_sources(folder: Path, *, mode: int, time: int) -> Path:
    """The packages, as a checkout with another umask at another time has them."""
    shutil.copytree(ROOT / "packages", folder, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "dist"))
    for path in folder.rglob("*"):
        path.chmod(mode | 0o111 if path.is_dir() else mode)
        os.utime(path, (time, time))
    return folder


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("first")
    sources = copied_sources(folder / "packages", mode=0o644, time=1_700_000_000)
    return build_wheels(sources, "022", folder / "dist")


def test_two_builds_have_identical_bytes(wheels: dict[str, bytes], tmp_path: Path) -> None:
    sources = copied_sources(tmp_path / "elsewhere" / "sources", mode=0o600, time=1_600_000_001)
    again = build_wheels(sources, "077", tmp_path / "out")
    assert [name for name in wheels if wheels[name] != again.get(name)] == []
    assert list(again) == list(wheels)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_wheel_carries_licence_notice_types_and_metadata(
    package: str, wheels: dict[str, bytes], tmp_path: Path
) -> None:
    module = package.replace("-", "_")
    (name,) = [one for one in wheels if one.startswith(f"{module}-")]
    (tmp_path / name).write_bytes(wheels[name])
    with zipfile.ZipFile(tmp_path / name) as wheel:
        held = {entry.split("/", 1)[1]: wheel.read(entry) for entry in wheel.namelist() if ".dist-info/" in entry}
        assert f"{module}/py.typed" in wheel.namelist()
    assert held["licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert held["licenses/NOTICE"] == (ROOT / "NOTICE").read_bytes()
    stated = Parser().parsestr(held["METADATA"].decode())
    assert stated["License-Expression"] == "Apache-2.0"
    assert stated.get_all("License-File") == ["LICENSE", "NOTICE"]
    assert stated["Author"] == stated["Maintainer"] == "The Floe authors"
    assert stated["Summary"]
    assert stated["Keywords"]
    assert package in stated.get_payload()
    pythons = [text for text in stated.get_all("Classifier", []) if re.search(r":: 3\.\d+$", text)]
    assert [text[-4:] for text in pythons] == ["3.10", "3.11", "3.12", "3.13"]
    assert stated.get_all("Project-URL") is None  # none exists yet, and an invented one could be taken by others


def install_command() -> str:
    (line,) = re.findall(r"^\t.* -m (pip install .*)$", MAKEFILE, re.M)
    return str(line)


def test_the_bootstrap_installs_uv_by_hash_only(tmp_path: Path) -> None:
    (pinned,) = pinned_packages(ROOT / "bootstrap.lock")
    wheel = tmp_path / f"uv-{pinned.version}-py3-none-any.whl"  # an index that delivers something else under the name
    with zipfile.ZipFile(wheel, "w") as fake:
        fake.writestr("uv/__init__.py", "raise SystemExit('hostile')")
        fake.writestr(f"uv-{pinned.version}.dist-info/METADATA", f"Name: uv\nVersion: {pinned.version}\n")
        fake.writestr(f"uv-{pinned.version}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        fake.writestr(f"uv-{pinned.version}.dist-info/RECORD", "")
    only_there = ["--isolated", "--no-index", "--find-links", str(tmp_path), "--target", str(tmp_path / "target")]
    ran = subprocess.run(
        [sys.executable, "-m", *install_command().split(), *only_there],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode != 0
    assert "DO NOT MATCH THE HASHES" in ran.stderr, ran.stderr
    assert not (tmp_path / "target" / "uv").exists()


def test_the_bootstrap_is_of_the_lock_and_names_no_address() -> None:
    text = (ROOT / "bootstrap.lock").read_text(encoding="utf-8")
    assert not re.search(r"https?://|file:|--index-url|--find-links", text)
    (pinned,) = pinned_packages(ROOT / "bootstrap.lock")
    assert pinned in pinned_packages()  # the same version and files
    assert f"UV_VERSION := {pinned.version}\n" in MAKEFILE
    assert "--only-binary :all:" in install_command()  # a source archive would run its build


def test_the_bill_of_materials_lists_every_pin_and_follows_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    pinned = [*pinned_packages(), *pinned_jars()]
    text = sbom(pinned)
    assert problem_of(text) is None
    assert sbom(reversed(pinned)) == text  # neither a time nor a random number is in it
    document = json.loads(text)
    listed = {one["bom-ref"]: {entry["content"] for entry in one["hashes"]} for one in document["components"]}
    assert len(listed) == len(pinned)
    for jar in pinned_jars():
        group, _, name = jar.name.partition(":")
        assert listed[f"pkg:maven/{group}/{name}@{jar.version}?type=jar"] == set(jar.sha256)
    for package in pinned_packages():
        assert listed[f"pkg:pypi/{package.name}@{package.version}"] == set(package.sha256)
    licensed = {one["name"]: one["licenses"] for one in document["components"] if "licenses" in one}
    assert licensed["postgresql"] == [{"expression": "BSD-2-Clause"}]
    assert licensed["pydantic"] == [{"expression": "MIT"}]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert json.loads(sbom(pinned))["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"


def test_a_broken_bill_of_materials_is_noticed() -> None:
    document = json.loads(sbom(pinned_jars()))
    document["components"][0]["type"] = "nonsense"
    assert "nonsense" in str(problem_of(json.dumps(document)))


def advisory(name: str, version: str, ecosystem: str = "PyPI", **more: Any) -> dict[str, Any]:
    events = [{"introduced": "0"}, {"last_affected": version}]
    affected = {"package": {"ecosystem": ecosystem, "name": name}, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
    return {"id": "GHSA-test", "aliases": ["CVE-0000-1"], "summary": "It leaks.", "affected": [affected], **more}


def database(path: Path, *records: dict[str, Any]) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for number, record in enumerate(records):
            archive.writestr(f"{number}.json", json.dumps(record))
    return str(path)


def test_an_advisory_for_a_locked_version_is_found_without_a_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pydantic,) = [one for one in pinned_packages() if one.name == "pydantic"]
    exported = database(tmp_path / "osv.zip", advisory("other", "9"), advisory("Pydantic", pydantic.version))
    ran = subprocess.run(
        ["make", "--silent", "--old-file=.venv/.synced", "audit", f"DB={exported}"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 2, ran.stderr  # as make passes on what its recipe returned
    assert "Error 1" in ran.stderr
    assert f"pydantic {pydantic.version}: GHSA-test, CVE-0000-1: It leaks." in ran.stdout
    assert audit([exported]) == 1
    jar = pinned_jars()[0]
    assert audit([database(tmp_path / "maven.zip", advisory(jar.name, jar.version, "Maven"))]) == 1
    assert f"{jar}: GHSA-test" in capsys.readouterr().out


def test_advisories_for_other_versions_are_not_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        advisory("pydantic", "1.0"),
        advisory("never-heard-of", "999"),
        advisory("pydantic", "999", withdrawn="2026-01-01T00:00:00Z"),
    ]
    assert audit([database(tmp_path / "osv.zip", *records)]) == 0
    shown = capsys.readouterr().out
    assert "0 known vulnerabilities" in shown
    assert "not checked, because the database does not cover it: Maven" in shown


def test_the_online_audit_fails_for_a_package_that_it_could_not_look_up() -> None:
    """Without --strict, pip-audit skips what its service does not know, and exits with 0."""
    (command,) = re.findall(r"^\t@?\$\(BIN\)/(pip-audit .*)$", MAKEFILE, re.M)
    assert {"--strict", "--require-hashes"} <= set(command.split())


@pytest.mark.parametrize("content", [b"[]", b"not json", b'{"affected": [{}]}'])
def test_a_database_that_cannot_be_used_is_not_a_clean_result(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "osv.json").write_bytes(content)
    assert audit([str(tmp_path / "osv.json")]) == 2
    assert audit([str(tmp_path / "absent.zip")]) == 2


@pytest.mark.parametrize(
    ("version", "events", "affected"),
    [
        ("1.5", [{"introduced": "1.0"}, {"fixed": "2.0"}], True),
        ("2.0", [{"introduced": "1.0"}, {"fixed": "2.0"}], False),
        ("0.9", [{"introduced": "1.0"}, {"fixed": "2.0"}], False),
        ("3.1", [{"introduced": "0"}, {"fixed": "2.0"}, {"introduced": "3.0"}], True),
        ("1.10", [{"introduced": "0"}, {"last_affected": "1.9"}], False),
        ("1.9", [{"introduced": "0"}, {"last_affected": "1.9"}], True),
        ("42.7.14", [{"introduced": "42.2.0"}, {"fixed": "42.2.28.jre7"}], False),
        ("42.2.27", [{"introduced": "42.2.0"}, {"fixed": "42.2.28.jre7"}], True),
        ("1.0", [{"introduced": "none.such"}], True),  # what cannot be compared is not called safe
    ],
)
def test_a_range_is_read_as_osv_defines_it(version: str, events: list[dict[str, str]], affected: bool) -> None:
    assert is_affected(version, {"ranges": [{"type": "ECOSYSTEM", "events": events}]}) is affected


def permissions_of(workflow: dict[str, Any]) -> list[tuple[str, str]]:
    given = [workflow["permissions"], *(job.get("permissions", {}) for job in workflow["jobs"].values())]
    return [pair for one in given for pair in one.items()]


def test_the_workflows_that_a_release_needs_are_there() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "codeql.yml", "release.yml"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_the_least_permissions(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    writes = {name for name, right in permissions_of(workflow) if right == "write"}
    allowed = {"codeql.yml": {"security-events"}, "release.yml": {"id-token", "attestations"}}
    assert writes == allowed.get(path.name, set())
    assert "pull_request_target" not in text
    assert "workflow_run" not in text
    assert "secrets." not in text
    for step in (step for job in workflow["jobs"].values() for step in job["steps"]):
        # Text of a pull request (its title, its branch) would be executed as part of the script.
        assert "${{" not in step.get("run", "")
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_calls_make_targets_that_exist(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    scripts = "\n".join(step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"])
    targets = set(re.findall(r"^([a-z-]+):(?!=)", MAKEFILE, re.M))
    assert set(re.findall(r"(?m)^make (\S+)", scripts)) <= targets
    if path.name == "ci.yml":
        assert set(re.findall(r"(?m)^make (\S+)", scripts)) >= {"check", "test", "test-full", "audit"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_an_action_or_image_that_is_not_pinned_is_marked(path: Path) -> None:
    for line in path.read_text(encoding="utf-8").splitlines():
        if re.search(r"\b(uses|container):", line):
            pinned = re.search(r"@[0-9a-f]{40}\b|@sha256:[0-9a-f]{64}\b", line)
            assert pinned or line.endswith("  # pin"), line


def test_dependabot_and_pre_commit_name_what_is_there() -> None:
    dependabot = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text(encoding="utf-8"))
    assert dependabot["version"] == 2
    for update in dependabot["updates"]:
        for folder in update.get("directories", [update.get("directory")]):
            assert list(ROOT.glob(f"{folder.strip('/')}/*".lstrip("/")))
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert [one["repo"] for one in hooks] == ["local"]  # the tools are those of the lock, by hash
    assert {hook["entry"].split()[0] for one in hooks for hook in one["hooks"]} == {".venv/bin/ruff", "make"}


def test_every_test_that_the_security_page_names_exists() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"def (test_\w+)\(", sources))
    named = re.findall(r"`(test_\w+)`", SECURITY)
    assert named
    assert [name for name in named if name not in defined] == []


def test_the_security_page_covers_every_attacker() -> None:
    model = SECURITY.partition("## Threat model")[2].partition("\n## ")[0]
    for attacker in ("catalog server", "table writer", "local neighbour", "network", "dependency"):
        assert re.search(rf"^\| {attacker} \|", model, re.M)
    assert "## Report a vulnerability" in SECURITY
    assert "## Attacks that were tried and held, by test name" in SECURITY
