"""Gives back the space of merged segments of words: PostgreSQL alone would only use it again for others."""

from __future__ import annotations

import logging

from pointsman.archive.store.errors import StoreLockedError
from pointsman.archive.store.postgres.database import PostgresDatabase

WASTED = 0.5  # of what the postings need, before they are rewritten
LEAST_WASTE = 4_000_000  # bytes
MOST_REWRITTEN = 100_000_000  # bytes: searches wait meanwhile, about a second; a larger table is left to autovacuum
_ROW_BYTES = 120  # of a block, besides its data
_WAIT = "2s"  # for readers to end; then another time

logger = logging.getLogger(__name__)


def compact_postings(database: PostgresDatabase) -> None:
    with database.reading() as connection:
        needed, taken = connection.execute(
            "SELECT CAST(coalesce(sum(length(data) + length(positions) + ?), 0) AS BIGINT), "
            "pg_total_relation_size('postings') FROM postings",
            (_ROW_BYTES,),
        ).fetchone()
    if needed > MOST_REWRITTEN or taken - needed < max(LEAST_WASTE, WASTED * needed):
        return
    try:
        _rewrite(database)
    except StoreLockedError as error:  # a reader was there for long: the next housekeeping tries again
        logger.info("the index of words was not compacted: %s", error)


def _rewrite(database: PostgresDatabase) -> None:
    with database.turn("compaction") as mine, database.outside_transactions() as connection:
        if not mine:
            return
        try:
            connection.execute(f"SET lock_timeout = '{_WAIT}'")
            connection.execute("VACUUM FULL postings")
        finally:
            if not connection.closed:
                connection.execute("RESET lock_timeout")
