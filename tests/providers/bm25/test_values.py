"""Values in a request: addresses, paths and file names are said in words, names are told from plain words."""

from __future__ import annotations

import pytest

from pointsman.providers.base import SearchRequest, ToolDocument
from pointsman.providers.bm25.provider import BM25SearchProvider
from pointsman.providers.bm25.query import names_in, parse
from pointsman.providers.bm25.values import words_for_values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("open https://example.com/prices.", ["url", "page", "website", "navigate"]),
        ("open example.com", ["url", "page", "website", "navigate"]),
        ("https://example.com/docs/index.html", ["url", "page", "website", "fetch"]),
        ("read https://example.com/news", ["url", "page", "website", "fetch"]),
        ("what does https://example.com/news say?", ["url", "page", "website", "fetch"]),
        ("post the link https://example.com/news to the team", ["url", "page", "website"]),
        ("summarise the paper at https://example.com/1", ["url", "page", "website", "fetch"]),
        ("what does the policy at https://example.com/privacy say about cookies", ["url", "page", "website", "fetch"]),
        ("find the section on limits in https://example.com/docs", ["url", "page", "website", "fetch"]),
        ("find the file named lease.pdf", ["file", "search"]),
        ("search my disk for lease.pdf", ["file", "search"]),
        ("index.html: replace the title", ["file", "edit"]),
        ("which page of the docs explains screenshots", ["passage", "mention"]),
        ("read notes/todo.md", ["file", "path", "read"]),
        ("compare contract.docx", ["file", "document"]),
        ("open letter.txt", ["file", "read"]),
        ("print the contents of letter.txt", ["file", "read"]),
        ("What does README.md say?", ["file", "read"]),
        ("open an issue about letter.txt", ["file"]),
        ("store this text in notes.md", ["file", "write"]),
        ("save it as report.csv.", ["file", "write"]),
        ("look for the word in notes.md", ["file"]),
        ("rename old.md to new.md", ["file"]),
        ("how large is letter.txt", ["size", "file"]),
        ("show report.csv,", ["file", "read"]),
        ("crop photo.JPG", ["file", "image"]),
        ("what is in /var/log", ["path", "directory"]),
        ("what is in C:\\logs", ["path", "directory"]),
        ("write to anna@example.com", ["email"]),
        ("what time is it in Berlin", ["current"]),
        ("What's the time?", ["current"]),
        ("time in Oslo", ["current"]),
        ("tell me the time in Oslo", ["current"]),
        ("what time is it in Oslo when it is noon in Lima", ["convert"]),
        ("if it is 9:30 in Lima, what time is it in Oslo", ["convert"]),
        ("the first time in Oslo", []),
        ("open the website of the museum", ["navigate", "url"]),
        ("go to the login page", ["navigate", "url"]),
        ("open a new page", []),
        ("go to the previous page", []),
        ("choose a country on the open signup page", []),
        ("which headers did the open page send", []),
        ("close all open pages", []),
        ("switch to another open page", []),
        ("can you open a website", ["navigate", "url"]),
        ("I want to open the home page", ["navigate", "url"]),
        ("first open the website", ["navigate", "url"]),
        ("you should open the home page", ["navigate", "url"]),
        ("in Chrome open the login page", ["navigate", "url"]),
        ("once logged in open the home page", ["navigate", "url"]),
        ("1) open the login page", ["navigate", "url"]),
        ("2. open the login page", ["navigate", "url"]),
        ("Step 1 - open the login page", ["navigate", "url"]),
        ("step 1 open the login page", ["navigate", "url"]),
        ("let us open the home page", ["navigate", "url"]),
        ("next open the website", ["navigate", "url"]),
        ("for all of these open the home page", ["navigate", "url"]),
        ("what is on the currently open web page", []),
        ("list open pages", []),
        ("show open pages", []),
        ("close any open page", []),
        ("close my open pages", []),
        ("switch to open page 2 of the website", []),
        ("the open signup page", []),
        ("how many open pages are there", []),
        ("which page is open on the website", []),
        ("review PR 97", ["pull", "request"]),
        ("which prs are open?", ["pull", "request"]),
        ("the press release", []),
        ("merge my PR", ["pull", "request"]),
        ("the PR agency", []),
        ("stage all files", ["add"]),
        ("forget Bob", ["memory", "delete"]),
        ("forget it", []),
        ("make an HTTP GET request to https://api.example.com", ["fetch", "url", "page", "website"]),
        ("call the API at https://api.example.com", ["url", "page", "website", "fetch"]),
        ("text of https://example.com/news", ["url", "page", "website", "fetch"]),
        ("list the network requests", []),
        ("the code that opens the door", ["find", "code", "function"]),
        ("callers of open_door", ["usages", "callers", "code"]),
        ("remember that Ida plays chess", ["memory", "add"]),
        ("read chapter 7", ["section"]),
        ("add two numbers", ["sum"]),
        ("open /etc/fstab", ["file", "path", "read"]),
        ("open /etc/", ["path", "directory"]),
        ("read /srv/app/.env", ["file", "path", "read"]),
        ("open `.gitignore`", ["file", "read"]),
        ("put DEBUG=false into .env.local", ["file", "write"]),
        ("list ~/.ssh", ["path", "directory"]),
        ("read the image cat.png", ["file", "image", "read"]),
        ("what's today's date", ["current", "time"]),
        ("what day is today", ["current", "time"]),
        ("What day is it?", ["current", "time"]),
        ("What is the date?", ["current", "time"]),
        ("date", ["current", "time"]),
        ("the date of the last commit", []),
        ("what was the reason for choosing YAML", ["why"]),
        ("why did we leave Oracle", ["reason", "decision"]),
        ("add 12 and 30", ["sum"]),
        ("Add 1.5 to 7", ["sum"]),
        ("how much is 7 + 35", ["sum"]),
        ("add 12 apples to the list", []),
        ("what is the time difference between Berlin and Rome", []),
        ("whats the time in Oslo", ["current"]),
        ("I want to know what time it is", ["current"]),
        ("Oslo time", ["current"]),
        ("response time", []),
        ("we meet at 3pm in Lima, when is that in Oslo", ["convert"]),
        ("list the last 10 commits", ["log"]),
        ("version history", ["log"]),
        ("squash commits", []),
        ("what changed since v1.0", ["diff"]),
        ("what does commit 4f2a9c1 change", ["show", "commit"]),
        ("put the answer into a file", ["write", "file"]),
        ("find all csv files", ["search", "files"]),
        ("the biggest files", ["size"]),
        ("cat pictures are funny", []),
        ("file:///home/me/notes.txt", ["file", "path", "read"]),
        ("what is in file:///home/me/notes.txt", ["file", "path", "read"]),
        ("open ftp://example.org/pub", []),
        ("\0", []),
        ("what do we know about Ida", ["memory", "search"]),
        ("do you know what day it is", ["current", "time"]),
        ("which rules do we have about logging", ["convention", "rule"]),
        ("search the docs for vacation", ["passage", "mention"]),
        ("search the docs for these five questions", []),
        ("change the title in index.html", ["file", "edit"]),
        ("find settings.json", ["file", "search"]),
        ("history of main.py", ["file", "commit", "log"]),
        ("read a.txt and b.txt", ["file", "read", "multiple"]),
        ("and/or 24/7 km/h owner/repository v1.2.3 3.14 e.g. this.", []),
    ],
)
def test_a_value_is_said_in_words(text: str, expected: list[str]) -> None:
    assert list(words_for_values(text)) == expected


