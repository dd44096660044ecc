"""CompiledArtifacts: the contract between the compiler and everything that runs."""

from __future__ import annotations

import json
import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pydantic import PrivateAttr, ValidationError

from floe_core.config.references import protect_references
from floe_core.config.spec import BRANCH_VARIABLE, MAIN, FloeSpec
from floe_core.disk import writing
from floe_core.errors import ConfigurationError
from floe_core.security.private_files import create_private, make_folder, narrow

__all__ = ["CONTRACT_VERSION", "CompiledArtifacts", "contract_path", "unreadable_contract"]

CONTRACT_VERSION: Final = 1


def contract_path(root: Path, environment: str | None) -> Path:
    """Each environment has a contract of its own, so that compiling one never redirects another."""
    return root / ".floe" / ("compiled.json" if environment is None else f"compiled.{environment}.json")


def unreadable_contract(path: Path) -> ConfigurationError:
    """The error for a contract in a `.floe` of another user."""
    return ConfigurationError(
        f"{path} cannot be read: {path.parent} is for the user who compiled the project. Compile it as the user that "
        f"runs it, or give that user the folder (chown)"
    )


class CompiledArtifacts(FloeSpec):
    """The effective settings of one environment: frozen, versioned, every `${…}` still a reference.

    It can be committed, mailed and diffed. The same input gives the same bytes; paths are relative to `root`,
    the folder that holds floe.yaml, which is not part of the bytes.

    Attributes:
        name: The name of the project.
        version: The version of the project.
        protected: Destructive commands need `--yes`.
        branch: The branch of the lake that floe.yaml names, or None.
        catalog: The catalog.
        storage: Where the files of tables are.
        spark: The Spark session.
        tables: Defaults for assets and new tables.
        maintenance: The maintenance policy.
        pipeline: The module of the pipeline.
        checks: What must hold of the rows of tables.
        observability: Logs and traces.
        contract: The version of the format of the contract.
        environment: The environment whose overlay is applied, or None.
        source_sha256: The digest of the floe.yaml that was compiled.

    Example:
        >>> from pathlib import Path
        >>> from floe_core import CompiledArtifacts, compile_project
        >>> _ = Path("floe.yaml").write_text("name: shop")
        >>> _ = compile_project(Path()).artifacts.write()
        >>> artifacts = CompiledArtifacts.load(Path())
        >>> artifacts.name, artifacts.catalog.type, artifacts.storage.type
        ('shop', 'sql', 'local')
    """

    contract: int = CONTRACT_VERSION
    environment: str | None = None
    source_sha256: str

    _root: Path = PrivateAttr(default_factory=Path.cwd)
    # It overrides `branch` in this process, and is not part of the contract.
    _branch: str | None = PrivateAttr(default=None)

    @property
    def root(self) -> Path:
        return self._root

    def at(self, root: Path) -> CompiledArtifacts:
        """The same contract for a project in this folder."""
        artifacts = self.model_copy()
        artifacts._root = root.resolve()  # noqa: SLF001 - of the same class
        return artifacts

    @property
    def lake_branch(self) -> str | None:
        """The branch of the lake that is read and written; None for main."""
        name = self._branch or self.branch
        return None if name == MAIN else name

    def on_branch(self, name: str | None) -> CompiledArtifacts:
        """The same contract on a branch of the lake; `main` means no branch, None leaves it as it is."""
        artifacts = self.model_copy()
        artifacts._branch = name or self._branch  # noqa: SLF001 - of the same class
        return artifacts

    def protect_secrets(self) -> None:
        """Mask the values behind the references of these settings, before anything connects."""
        protect_references(self.catalog, self.storage, self.spark, self.observability, root=self.root)

    def to_bytes(self) -> bytes:
        text = json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=False)
        return f"{text}\n".encode()

    def write(self) -> Path:
        """Write the contract under `.floe/` of its project; readers see the old one or the new one.

        An identical file is not rewritten, so that a project on a read-only disk can be used.
        """
        path, content = contract_path(self.root, self.environment), self.to_bytes()
        with writing(path):
            narrow(self.root)
            if not path.is_file() or path.read_bytes() != content:
                self._replace(path, content)
        return path

    @staticmethod
    def _replace(path: Path, content: bytes) -> None:
        make_folder(path.parent)
        # A unique name: two writers that share one could move each other's incomplete file into place.
        staged = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            create_private(staged)
            staged.write_bytes(content)
            staged.replace(path)
        finally:
            with suppress(OSError):  # on a read-only disk there is nothing to remove
                staged.unlink(missing_ok=True)

    @classmethod
    def load(cls, root: Path, environment: str | None = None) -> CompiledArtifacts:
        """Read the contract of a project; a contract of a newer Floe is refused.

        The environment variable FLOE_BRANCH overrides its branch of the lake.
        """
        path = contract_path(root, environment)
        option = f" --env {environment}" if environment else ""
        try:
            content = path.read_bytes()
        except PermissionError as exc:
            raise unreadable_contract(path) from exc
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as exc:
            raise ConfigurationError(f"{path} not found; create it with: floe compile{option}") from exc
        return cls._parse(path, content).at(root).on_branch(os.environ.get(BRANCH_VARIABLE))

    @classmethod
    def _parse(cls, path: Path, content: bytes) -> CompiledArtifacts:
        try:
            document: Any = json.loads(content)
        except ValueError as exc:
            raise ConfigurationError(f"{path} is not JSON; create it again with: floe compile") from exc
        version = document.get("contract") if isinstance(document, dict) else None
        if not isinstance(version, int):
            raise ConfigurationError(f"{path} is not a contract of Floe; create it again with: floe compile")
        if version > CONTRACT_VERSION:
            raise ConfigurationError(
                f"{path} is a contract of version {version}, made by a newer Floe; this Floe reads up to "
                f"version {CONTRACT_VERSION}: upgrade it with: pip install --upgrade floe-runtime"
            )
        try:
            return cls.model_validate(document)
        except ValidationError as exc:
            keys = ", ".join(".".join(str(part) for part in error["loc"]) for error in exc.errors(include_input=False))
            raise ConfigurationError(f"{path} has invalid keys ({keys}); create it again with: floe compile") from None
