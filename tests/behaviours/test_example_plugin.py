"""A storage plugin in a package of its own is all that a new kind of storage takes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pyarrow as pa
import pytest

from floe_core.compiler import compile_project
from floe_core.config.artifacts import CompiledArtifacts
from floe_core.errors import ConfigurationError, FloeStorageError
from floe_core.identifiers import TableIdentifier
from floe_core.plugins.discovery import PluginRegistry, PluginType, check_health, create_storage_plugin
from floe_core.plugins.ports import StoragePlugin
from floe_iceberg import IcebergTableManager

Project = Callable[[str], Path]

ORDERS = TableIdentifier.from_string("bronze.orders")
THREE = pa.table({"id": [1, 2, 3]})


def storage(path: Path | str = "share", team: str = "sales") -> str:
    return f'name: shop\nstorage:\n  type: team_folder\n  path: "{path}"\n  team: "{team}"\n'


@pytest.fixture
def share(tmp_path: Path) -> Path:
    """A mounted share with the folders of two teams."""
    for team in ("sales", "risk"):
        (tmp_path / "share" / team).mkdir(parents=True)
    return tmp_path / "share"


def test_it_is_found_by_the_entry_point_of_its_own_package() -> None:
    (point,) = entry_points(group="floe.storage", name="team_folder")
    assert point.dist is not None
    assert point.dist.name == "floe-team-folder"
    assert "team_folder" in PluginRegistry().names(PluginType.STORAGE)
    plugin = PluginRegistry().get(PluginType.STORAGE, "team_folder")
    assert issubclass(plugin, StoragePlugin)
    assert plugin.metadata.version == point.dist.version


def test_its_settings_reach_it_through_the_contract_on_disk(new_project: Project, share: Path) -> None:
    root = new_project(storage())
    compile_project(root).artifacts.write()
    loaded = CompiledArtifacts.load(root)
    assert loaded.storage.model_dump() == {"type": "team_folder", "path": "share", "team": "sales"}
    plugin = create_storage_plugin(loaded)
    assert plugin.get_warehouse_uri() == f"file://{share}/sales"
    assert plugin.get_warehouse_uri("bronze.raw") == f"file://{share}/sales/bronze/raw"
    assert check_health(plugin).healthy


def test_a_contract_that_somebody_changed_is_refused_in_words(new_project: Project) -> None:
    root = new_project(storage())
    compile_project(root).artifacts.write()
    contract = root / ".floe" / "compiled.json"
    contract.write_text(contract.read_text().replace('"team"', '"taem"'))
    with pytest.raises(ConfigurationError, match=r"'team_folder' in the compiled contract do not fit.*floe compile"):
        create_storage_plugin(CompiledArtifacts.load(root))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("team:", "taem:", "floe.yaml:5: storage.taem: unknown key 'taem'; did you mean 'team'?"),
        ("  team:", "  #", "floe.yaml:2: storage: the key 'team' is missing"),
        ('"sales"', "7", "floe.yaml:5: storage.team: this must be text"),
        ("sales", "../risk", "floe.yaml:5: storage.team: '../risk' is not the name of one folder"),
        ("share", "a%b", "floe.yaml:4: storage.path: write the folder where the share is mounted"),
        (
            "team_folder",
            "team_foldr",
            "floe.yaml:3: storage.type: unknown type 'team_foldr'; did you mean 'team_folder'",
        ),
    ],
)
def test_its_own_schema_decides_what_floe_yaml_may_say(new_project: Project, old: str, new: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        compile_project(new_project(storage().replace(old, new)))
    assert any(str(problem).startswith(told) for problem in caught.value.problems), str(caught.value)


def test_references_are_read_when_it_connects(
    new_project: Project, share: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = compile_project(new_project(storage("${env:SHARE}", "${env:TEAM}"))).artifacts
    assert str(share).encode() not in artifacts.to_bytes()
    monkeypatch.setenv("SHARE", str(share))
    monkeypatch.setenv("TEAM", "risk")
    assert create_storage_plugin(artifacts).get_warehouse_uri() == f"file://{share}/risk"
    monkeypatch.setenv("TEAM", "../risk")
    with pytest.raises(ConfigurationError, match="is not the name of one folder"):
        create_storage_plugin(artifacts).get_warehouse_uri()


def test_what_floe_writes_lies_in_the_folder_of_the_team_and_is_read_back(new_project: Project, share: Path) -> None:
    tables = IcebergTableManager.open(compile_project(new_project(storage(share))).artifacts)
    tables.write_data(ORDERS, THREE, mode="append")
    tables.write_data(ORDERS, THREE, mode="append")
    assert tables.scan(ORDERS).to_arrow()["id"].to_pylist() == [1, 2, 3, 1, 2, 3]
    assert tables.load_table(ORDERS).location() == f"file://{share}/sales/bronze/orders"
    written = {path for path in share.rglob("*") if path.is_file()}
    assert {path.suffix for path in written} == {".parquet", ".avro", ".json"}
    assert all(path.is_relative_to(share / "sales" / "bronze" / "orders") for path in written)


def test_a_share_that_is_not_mounted_is_refused_and_not_filled(new_project: Project, tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()  # as a mount point looks without its share
    artifacts = compile_project(new_project(storage())).artifacts
    with pytest.raises(FloeStorageError, match=r"share/sales does not exist; mount the share"):
        IcebergTableManager.open(artifacts)
    assert check_health(create_storage_plugin(artifacts)).message.endswith("does not exist; mount the share")
    assert list((tmp_path / "share").iterdir()) == []


@pytest.mark.full
def test_spark_sees_the_same_folder(new_project: Project, share: Path) -> None:
    root = new_project(storage(share))
    tables = IcebergTableManager.open(compile_project(root).artifacts)
    tables.write_data(ORDERS, THREE, mode="append")
    # A session of another project runs in this process already, perhaps.
    program = (
        "from floe_runtime import connect\n"
        "lake = connect()\n"
        "lake.write(lake.read('bronze.orders').selectExpr('id * 10 AS id'), 'bronze.tens', mode='append')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    tens = TableIdentifier.from_string("bronze.tens")
    assert sorted(tables.scan(tens).to_arrow()["id"].to_pylist()) == [10, 20, 30]
    assert list((share / "sales" / "bronze" / "tens").rglob("*.parquet"))
