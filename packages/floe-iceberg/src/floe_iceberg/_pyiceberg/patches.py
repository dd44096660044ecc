"""The patches of PyIceberg: each is verified before any is applied, and they are applied to the whole process.

A patch was written for specific code. If the target is missing or its code differs, importing floe_iceberg fails: a
patch that does not fit could change rows. `docs/upstream/` describes each defect for the PyIceberg project.
"""

from __future__ import annotations

import hashlib
import inspect
import pkgutil
from dataclasses import dataclass
from typing import Any

from floe_core.engines import incompatible, is_supported

__all__ = ["ORIGINALS", "PATCHES", "Patch", "apply_patches", "digest"]


@dataclass(frozen=True)
class Patch:
    """The target, the digests of the code that may be replaced, and the promise that depends on it.

    For a class that is replaced by a subclass, `members` are the methods that the subclass overrides.
    """

    target: str  # in the syntax of pkgutil.resolve_name
    digests: tuple[str, ...]
    promise: str
    report: str  # in docs/upstream
    members: tuple[str, ...] = ()
    imported_as: tuple[str, ...] = ()  # other modules of PyIceberg that import it by name
    per_object: bool = False  # applied by `snapshot_producers.py` to single objects

    def verify(self) -> None:
        """Refuse a target that is missing, or whose code is not what the patch was written for."""
        names = [f"{self.target}.{member}" for member in self.members] or [self.target]
        try:
            code = [pkgutil.resolve_name(name) for name in names]
        except (ImportError, AttributeError) as exc:
            if isinstance(exc, ModuleNotFoundError) and exc.name == "pyiceberg":
                raise
            raise incompatible(
                "pyiceberg", f"{_shown(self.target)}, which Floe patches, is missing", self.promise
            ) from exc
        if not self._is_known(code):
            problem = f"the code of {_shown(self.target)} is not the code that Floe's patch was written for"
            raise incompatible("pyiceberg", problem, self.promise)

    def _is_known(self, code: list[Any]) -> bool:
        actual = digest(*code)
        if actual is not None:
            return actual in self.digests
        # No source is installed: the version bounds decide, even if the environment lifts them.
        module = self.target.partition(":")[0]
        return is_supported("pyiceberg") and all(getattr(item, "__module__", None) == module for item in code)


def digest(*code: Any) -> str | None:
    """SHA-256 of the source, regardless of white space; None if the source cannot be read."""
    try:
        sources = [" ".join(inspect.getsource(item).split()) for item in code]
    except (OSError, TypeError):
        return None
    return hashlib.sha256("\n".join(sources).encode()).hexdigest()


def _shown(target: str) -> str:
    return target.replace(":", ".")


_FOUND_AGAIN = "partitions of {} are found again, and their rows are not stored twice"
_DAMAGE = "a damaged file is reported, with its name, and never read as an empty table"
_ZEROS = "other readers find both 0.0 and -0.0 in a manifest"
_NULLS = "a NULL list or map of structs stays NULL where files are read and rewritten"

