"""What Iceberg's readers say of a damaged file in Spark becomes the error that names it."""

from __future__ import annotations

import pytest

from floe_core.errors import DamagedFileError
from floe_core.identifiers import TableIdentifier
from floe_spark.errors import translate

ORDERS = TableIdentifier.from_string("bronze.orders")
PATH = "file:///lake/bronze/orders/x"
IOE = "org.apache.iceberg.exceptions.RuntimeIOException"


@pytest.mark.parametrize(
    "said",
    [
        f"{IOE}: Failed to open file: {PATH}\nCaused by: java.io.EOFException",
        f"{IOE}: Failed to open file: {PATH}\nCaused by: InvalidAvroMagicException: Not an Avro data file.",
        f"Job aborted: {IOE}: Failed to fetch file: {PATH}\nCaused by: java.io.EOFException",
        f"java.lang.RuntimeException: {PATH} is not a Parquet file. Expected magic number at tail, but found [0, 0]",
    ],
)
def test_a_damaged_file_is_named(said: str) -> None:
    error = translate(Exception(said), "spark.append", ORDERS)
    assert isinstance(error, DamagedFileError)
    assert error.file == PATH
    assert "'bronze.orders'" in str(error)
    assert "Restore the file" in str(error)


def test_a_file_out_of_reach_is_not_called_damaged() -> None:
    said = f"{IOE}: Failed to open file: {PATH}\nCaused by: java.net.SocketTimeoutException: timed out"
    assert not isinstance(translate(Exception(said), "spark.append", ORDERS), DamagedFileError)
