"""The name of a project's catalog: in Spark SQL, and in the rows of a catalog database."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator

from floe_core.identifiers import check_name

__all__ = ["CATALOG_NAME", "CatalogName"]

CATALOG_NAME: Final = "lake"

# Names that Spark reserves: its session catalog, its variables and functions, its global views.
_RESERVED = ("spark_catalog", "system", "global_temp")


def _check_catalog_name(name: str) -> str:
    if name.lower() in _RESERVED:
        reason = f"{name!r} is reserved in Spark SQL"
    elif "." in name:
        reason = f"{name!r} contains a dot, which Spark does not accept in the name of a catalog"
    else:
        return check_name(name)
    # The database belongs to other tools too, so Floe does not rename anything in it.
    raise ValueError(
        f"{reason}. To use the tables of that name, rename their catalog in the database first: set catalog_name to "
        f"another name in iceberg_tables and in iceberg_namespace_properties"
    )


CatalogName = Annotated[str, AfterValidator(_check_catalog_name)]