PATCHES = (
    Patch(
        "pyiceberg.io.pyarrow:ArrowProjectionVisitor",
        ("17b96ccc3c706107bb61ad7fe3a0020d4cb01d82dbc5365071b847005856f7dd",),
        _NULLS,
        "nested-nulls.md",
        members=("list", "map"),
    ),
    Patch(
        "pyiceberg.avro.reader:FloatReader.read",
        ("60ddcd89b196f7357d1a5a1f30ef5cb83b71bf09260b96adfb0c590ea744d089",),
        _FOUND_AGAIN.format("NaN"),
        "nan-partitions.md",
    ),
    Patch(
        "pyiceberg.avro.reader:DoubleReader.read",
        ("8be7c66d17cbb93610d3f8db9b6e8dd5e84851b1b23d19668032085343a9397d",),
        _FOUND_AGAIN.format("doubles"),
        "avro-doubles.md",
    ),
    Patch(
        "pyiceberg.avro.reader:UUIDReader.read",
        ("fdc1319c282aae613638b31e99be00e6f89c62ae8b4cc8f52ac7888ad2e2855a",),
        _FOUND_AGAIN.format("UUIDs"),
        "uuid-partitions.md",
    ),
    Patch(
        "pyiceberg.expressions.visitors:ResidualEvaluator",
        ("165877b04047783e4ec6d377baaaefd58ee6eaabdeef863e172b1bc0f6492817",),
        "a filter on a partition of NULL does not fail",
        "null-partitions.md",
        members=(
            "visit_less_than",
            "visit_less_than_or_equal",
            "visit_greater_than",
            "visit_greater_than_or_equal",
        ),
    ),
    Patch(
        "pyiceberg.manifest:PartitionFieldStats.update",
        ("3b47f886b5c7d9887e56e3b3fe0b6f96d0acbb6c5bb57fb85b07f19bf2133409",),
        _ZEROS,
        "negative-zero-bounds.md",
    ),
    Patch(
        "pyiceberg.table:Transaction._build_partition_predicate",
        ("962496a008089a0a9aa6841cb03762a518304c449505d390a455e3179657b8eb",),
        _FOUND_AGAIN.format("NaN and infinities"),
        "nan-partitions.md",
    ),
    Patch(
        "pyiceberg.avro.file:AvroFile.__enter__",
        ("5184c52299323bb8c7107906b54de8bcd397f9baaef47519007e47c1eb45dab8",),
        _DAMAGE,
        "damaged-avro-files.md",
    ),
    Patch(
        "pyiceberg.table.snapshots:Snapshot.manifests",
        ("3d367ea1049468d78cce5b1f7569b43328d3a02981a8b4ee6372ec7f8c38ab0d",),
        _DAMAGE,
        "damaged-avro-files.md",
    ),
    Patch(
        "pyiceberg.manifest:ManifestFile.fetch_manifest_entry",
        ("df8222ac9be3b8a09f549e9112c5bf8f9ba3d3cd5c6b921df3ecb674645a3333",),
        _DAMAGE,
        "damaged-avro-files.md",
    ),
    Patch(
        "pyiceberg.serializers:FromInputFile.table_metadata",
        ("759a343afbccd635550afa01b8c4e0804cff70731e5086d7028dc0b743972e70",),
        _DAMAGE,
        "unnamed-damaged-files.md",
    ),
    Patch(
        "pyiceberg.io.pyarrow:_task_to_record_batches",
        ("9f0284681a8a519bd8b78b059a3b66be756e03cddff934d999698544db2aa77e",),
        _DAMAGE,
        "unnamed-damaged-files.md",
    ),
    Patch(
        "pyiceberg.io.pyarrow:_read_deletes",
        ("9f80c98a53c8e09caf32c55f26b08f00a94e7206a1e8f23cc4f6d446da34c77a",),
        _DAMAGE,
        "unnamed-damaged-files.md",
    ),
    Patch(
        "pyiceberg.table.update.snapshot:_SnapshotProducer._build_manifest_evaluator",
        ("53876e14f3cdd37467bf54a2e7f69f80063a8604facae995e8e2d742e8778b86",),
        "an overwrite misses no file that it replaces",
        "overwrite-evaluator.md",
        per_object=True,
    ),
    Patch(
        "pyiceberg.table.update:update_table_metadata",
        ("0a5fa34a8ecf880563db0e90424138f34c508d384852a497776792f2fbdb801b",),
        "the cost of a commit does not grow with the number of snapshots",
        "metadata-copies.md",
        imported_as=("pyiceberg.table:update_table_metadata", "pyiceberg.catalog:update_table_metadata"),
    ),
)

# The replaced code, by target: tests use it to detect when a patch can be removed.
ORIGINALS: dict[str, Any] = {}

for patch in PATCHES:
    patch.verify()


def apply_patches() -> None:
    """Replace the targets for the whole process; once."""
    if ORIGINALS:
        return
    # Imported after the targets are verified: these modules keep references to the code that they replace.
    from floe_iceberg._pyiceberg import damaged_files, metadata_updates, nested_nulls, partition_values

    replacements = {
        **damaged_files.REPLACEMENTS,
        **metadata_updates.REPLACEMENTS,
        **nested_nulls.REPLACEMENTS,
        **partition_values.REPLACEMENTS,
    }
    for patch in PATCHES:
        if not patch.per_object:
            ORIGINALS[patch.target] = pkgutil.resolve_name(patch.target)
            for target in (patch.target, *patch.imported_as):
                _replace(target, replacements[patch.target])


def _replace(target: str, replacement: Any) -> None:
    module, _, path = target.partition(":")
    owner, _, name = path.rpartition(".")
    setattr(pkgutil.resolve_name(f"{module}:{owner}" if owner else module), name, replacement)
