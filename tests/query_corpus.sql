-- Queries that mean the same to DuckDB and to Spark. `--- name` begins one; query_corpus.py fills in what is in braces.

--- all rows
SELECT * FROM {ns}.orders

--- values
VALUES (1, 'a'), (2, NULL)

--- no table
SELECT 1 AS one, 'it is' AS text, NULL AS nothing, DATE '2026-01-31' AS day

--- columns and aliases
SELECT o.order_id AS id, o.amount * 2 AS twice FROM {ns}.orders AS o WHERE o.order_id < 5

--- full names
SELECT {ns}.orders.order_id FROM {ns}.orders WHERE {ns}.orders.order_id IN (1, 3)

--- catalog name
SELECT count(*) AS n FROM lake.{ns}.orders

--- names in any case
SELECT ORDER_ID, Amount FROM {ns}.orders WHERE Order_Id = 7

--- quoted names
SELECT `order_id` FROM `{ns}`.`orders` WHERE `order_id` = 8

--- a keyword as a column
SELECT `order`, word FROM {ns}.odd ORDER BY `order`

--- namespaces of two levels
SELECT {ns}.deep.airlines.name FROM {ns}.deep.airlines ORDER BY name

--- an empty table
SELECT count(*) AS n, max(name) AS name FROM {ns}.deep.empty

--- no rows
SELECT * FROM {ns}.orders WHERE order_id < 0

--- order and limit
SELECT order_id, amount FROM {ns}.orders ORDER BY amount DESC, order_id LIMIT 5

--- offset
SELECT order_id FROM {ns}.orders ORDER BY order_id LIMIT 3 OFFSET 10

--- nulls in order
SELECT city, name FROM {ns}.customers ORDER BY city, name

--- nulls in descending order
SELECT city, name FROM {ns}.customers ORDER BY city DESC, name

--- a comment
SELECT count(*) AS n -- not; a ' statement
FROM {ns}.orders /* nor " this; */;

--- null is not equal
SELECT order_id FROM {ns}.orders WHERE status <> 'placed'

--- is null
SELECT count(*) AS n FROM {ns}.orders WHERE status IS NULL

--- not in with null
SELECT count(*) AS n FROM {ns}.orders WHERE status NOT IN ('placed', NULL)

--- null safe
SELECT count(*) AS n FROM {ns}.customers WHERE city IS NOT DISTINCT FROM NULL

--- between and like
SELECT sku, quantity FROM {ns}.lines WHERE quantity BETWEEN 2 AND 3 AND sku LIKE 'sku-1%'

--- or over two columns
SELECT order_id FROM {ns}.orders WHERE order_id = 3 OR customer_id = 5 AND amount > 4.5

--- case and coalesce
SELECT order_id, CASE WHEN discount IS NULL THEN 'none' WHEN discount > 2 THEN 'much' ELSE 'some' END AS kind, coalesce(status, '?') AS status
FROM {ns}.orders
WHERE order_id < 12

--- a boolean column
SELECT id FROM {ns}.odd WHERE flag AND NOT (id = 1)

--- decimals
SELECT sum(amount) AS total, min(amount) AS low, max(amount) AS high FROM {ns}.orders

--- decimal arithmetic
SELECT order_id, amount + 0.05 AS more FROM {ns}.orders WHERE amount = 1.25 OR amount < 0.5

--- decimals and integers
SELECT o.order_id, l.quantity * l.price AS cost
FROM {ns}.lines l JOIN {ns}.orders o ON l.order_id = o.order_id
WHERE l.price > 0.04

--- exact decimals
SELECT id, exact FROM {ns}.odd WHERE exact >= -0.000000001

--- large integers
SELECT id, large FROM {ns}.odd WHERE large >= 9223372036854775807 OR large < 0

--- nan
SELECT id FROM {ns}.odd WHERE double_value > 1000 ORDER BY id

--- nan is the largest
SELECT max(double_value) AS high, min(double_value) AS low FROM {ns}.odd WHERE word IS NOT NULL

