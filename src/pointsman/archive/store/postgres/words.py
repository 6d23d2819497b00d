"""How PostgreSQL reads the index of words: all words of a query together, since each statement costs a round trip."""

from __future__ import annotations

from collections.abc import Sequence

from pointsman.archive.store.postgres.database import PostgresDatabase, Transaction
from pointsman.archive.store.sql.database import Connection
from pointsman.archive.store.sql.words import Located, Segments, SqlWords
from pointsman.archive.store.text_search import TextSearch

_FIND = """
SELECT asked.place, block.segment, block.id, block.word, block.common
FROM unnest(?::text[]) WITH ORDINALITY AS asked (word, place)
CROSS JOIN unnest(?::bigint[]) WITH ORDINALITY AS searched (segment, age)
CROSS JOIN LATERAL (
    SELECT segment, id, word, common FROM postings
    WHERE segment = searched.segment AND word <= asked.word COLLATE "C" ORDER BY word DESC LIMIT 1
) AS block
ORDER BY asked.place, searched.age
"""


class PostgresWords(SqlWords):
    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database, PostgresSegments)

    def search(self, connection: Connection) -> TextSearch:
        """The same for all questions in a transaction."""
        memo = connection.memo if isinstance(connection, Transaction) else {}
        search: TextSearch | None = memo.get("search")
        if search is None:
            search = memo["search"] = super().search(connection)
        return search


class PostgresSegments(Segments):
    def _find_blocks(self, words: Sequence[str]) -> dict[str, list[Located]]:
        found: dict[str, list[Located]] = {word: [] for word in words}
        for place, *block in self._connection.execute(_FIND, (list(words), self._segments)):
            found[words[int(place) - 1]].append(Located(*block))
        return found
