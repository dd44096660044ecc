"""Namespaces of a catalog: created with their parents, listed, described, and dropped only when empty."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergNamespaceProperties, IcebergTables, SqlCatalog
from pyiceberg.exceptions import ForbiddenError, NoSuchNamespaceError, ServerError
from pyiceberg.typedef import Identifier
from sqlalchemy import select
from sqlalchemy.orm import Session
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random

from floe_core.errors import (
    ConfigurationError,
    FloeStorageError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
)
from floe_core.formatting import counted
from floe_core.identifiers import Namespace, TableIdentifier
from floe_core.models import NamespaceInfo
from floe_core.observability import operation, warn
from floe_core.plugins import CatalogPlugin
from floe_iceberg._pyiceberg.sql_catalog import holds_views
from floe_iceberg.catalogs.branch_records import BRANCHES
from floe_iceberg.errors import translated

__all__ = ["JOURNAL", "Namespaces"]

# The prefix of namespaces that record publications of several tables: they have no tables, and are not listed.
JOURNAL = "floe_journal_"
# Those and the records of branches of the lake.
_RECORDS = (JOURNAL, BRANCHES)

_SHOWN = 5
# The placeholder by which a SQL catalog stores a namespace without properties; both engines recognize it.
_PLACEHOLDER = dict(IcebergNamespaceProperties.NAMESPACE_MINIMAL_PROPERTIES)


@dataclass(frozen=True)
class _Contents:
    """The contents of a namespace, by name."""

    tables: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any((self.tables, self.views, self.namespaces))

    def __str__(self) -> str:
        kinds = (("table", self.tables), ("view", self.views), ("namespace", self.namespaces))
        return " and ".join(_named(noun, names) for noun, names in kinds if names)


class Namespaces:
    """The namespaces of one catalog; `plugin` creates and deletes them, everything else goes to the catalog itself.

    Args:
        unlisted: Namespaces that this user may not list and that the log has reported already.
    """

    def __init__(self, catalog: Catalog, plugin: CatalogPlugin, unlisted: set[Identifier] | None = None) -> None:
        self._catalog = catalog
        self._plugin = plugin
        self._unlisted = set() if unlisted is None else unlisted

    def ensure(self, namespace: Namespace) -> None:
        """Create the namespace and its parents where they are missing."""
        for level in namespace.lineage():
            if not self.exists(level):
                with operation("iceberg.create_namespace", namespace=str(level)), suppress(NamespaceAlreadyExistsError):
                    self._create(level, {})  # another writer may have created it since

    def create(self, namespace: Namespace, properties: Mapping[str, str], *, if_not_exists: bool) -> bool:
        """Create it and its missing parents; False if it exists with these properties, or with `if_not_exists`."""
        wanted = _texts(properties, "properties")
        with operation("iceberg.create_namespace", namespace=str(namespace), properties=wanted):
            if len(namespace.levels) > 1:
                self.ensure(namespace.lineage()[-2])
            try:
                if self.exists(namespace):
                    raise NamespaceAlreadyExistsError(f"namespace '{namespace}' exists already")
                self._create(namespace, wanted)
            except NamespaceAlreadyExistsError as exc:
                if if_not_exists:
                    return False
                present = self._properties(namespace)
                other = sorted(key for key, value in wanted.items() if present.get(key) != value)
                if not other:
                    return False
                raise NamespaceAlreadyExistsError(
                    f"namespace '{namespace}' exists already, with other properties ({_few(other)}); change them with "
                    f"update_namespace or floe namespaces set, or set if_not_exists to keep them",
                    detail=exc.detail,
                ) from exc
            return True

    def exists(self, namespace: Namespace) -> bool:
        with translated("namespace_exists", namespace, namespace=True):
            return self._catalog.namespace_exists(namespace.levels)

    def below(self, parent: Namespace | None, *, recursive: bool) -> list[Namespace]:
        """The children of a namespace, or the top-level namespaces; with all their descendants if `recursive`."""
        with operation("iceberg.list_namespaces", namespace=parent, recursive=recursive or None):
            children = self._children(parent)
            if parent is not None and not children:
                self._require(parent)  # some servers list nothing in a namespace that does not exist
            namespaces = list(self._with_descendants(children)) if recursive else children
            return sorted(namespaces, key=lambda namespace: namespace.levels)

    def tables(self, namespace: Namespace) -> list[TableIdentifier]:
        """The tables in a namespace, by name."""
        with operation("iceberg.list_tables", namespace=str(namespace)):
            names = self._plugin.list_tables(str(namespace))
            if not names:
                self._require(namespace)
            return [table for table in (_usable_table(namespace, name) for name in names) if table is not None]

    def load(self, namespace: Namespace) -> NamespaceInfo:
        """Its properties and the names of its tables."""
        with operation("iceberg.load_namespace", namespace=str(namespace)):
            properties = self._properties(namespace)
            tables = tuple(self._plugin.list_tables(str(namespace)))
            return NamespaceInfo(name=str(namespace), properties=properties, tables=tables)

    def update(self, namespace: Namespace, settings: Mapping[str, str], removals: Collection[str]) -> dict[str, str]:
        """Set and remove properties, in one step where the catalog can; returns the resulting properties."""
        updates, gone = _texts(settings, "set"), _keys(removals)
        both = sorted(gone & set(updates))
        if both:
            raise ConfigurationError(
                f"namespace '{namespace}': {_few(both)} cannot be both set and removed; choose one"
            )
        with operation("iceberg.update_namespace", namespace=str(namespace), set=updates, remove=sorted(gone)):
            present = self._properties(namespace)
            missing = sorted(gone - set(present))
            if missing:
                warn(f"namespace '{namespace}' has no property {_few(missing)}; there is nothing to remove")
            gone -= set(missing)
            if gone and isinstance(self._catalog, SqlCatalog):
                updates = {**_PLACEHOLDER, **updates}  # without any property it would cease to exist there
            if updates or gone:
                with translated("update_namespace", namespace, namespace=True):
                    self._catalog.update_namespace_properties(namespace.levels, gone, updates)
            return self._properties(namespace)

    def drop(self, namespace: Namespace) -> None:
        """Drop an empty namespace. If something is created in it during the drop, it stays, with its properties."""
        with operation("iceberg.drop_namespace", namespace=str(namespace)):
            properties = self._properties(namespace)
            self._refuse_full(namespace, self._contents(namespace))
            try:
                self._plugin.delete_namespace(str(namespace))
            except NamespaceNotEmptyError:
                self._refuse_full(namespace, self._contents(namespace))
                raise
            # Some catalogs check only for tables, and none prevents concurrent creation in the namespace.
            filled = self._contents(namespace)
            if filled:
                self._restore(namespace, properties)
                self._refuse_full(namespace, filled)

    @retry(
        # Servers fail while another client creates the same namespace; creating it is idempotent.
        retry=retry_if_exception(lambda exc: isinstance(exc, FloeStorageError) and _is_server_error(exc)),
        stop=stop_after_attempt(6),
        wait=wait_random(0.05, 0.4),
        reraise=True,
    )
    def _create(self, namespace: Namespace, properties: Mapping[str, str]) -> None:
        self._plugin.create_namespace(str(namespace), properties)

    def _restore(self, namespace: Namespace, properties: Mapping[str, str]) -> None:
        try:
            self._create(namespace, properties)
        except NamespaceAlreadyExistsError:  # in some catalogs it exists as long as it is not empty
            with translated("update_namespace", namespace, namespace=True):
                present = self._catalog.load_namespace_properties(namespace.levels)
                kept = {**_PLACEHOLDER, **properties} if isinstance(self._catalog, SqlCatalog) else properties
                lost = {key: value for key, value in kept.items() if key not in present}
                if lost:
                    self._catalog.update_namespace_properties(namespace.levels, None, lost)

    def _refuse_full(self, namespace: Namespace, contents: _Contents) -> None:
        if contents:
            raise NamespaceNotEmptyError(f"namespace '{namespace}' is not empty: {contents}; drop them first")

    def _require(self, namespace: Namespace) -> None:
        if not self.exists(namespace):
            raise NamespaceNotFoundError(f"namespace '{namespace}' not found in catalog; create it, or check the name")

    def _properties(self, namespace: Namespace) -> dict[str, str]:
        with translated("load_namespace", namespace, namespace=True):
            properties = dict(self._catalog.load_namespace_properties(namespace.levels))
        if isinstance(self._catalog, SqlCatalog):
            return {key: value for key, value in properties.items() if _PLACEHOLDER.get(key) != value}
        return properties

    def _contents(self, namespace: Namespace) -> _Contents:
        levels = namespace.levels
        with translated("list_tables", namespace, namespace=True):
            try:
                return _Contents(
                    tables=_last(self._catalog.list_tables(levels)),
                    views=_last(self._views(levels)),
                    namespaces=_last(name[: len(levels) + 1] for name in self._listed(levels)),
                )
            except NoSuchNamespaceError:
                return _Contents()

    def _views(self, levels: Identifier) -> Iterable[Identifier]:
        if isinstance(self._catalog, SqlCatalog):
            return self._views_in_database(self._catalog, levels)
        try:
            return self._catalog.list_views(levels)
        except (NotImplementedError, PermissionDeniedError):  # such a server refuses to drop a namespace with views
            return ()

    @staticmethod
    def _views_in_database(catalog: SqlCatalog, levels: Identifier) -> list[Identifier]:
        """The views that Spark created in the database; PyIceberg does not list them."""
        if not holds_views(catalog):
            return []
        views = select(IcebergTables.table_name).where(
            IcebergTables.catalog_name == catalog.name,
            IcebergTables.table_namespace == ".".join(levels),
            IcebergTables.iceberg_type == "VIEW",
        )
        with Session(catalog.engine) as session:
            return [(*levels, name) for name in session.scalars(views)]

    def _listed(self, levels: Identifier) -> list[Identifier]:
        """What the catalog lists under a namespace: its children; some servers list grandchildren too."""
        names = [tuple(name) for name in self._catalog.list_namespaces(levels)]
        return [name for name in names if len(name) > len(levels) and name[: len(levels)] == levels]

    def every_table(self, near: Collection[Identifier] = ()) -> list[Identifier]:
        """The names of all tables that this user may list, including names that Floe does not accept.

        Args:
            near: Namespaces whose tables are listed even if this user may not list namespaces.
        """
        waiting: list[Identifier] = [(), *near]
        seen: set[Identifier] = set()
        tables: list[Identifier] = []
        with translated("list_tables", self._catalog.name, namespace=True):
            while waiting:
                levels = waiting.pop()
                if levels in seen:
                    continue
                seen.add(levels)
                waiting += self._unless_hidden(self._listed, levels)
                if levels:
                    tables += self._unless_hidden(self._catalog.list_tables, levels)
        return [tuple(name) for name in tables]

    def _unless_hidden(self, listed: Callable[[Identifier], list[Identifier]], levels: Identifier) -> list[Identifier]:
        """What is listed, or nothing if this user may not list it; the log reports that once."""
        try:
            return listed(levels)
        except NoSuchNamespaceError:  # dropped since it was listed
            return []
        except (ForbiddenError, PermissionDeniedError) as exc:
            if levels not in self._unlisted:
                self._unlisted.add(levels)
                place = f"namespace '{'.'.join(levels)}'" if levels else f"catalog '{self._catalog.name}'"
                warn(
                    f"this user may not list {place}; before a file is deleted, its tables are not checked for "
                    f"references to it",
                    reason=str(exc),
                )
            return []

    def _children(self, parent: Namespace | None) -> list[Namespace]:
        levels = parent.levels if parent else ()
        with translated("list_namespaces", parent or self._catalog.name, namespace=True):
            children = {name for name in self._listed(levels) if len(name) == len(levels) + 1}
        if parent is None:
            children = {name for name in children if not name[0].startswith(_RECORDS)}
        return [namespace for namespace in map(_usable, children) if namespace is not None]

    def _with_descendants(self, namespaces: Iterable[Namespace]) -> Iterator[Namespace]:
        waiting = list(namespaces)
        while waiting:
            namespace = waiting.pop()
            yield namespace
            try:
                waiting += self._children(namespace)
            except NamespaceNotFoundError:
                continue  # dropped since it was listed


def _is_server_error(exc: FloeStorageError) -> bool:
    """Was it an internal error of the server? An unavailable server is retried by its plugin."""
    return exc.detail is not None and exc.detail.error_type == ServerError.__name__


def _usable(levels: Identifier) -> Namespace | None:
    try:
        return Namespace(levels=levels)
    except ValueError:
        warn(f"namespace {levels!r} is left out: another tool created it, and Floe does not accept its name")
        return None


def _usable_table(namespace: Namespace, name: str) -> TableIdentifier | None:
    try:
        return TableIdentifier(namespace=namespace.levels, name=name)
    except ValueError:
        warn(f"table {name!r} in '{namespace}' is left out: another tool created it, and Floe does not accept its name")
        return None


def _last(names: Iterable[Identifier]) -> tuple[str, ...]:
    return tuple(sorted({name[-1] for name in names}))


def _named(noun: str, names: tuple[str, ...]) -> str:
    return f"{counted(len(names), noun)} ({_few(names)})"


def _few(names: Collection[str]) -> str:
    return ", ".join([*list(names)[:_SHOWN], *(["…"] if len(names) > _SHOWN else [])])


def _texts(given: Mapping[str, str], argument: str) -> dict[str, str]:
    """Properties as catalogs accept them: names and values are strings."""
    for key, value in given.items():
        if not isinstance(key, str) or not key or not isinstance(value, str):
            raise ConfigurationError(f"{argument}: a property is a name and a text; {key!r}: {value!r} is not")
    return dict(given)


def _keys(given: Collection[str]) -> set[str]:
    return {given} if isinstance(given, str) else set(given)