def test_who_wants_to_be_rid_of_something_wants_it_deleted() -> None:
    asked = parse("Get rid of the file and throw away something else")
    assert set(asked.tokens.values()) == {"delete", "file", "else"}
    assert asked.kinds == ("removes", "removes")


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("rm old.txt", "delete the file old.txt"),
        ("ls", "list the directory"),
        ("mv a.txt b.txt", "move the file a.txt b.txt"),
        ("curl https://example.org", "fetch the url https://example.org"),
    ],
)
def test_a_command_of_a_shell_is_what_it_does(command: str, meant: str) -> None:
    assert parse(command) == parse(meant)


def test_who_logs_in_asks_for_no_log() -> None:
    assert set(parse("log in to the site, then log out").tokens.values()) == {"login", "site", "logout"}
    assert "log" in parse("log the error into the file").tokens.values()


def test_apostrophes_and_spaces_make_no_difference() -> None:
    assert parse("what\u2019s  the\ttime in\u00a0Oslo") == parse("what's the time in Oslo")


def test_verbs_of_what_is_to_be_undone_count_less() -> None:
    assert parse("undo git add").faint == {"add"}
    assert parse("Roll back the update").faint == {"updat"}
    assert parse("add a file").faint == frozenset()


async def test_who_wants_something_undone_is_not_offered_the_tool_that_does_it() -> None:
    tools = [
        ToolDocument("s:post", "post_article", "s", "Posts an article", {}),
        ToolDocument("s:revert", "revert_article", "s", "Takes an article back", {}),
    ]
    for embeddings in (False, True):
        hits = await BM25SearchProvider(embeddings).search(SearchRequest(("undo post article",), None, tools, 5))
        assert hits[0].tool_key == "s:revert"