--- zeros are equal
SELECT id FROM {ns}.odd WHERE double_value = 0.0 OR float_value = -0.0

--- floats
SELECT id, CAST(float_value AS DOUBLE) AS wide FROM {ns}.odd

--- division
SELECT order_id, order_id / 4 AS quarter, order_id % 4 AS rest FROM {ns}.orders WHERE order_id < 9

--- averages
SELECT customer_id, avg(discount) AS mean, count(discount) AS n FROM {ns}.orders GROUP BY customer_id

--- a day in UTC
SELECT order_id, ordered_at
FROM {ns}.orders
WHERE ordered_at >= TIMESTAMP '2026-01-03 00:00:00' AND ordered_at < TIMESTAMP '2026-01-04 00:00:00'

--- a time with a zone
SELECT order_id FROM {ns}.orders WHERE ordered_at = '2026-01-02T03:00:00+03:00'

--- the day of a time
SELECT CAST(ordered_at AS DATE) AS day, count(*) AS n
FROM {ns}.orders
GROUP BY CAST(ordered_at AS DATE)
ORDER BY day

--- parts of times
SELECT extract(YEAR FROM since) AS y, extract(MONTH FROM since) AS m, count(*) AS n
FROM {ns}.customers
GROUP BY 1, 2

--- times without a zone
SELECT id, local_time, day FROM {ns}.odd WHERE local_time < '2025-01-01'

--- truncated times
SELECT date_trunc('MONTH', ordered_at) AS month, min(ordered_at) AS first FROM {ns}.orders GROUP BY 1

--- dates compared
SELECT name FROM {ns}.customers WHERE since > '2022-02-28' AND since <= DATE '2024-02-28'

--- a join
SELECT o.order_id, c.name
FROM {ns}.orders o JOIN {ns}.customers c ON o.customer_id = c.customer_id
WHERE c.city = 'Oslo'

--- a left join
SELECT o.order_id, c.name
FROM {ns}.orders o
LEFT JOIN {ns}.customers c ON o.customer_id = c.customer_id
WHERE o.order_id > 50

--- a left join, filtered on the right
SELECT o.order_id, c.name
FROM {ns}.orders o
LEFT JOIN {ns}.customers c ON o.customer_id = c.customer_id AND c.city = 'Rome'
WHERE c.customer_id IS NULL AND o.order_id < 20

--- a left join, with a condition on the right
SELECT o.order_id
FROM {ns}.orders o
LEFT JOIN {ns}.customers c ON o.customer_id = c.customer_id
WHERE c.city = 'Rome' OR c.city IS NULL

--- a full join
SELECT o.customer_id AS a, c.customer_id AS b
FROM (SELECT DISTINCT customer_id FROM {ns}.orders WHERE customer_id > 3) o
FULL OUTER JOIN {ns}.customers c ON o.customer_id = c.customer_id

--- a self join
SELECT a.order_id AS earlier, b.order_id AS later
FROM {ns}.orders a JOIN {ns}.orders b ON a.customer_id = b.customer_id AND a.order_id < b.order_id
WHERE a.order_id < 3 AND b.order_id > 50

--- joined by name
SELECT customer_id, order_id, name FROM {ns}.orders JOIN {ns}.customers USING (customer_id) WHERE order_id < 4

--- three tables
SELECT c.city, sum(l.quantity) AS pieces
FROM {ns}.orders o, {ns}.lines l, {ns}.customers c
WHERE o.order_id = l.order_id AND c.customer_id = o.customer_id
GROUP BY c.city

--- exists
SELECT name
FROM {ns}.customers c
WHERE EXISTS (SELECT 1 FROM {ns}.orders o WHERE o.customer_id = c.customer_id AND o.amount > 9)

--- not in a subquery
SELECT customer_id
FROM {ns}.customers
WHERE customer_id NOT IN (SELECT customer_id FROM {ns}.orders WHERE order_id < 4)

--- a scalar subquery
SELECT order_id FROM {ns}.orders WHERE amount = (SELECT max(amount) FROM {ns}.orders)

