"""The tables of an archive in PostgreSQL: those of SQLite, in PostgreSQL's types.

Text is compared by bytes, as in SQLite, so that both engines list and find in the same order.
"""

from __future__ import annotations

from typing import LiteralString

from pointsman.archive.store.sql import citations
from pointsman.core.postgres import Versions

PART = "archive"

_FIRST: LiteralString = (
    """
CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public;
CREATE TABLE counters (name text COLLATE "C" PRIMARY KEY, value bigint NOT NULL);
INSERT INTO counters VALUES ('epoch', (random() * 1e15)::bigint);
CREATE TABLE memos (name text COLLATE "C" PRIMARY KEY, value text NOT NULL);

CREATE TABLE collections (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    alias text COLLATE "C" UNIQUE,
    version text,
    description text,
    documents bigint NOT NULL DEFAULT 0,
    passages bigint NOT NULL DEFAULT 0
);
CREATE TABLE documents (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    collection bigint NOT NULL REFERENCES collections,
    name text COLLATE "C" NOT NULL,
    title text COLLATE "C" NOT NULL,
    size bigint NOT NULL,
    passages bigint NOT NULL,
    source text COLLATE "C" NOT NULL,
    date text COLLATE "C" NOT NULL,
    url text,
    tags text NOT NULL,
    metadata text,
    path text,
    file_size bigint,
    mtime_ns bigint,
    sha256 text,
    content bytea NOT NULL,
    UNIQUE (collection, name)
);
ALTER TABLE documents ALTER COLUMN content SET STORAGE EXTERNAL;


CREATE TABLE passages (
    id bigint PRIMARY KEY,
    document bigint,
    removed bigint,
    collection bigint NOT NULL,
    place bigint NOT NULL,
    start_line bigint NOT NULL,
    end_line bigint NOT NULL,
    start bigint NOT NULL,
    size bigint NOT NULL,
    length bigint NOT NULL,
    heading text,
    text text
);
CREATE INDEX passages_of_document ON passages (document) WHERE document IS NOT NULL;
CREATE INDEX passages_removed ON passages (removed) WHERE removed IS NOT NULL;
CREATE TABLE removed_texts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    title text NOT NULL,
    content bytea NOT NULL
);
CREATE TABLE tombstones (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, passage bigint NOT NULL);
INSERT INTO counters VALUES ('passage', 0), ('cleaned', 0), ('segment', 0);

CREATE TABLE segments (
    id bigint PRIMARY KEY,
    first bigint NOT NULL,
    last bigint NOT NULL,
    passages bigint NOT NULL,
    ready bigint NOT NULL,
    target bigint,
    done text COLLATE "C"
);
CREATE TABLE postings (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    segment bigint NOT NULL,
    word text COLLATE "C" NOT NULL,
    common bigint NOT NULL,
    data bytea NOT NULL,
    positions bytea NOT NULL,
    UNIQUE (segment, word)
);
ALTER TABLE postings ALTER COLUMN data SET STORAGE EXTERNAL, ALTER COLUMN positions SET STORAGE EXTERNAL;

CREATE TABLE vocabulary (
    word text COLLATE "C" PRIMARY KEY,
    passages bigint NOT NULL,
    revision bigint NOT NULL -- without an index, so that an update leaves all indexes alone
) WITH (fillfactor = 60);
INSERT INTO counters VALUES ('counted passage', 0), ('vocabulary revision', 0);

CREATE TABLE spaces (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider text NOT NULL,
    model text NOT NULL,
    dimension bigint NOT NULL,
    through bigint NOT NULL DEFAULT 0,
    in_use bigint NOT NULL DEFAULT 0,
    UNIQUE (provider, model, dimension)
);
CREATE TABLE vectors (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    space bigint NOT NULL,
    passage bigint NOT NULL,
    document bigint NOT NULL,
    collection bigint NOT NULL,
    vector halfvec NOT NULL,
    UNIQUE (passage, space)
);
CREATE INDEX vectors_of_collection ON vectors (collection);
ALTER TABLE vectors ALTER COLUMN vector SET STORAGE PLAIN;
"""
    + citations.TABLES.format(integer="bigint", real="double precision", text="text", bytes="bytea", keyed="")
    + """
CREATE TABLE context_state (generation bigint NOT NULL);
INSERT INTO context_state VALUES (0);
CREATE TABLE context_origins (name text COLLATE "C" PRIMARY KEY, digest text NOT NULL);
CREATE TABLE context_items (
    row bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    origin text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL UNIQUE,
    source text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    title text NOT NULL,
    content text NOT NULL,
    module text COLLATE "C",
    session text,
    date text COLLATE "C" NOT NULL,
    path text,
    parts text,
    space text COLLATE "C",
    vector bytea
);
CREATE INDEX context_items_by_origin ON context_items (origin);
CREATE INDEX context_items_by_source ON context_items (source);
CREATE INDEX context_items_by_space ON context_items (space);
CREATE TABLE file_accesses (
    root text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    last double precision NOT NULL,
    PRIMARY KEY (root, path)
);
CREATE INDEX file_accesses_by_time ON file_accesses (last);

CREATE TABLE search_indexes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    lowercase bigint NOT NULL,
    min_length bigint NOT NULL
);
CREATE TABLE search_entries (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    index_id bigint NOT NULL REFERENCES search_indexes,
    doc_id text COLLATE "C" NOT NULL,
    content text NOT NULL,
    metadata text NOT NULL,
    UNIQUE (index_id, doc_id)
);
CREATE TABLE search_postings (
    index_id bigint NOT NULL,
    word text COLLATE "C" NOT NULL,
    entry bigint NOT NULL,
    places bytea NOT NULL,
    PRIMARY KEY (index_id, word, entry)
);
CREATE INDEX search_postings_of_entry ON search_postings (entry);
"""
)

# An index over the vectors' numbers took more space than the vectors, and three columns twice what they need: by these
# 8 bytes, a page has one vector more. An older program works on these tables while it runs.
_SECOND = """
DO $$
DECLARE name text;
BEGIN
    FOR name IN SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
        WHERE indrelid = 'vectors'::regclass AND starts_with(relname, 'vectors_nearest_')
    LOOP
        EXECUTE 'DROP INDEX ' || quote_ident(name);
    END LOOP;
END
$$;
ALTER TABLE vectors
    ALTER COLUMN space TYPE integer, ALTER COLUMN document TYPE integer, ALTER COLUMN collection TYPE integer;
ANALYZE vectors;
"""

VERSIONS: Versions = (_FIRST, _SECOND)
