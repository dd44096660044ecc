"""What was materialized in one catalog says nothing about another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from floe_core.compiler import compile_project
from floe_runtime.runs.pipeline import open_pipeline

ASSET = """
import dagster as dg

@dg.asset
def numbers() -> None:
    pass

defs = dg.Definitions([numbers])
"""
SERVER = "name: shop\ncatalog: {type: rest, uri: 'https://one.example.com', warehouse: w, auth: none}\n"


def test_each_catalog_has_a_history_of_its_own(new_project: Callable[[str], Path]) -> None:
    root = new_project("name: shop\n")
    (root / "definitions.py").write_text(ASSET)

    def home_of(text: str) -> str:
        (root / "floe.yaml").write_text(text)
        with open_pipeline(compile_project(root).artifacts) as pipeline:
            return Path(pipeline.instance.root_directory).name

    embedded = home_of("name: shop\n")
    served = home_of(SERVER)
    assert embedded == "dagster"
    assert served != embedded
    assert home_of(SERVER.replace("one.", "two.")) not in (embedded, served)
    assert home_of(SERVER.replace("auth: none", "token: '${env:T}'")) == served  # the same catalog, another way in
    assert home_of("name: shop\n") == embedded
    assert home_of("name: shop\ncatalog: {name: default}\n") not in (embedded, served)
    assert home_of("name: shop\ncatalog: {name: lake}\n") == embedded
    mark = (root / ".floe" / "dagster" / "catalog.json").read_text()
    assert mark == '{"type": "sql", "uri": "sqlite:///.floe/catalog.db"}', "as it was written before names"