--- a union
SELECT customer_id
FROM {ns}.orders
WHERE order_id < 3
UNION SELECT customer_id
FROM {ns}.customers
WHERE customer_id > 3

--- except
SELECT customer_id FROM {ns}.orders EXCEPT SELECT customer_id FROM {ns}.customers

--- common tables
WITH big AS (SELECT * FROM {ns}.orders WHERE amount > 5), orders AS (SELECT customer_id, count(*) AS n FROM big GROUP BY customer_id) SELECT *
FROM orders
WHERE n > 3

--- having
SELECT sku, count(*) AS n FROM {ns}.lines GROUP BY sku HAVING sum(quantity) > 39

--- row numbers
SELECT *
FROM (SELECT customer_id, order_id, row_number() OVER (PARTITION BY customer_id ORDER BY amount DESC, order_id) AS place FROM {ns}.orders) ranked
WHERE place <= 2

--- running totals
SELECT order_id, sum(amount) OVER (ORDER BY order_id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS total, lag(order_id) OVER (ORDER BY order_id) AS before
FROM {ns}.orders
WHERE order_id < 10

--- windows over nulls
SELECT name, rank() OVER (ORDER BY city) AS place, first_value(city) OVER (ORDER BY city, name) AS first
FROM {ns}.customers

--- rollup
SELECT status, customer_id, count(*) AS n
FROM {ns}.orders
WHERE customer_id < 2
GROUP BY ROLLUP (status, customer_id)

--- fields of structs
SELECT id, place.city, place.geo.lat AS lat FROM {ns}.nested

--- conditions on fields
SELECT n.id FROM {ns}.nested n WHERE n.place.geo.lat > 50 OR n.place.city IS NULL

--- whole nested values
SELECT id, place, tags, counts FROM {ns}.nested

--- lists of floats
SELECT id, scores FROM {ns}.nested

--- delete files
SELECT id, half FROM {ns}.deleted

--- delete files, counted
SELECT half, count(*) AS n FROM {ns}.deleted WHERE id < 15 GROUP BY half

--- delete files, joined to themselves
SELECT a.id FROM {ns}.deleted a JOIN {ns}.deleted b ON a.id = b.id + 1 WHERE a.half = 0

--- evolved columns
SELECT id, city, n, land FROM {ns}.evolved WHERE n > 1

--- a renamed column
SELECT id FROM {ns}.evolved WHERE city = 'Oslo' OR land = 'France'

--- the schema of the past
SELECT id, town, n FROM {ns}.evolved VERSION AS OF 'original'

--- a snapshot
SELECT count(*) AS n, max(order_id) AS last FROM {ns}.orders VERSION AS OF {first}

--- a tag
SELECT count(*) AS n FROM {ns}.orders VERSION AS OF 'closed' AS o WHERE o.order_id > 5

--- a branch
SELECT count(*) AS n, max(order_id) AS last FROM {ns}.orders FOR VERSION AS OF 'draft'

--- a time
SELECT count(*) AS n FROM {ns}.orders TIMESTAMP AS OF '{before}'

--- now and then
SELECT now.order_id
FROM {ns}.orders now
LEFT JOIN {ns}.orders VERSION AS OF {first} old ON now.order_id = old.order_id
WHERE old.order_id IS NULL

--- flights by airline
SELECT a.name, count(*) AS n, avg(f.dep_delay) AS late
FROM {ns}.deep.flights f JOIN {ns}.deep.airlines a ON f.carrier = a.carrier
GROUP BY a.name
HAVING count(*) > 10
ORDER BY n DESC, a.name

--- flights by hour
SELECT time_hour, origin, count(*) AS n
FROM {ns}.deep.flights
WHERE time_hour < '2013-01-01T15:00:00Z'
GROUP BY time_hour, origin

--- the longest flight of each origin
SELECT origin, dest, distance
FROM (SELECT origin, dest, distance, dense_rank() OVER (PARTITION BY origin ORDER BY distance DESC) AS place FROM {ns}.deep.flights) ranked
WHERE place = 1
GROUP BY origin, dest, distance
