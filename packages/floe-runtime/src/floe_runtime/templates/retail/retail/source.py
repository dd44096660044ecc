"""The simulated source system: every value is computed from the row's number, so settings determine the rows."""

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

SETTINGS = Path(__file__).parent.parent / "source.json"
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
END = datetime(2026, 1, 15, tzinfo=timezone.utc)
COUNTRIES = ("AT", "CH", "DE", "FR", "IT", "NL")
CATEGORIES = ("books", "garden", "kitchen", "sport", "toys")
CHANNELS = ("app", "store", "web")

_SECONDS = int((END - START).total_seconds())


@dataclass(frozen=True)
class Source:
    """The current settings of the source system."""

    rows: int
    customers: int
    products: int
    corrected_days: tuple[str, ...] = ()
    spoiled_days: tuple[str, ...] = ()
    channel_since: str | None = None

    def send_orders(self, spark: SparkSession, start: datetime, end: datetime) -> DataFrame:
        """The orders of a time window, some of them twice."""
        first, last = (self._first_order_at(moment) for moment in (start, end))
        placed = spark.range(first, last).select(
            F.col("id").alias("order_id"),
            F.timestamp_seconds(F.expr(f"{int(START.timestamp())} + id * {_SECONDS} div {self.rows}")).alias(
                "ordered_at"
            ),
        )
        corrected = _on(self.corrected_days)
        late = placed.where(corrected & _one_in(100, "late")).withColumn("order_id", F.col("order_id") + self.rows)
        orders = placed.unionAll(late) if self.corrected_days else placed
        sent = orders.unionAll(orders.where(_one_in(100, "sent again")))
        columns = [F.col("order_id"), F.col("ordered_at"), *self._details(corrected)]
        if self.channel_since is not None and end > _midnight(self.channel_since):
            known = F.col("ordered_at") >= F.lit(_midnight(self.channel_since))
            columns.append(F.when(known, _pick(CHANNELS, "channel")).alias("channel"))
        return sent.select(*columns)

    def send_customers(self, spark: SparkSession) -> DataFrame:
        """Every customer, with the day of signing up."""
        return spark.range(1, self.customers + 1, numPartitions=1).select(
            F.col("id").alias("customer_id"),
            _pick(COUNTRIES, "country", "id").alias("country"),
            F.date_add(F.lit("2025-01-01").cast("date"), _draw(365, "signed up", "id").cast("int")).alias(
                "signed_up_on"
            ),
        )

    def send_products(self, spark: SparkSession) -> DataFrame:
        """Every product, with its price as text."""
        return spark.range(1, self.products + 1, numPartitions=1).select(
            F.col("id").alias("product_id"),
            F.concat(F.lit("Product "), F.col("id")).alias("product"),
            _pick(CATEGORIES, "category", "id").alias("category"),
            _money(_price(F.col("id"))).alias("list_price"),
        )

    def _details(self, corrected: Column) -> list[Column]:
        flaw = _draw(600, "flaw")
        spoiled = _on(self.spoiled_days) & _one_in(3, "spoiled")
        # The smaller of two draws: some customers and products are more popular than others.
        customer = 1 + F.least(_draw(self.customers, "customer"), _draw(self.customers, "or customer"))
        product = 1 + F.least(_draw(self.products, "product"), _draw(self.products, "or product"))
        quantity = 1 + _draw(5, "quantity") + F.when(corrected & _one_in(20, "miscounted"), 1).otherwise(0)
        discounted = F.floor(_price(product) * F.when(_one_in(4, "discount"), 90).otherwise(100) / 100)
        return [
            F.when(flaw == 2, customer + self.customers).otherwise(customer).alias("customer_id"),
            product.alias("product_id"),
            F.when((flaw == 1) | spoiled, 1 - quantity).otherwise(quantity).cast("string").alias("quantity"),
            F.when(flaw == 0, "n/a").otherwise(_money(discounted)).alias("unit_price"),
        ]

    def _first_order_at(self, moment: datetime) -> int:
        """The number of the first order at or after a moment: they are spread evenly, and numbered in order of time."""
        passed = int((min(max(moment, START), END) - START).total_seconds())
        return -(-passed * self.rows // _SECONDS)


def read_source() -> Source:
    """The source as source.json describes it now."""
    settings = json.loads(SETTINGS.read_text(encoding="utf-8"))
    corrected, spoiled = (tuple(settings.pop(name, ())) for name in ("corrected_days", "spoiled_days"))
    return Source(**settings, corrected_days=corrected, spoiled_days=spoiled)


def _on(days: tuple[str, ...]) -> Column:
    return F.to_date("ordered_at").cast("string").isin(*days)


def _draw(sides: int, salt: str, number: str = "order_id") -> Column:
    """A number from 0 to `sides` - 1, always the same one for the same row."""
    return F.pmod(F.xxhash64(F.lit(salt), F.col(number)), F.lit(sides))


def _one_in(sides: int, salt: str) -> Column:
    return _draw(sides, salt) == 0


def _pick(values: tuple[str, ...], salt: str, number: str = "order_id") -> Column:
    return F.element_at(F.array(*map(F.lit, values)), (_draw(len(values), salt, number) + 1).cast("int"))


def _price(product: Column) -> Column:
    """The list price of a product in cents."""
    return 199 + F.pmod(F.xxhash64(F.lit("price"), product), F.lit(9800))


def _money(cents: Column) -> Column:
    return (cents.cast("int") * F.lit(Decimal("0.01"))).cast("string")


def _midnight(day: str) -> datetime:
    return datetime.fromisoformat(day).replace(tzinfo=timezone.utc)
