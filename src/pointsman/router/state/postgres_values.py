"""The key-value store of several gateways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import LiteralString

from pointsman.router.state.key_values import ABSENT, Change, Entry, check
from pointsman.router.state.tables import StateTables

_LIVES: LiteralString = "(expires IS NULL OR expires > clock_timestamp())"
_INSERT: LiteralString = """
    INSERT INTO key_values AS kept VALUES (%(key)s, %(value)s, nextval('key_value_versions'),
        clock_timestamp() + make_interval(secs => %(life_s)s))
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = excluded.version, expires = excluded.expires
"""
# Locks the rows, in the order of the keys, so that gateways do not wait for one another in a circle. A key that does
# not exist becomes a row that has expired.
_LOCK: LiteralString = """
    INSERT INTO key_values AS kept SELECT key, '', nextval('key_value_versions'), clock_timestamp()
        FROM unnest(%s::text[]) AS key
    ON CONFLICT (key) DO UPDATE SET version = kept.version
    RETURNING key, value, expires IS NULL OR expires > clock_timestamp(), extract(epoch FROM clock_timestamp())::float8
"""
_REPLACE: LiteralString = """
    UPDATE key_values SET value = %s, version = nextval('key_value_versions'),
        expires = clock_timestamp() + make_interval(secs => %s) WHERE key = %s
"""
_UPDATE: LiteralString = """
    UPDATE key_values SET value = %(value)s, version = nextval('key_value_versions'),
        expires = clock_timestamp() + make_interval(secs => %(life_s)s)
    WHERE key = %(key)s AND version = %(version)s AND (expires IS NULL OR expires > clock_timestamp())
    RETURNING version
"""
_DELETE: LiteralString = """
    DELETE FROM key_values WHERE key = %(key)s AND (%(version)s::bigint IS NULL OR version = %(version)s)
        AND (expires IS NULL OR expires > clock_timestamp())
"""


class PostgresKeyValues:
    """Fits `KeyValues`. Times are those of the database's clock."""

    def __init__(self, tables: StateTables) -> None:
        self._tables = tables

    def get(self, key: str) -> Entry | None:
        with self._tables.connection() as connection:
            row = connection.execute(
                f"SELECT value, version FROM key_values WHERE key = %s AND {_LIVES}",  # noqa: S608
                (key,),
            ).fetchone()
        return Entry(bytes(row[0]), row[1]) if row else None

    def put(self, key: str, value: bytes, *, version: int | None = None, life_s: float | None = None) -> int | None:
        check(key, value)
        statement: LiteralString = _UPDATE
        if version is None:
            statement = _INSERT + " RETURNING version"
        elif version == ABSENT:
            statement = _INSERT + " WHERE kept.expires <= clock_timestamp() RETURNING version"
        with self._tables.connection() as connection:
            row = connection.execute(
                statement, {"key": key, "value": value, "version": version, "life_s": life_s}
            ).fetchone()
        return int(row[0]) if row else None

    def put_all(self, values: Mapping[str, bytes]) -> None:
        for key, value in values.items():
            check(key, value)
        rows = [{"key": key, "value": value, "life_s": None} for key, value in values.items()]
        with self._tables.writing() as connection, connection.cursor() as cursor:
            cursor.executemany(_INSERT, rows)

    def change(self, keys: Sequence[str], change: Change) -> None:
        if not keys:
            return
        for key in keys:
            check(key)
        with self._tables.writing() as connection, connection.cursor() as cursor:
            rows = cursor.execute(_LOCK, (sorted(set(keys)),)).fetchall()
            wanted = change(rows[0][3], {key: bytes(value) for key, value, lives, _ in rows if lives})
            for key, (value, _) in wanted.items():
                check(key, value)
            if wanted:
                cursor.executemany(_REPLACE, [(value, life_s, key) for key, (value, life_s) in wanted.items()])

    def delete(self, key: str, *, version: int | None = None) -> bool:
        with self._tables.connection() as connection:
            return connection.execute(_DELETE, {"key": key, "version": version}).rowcount > 0

    def list(self, prefix: str) -> dict[str, Entry]:
        with self._tables.connection() as connection:
            rows = connection.execute(
                f"SELECT key, value, version FROM key_values WHERE key ^@ %s AND {_LIVES} ORDER BY key",  # noqa: S608
                (prefix,),
            ).fetchall()
        return {key: Entry(bytes(value), version) for key, value, version in rows}

    def dump(self) -> Sequence[tuple[str, bytes, float | None]]:
        with self._tables.connection() as connection:
            rows = connection.execute(
                "SELECT key, value, extract(epoch FROM expires - clock_timestamp())::float8 FROM key_values "
                "WHERE expires IS NULL OR expires > clock_timestamp() ORDER BY key"
            ).fetchall()
        return [(key, bytes(value), left_s) for key, value, left_s in rows]

    def purge(self) -> None:
        """Delete what does not exist any more."""
        with self._tables.connection() as connection:
            connection.execute("DELETE FROM key_values WHERE expires <= clock_timestamp()")

    def close(self) -> None:
        """The connections are their owner's."""