async def test_who_adds_numbers_asks_for_their_sum() -> None:
    tools = [
        ToolDocument("s:add", "add_note", "s", "Adds a note", {}),
        ToolDocument("s:sum", "get_sum", "s", "Returns the sum of two numbers", {}),
    ]
    for embeddings in (False, True):
        provider = BM25SearchProvider(embeddings)
        for query, key in (("add 12 and 30", "s:sum"), ("add 12 notes", "s:add")):
            hits = await provider.search(SearchRequest((query,), None, tools, 5))
            assert hits[0].tool_key == key


def test_a_regular_expression_is_a_regex() -> None:
    assert set(parse("Match Regular Expressions").tokens.values()) == {"match", "regex"}


async def test_a_tool_that_says_regular_expression_is_found_by_regex() -> None:
    tools = [
        ToolDocument("s:a", "a", "s", "Tests a regular expression", {}),
        ToolDocument("s:b", "b", "s", "Shows a facial expression", {}),
    ]
    hits = await BM25SearchProvider(embeddings=False).search(SearchRequest(("try a regex",), None, tools, 5))
    assert [hit.tool_key for hit in hits] == ["s:a"]


def test_the_words_of_a_file_name_count_less() -> None:
    assert parse("print notes/letter.txt").faint == {"note", "letter", "txt", "path"}


def test_such_words_are_marked_as_unsaid() -> None:
    assert parse("plot report.csv").hints == {"file"}
    assert parse("plot the file report.csv").hints == frozenset()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Find a hotel in New York for Anna", ["new", "york", "anna"]),
        ("Book a table. Then call the Ritz", ["ritz"]),
        ("read the file", []),
    ],
)
def test_a_capital_inside_a_sentence_marks_a_name(text: str, names: list[str]) -> None:
    assert list(names_in(text)) == names


def test_names_and_numbers_are_no_plain_words() -> None:
    query = parse("find a hotel in Oslo for 3 nights")
    assert query.names == {"oslo"}
    assert query.values == {"oslo", "3"}


def test_a_request_in_capitals_throughout_has_no_names() -> None:
    assert parse("Find A Hotel For Three Nights").names == frozenset()


def test_the_words_of_an_identifier_count_less() -> None:
    assert {"load", "user"} <= parse("callers of load_user").faint
    assert {"pars", "config"} <= parse("where is parseConfig called").faint
    assert parse("load the user").faint == frozenset()


def test_what_follows_a_phrase_for_code_is_only_the_subject() -> None:
    asked = parse("the code that opens the database")
    assert asked.subject == {"open", "databas"}
    assert asked.subject <= asked.faint
    assert "database" not in asked.embedded[0]
    assert parse("open the database").subject == set()


def test_references_to_an_identifier_are_usages() -> None:
    assert "usages" in parse("references to load_user").tokens.values()
    assert "references" in parse("references to the paper").tokens.values()


@pytest.mark.parametrize("embeddings", [False, True])
@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("https://example.com/docs/index.html", "fetch"),
        ("read https://example.com/git/commit/log", "fetch"),
        ("open https://example.com/docs/search/index.html", "browser_navigate"),
        ("add https://example.com/fetch/page.html to the search index", "search_add_document"),
    ],
)
async def test_the_words_of_an_address_say_where_and_not_what_to_do(text: str, meant: str, embeddings: bool) -> None:
    described = {
        "fetch": "Fetches a URL from the internet and extracts its contents.",
        "browser_navigate": "Navigate to a URL.",
        "search_add_document": "Add a document, such as a page of the docs, to the search index.",
        "git_log": "Shows the commit log.",
        "search_docs": "Search the docs.",
    }
    tools = [ToolDocument(f"s:{name}", name, "s", description, {}) for name, description in described.items()]
    hits = await BM25SearchProvider(embeddings).search(SearchRequest((text,), None, tools, 5))
    assert hits[0].tool_key == f"s:{meant}"
