"""A request is told from a block of text that is pasted beside it."""

from __future__ import annotations

import time

import pytest

from pointsman.providers.bm25.pasted import without_pasted
from pointsman.providers.bm25.query import parse

LOG = "\n".join(f"2026-01-{day:02} 10:00:00 ERROR worker cannot commit the branch" for day in range(1, 29))
PROSE = "The log of last night shows which branch was merged. Nobody searched the history of the commit. " * 5


@pytest.mark.parametrize("block", [LOG, PROSE, f"ERROR: timeout\nERROR: closed\nERROR: timeout\n{LOG}"])
def test_a_block_after_or_before_a_request_is_left_out(block: str) -> None:
    assert without_pasted(f"Write the following log into a file:\n{block}") == "Write the following log into a file:"
    assert without_pasted(f"What time is it in Tokyo?\n\n{block}") == "What time is it in Tokyo?"
    assert without_pasted(f"{block}\n\nWhat time is it in Tokyo?") == "What time is it in Tokyo?"


@pytest.mark.parametrize(
    "text",
    [
        LOG,
        f"Send two messages to the team.\n\nThen book a room for 12. {PROSE}",
        f"Trip to Oslo\n\n{PROSE}",  # a heading
        f"Hello all,\n\n{PROSE}\n\nBest regards, Anna",
        "Close the issues of the sprint:\n" + "\n".join(f"Close #{n} in shop/web (p{n % 3})" for n in range(20)),
        f"Find the following:\n{PROSE}",  # what, is said below
        f"Please do these things with care:\n{PROSE}",
        f"Look up these facts for the trip:\n- a flight to Oslo\n- a hotel\n{PROSE}",
        f"List the tasks of the sprint:\n1. a flight to Oslo\n2. a hotel\n{PROSE}",
        f"Find a flight for the trip:\nBook it, and a hotel near the station. {PROSE}",
        f"How do I call the service of the firm?\nVersion: 6.3.1\nIP: 10.0.0.1\nAPI name: status\n{PROSE}",
        f"What time is it in Tokyo?\n{LOG[:100]}",
    ],
)
def test_what_goes_on_with_the_request_stays(text: str) -> None:
    assert without_pasted(text) == text


TRACE = "Traceback (most recent call last):\n" + '  File "/srv/app/jobs.py", line 12, in run\n    push(job)\n' * 20
TEST_RUN = "\n\n".join(f"FAILED tests/test_{n}.py::test_open - assert {n} == 7" for n in range(30))
HISTORY = "\n".join(f"commit {n:07}abc\nAuthor: Ann <ann@example.com>\n\n    Search the page {n}" for n in range(20))
CODE = "import os\nimport re\n\n" + "def search(page: str) -> None:\n    print(page[:10])\n\n\n" * 20
WORDY_LOG = "\n".join(f"ERROR line {n}: cannot open the database connection" for n in range(40))
TABLE = "\n".join(f"{n};{n * 7}.50;Oslo;open" for n in range(40))


@pytest.mark.parametrize("block", [LOG, WORDY_LOG, TRACE, TEST_RUN, HISTORY, CODE, TABLE, PROSE], ids=range(8))
@pytest.mark.parametrize("request_", ["Commit my changes.", "please take a screenshot of the page"])
def test_a_short_paragraph_decides_whatever_the_block_is(request_: str, block: str) -> None:
    fenced = f"```\n{block}\n```"
    for text in (
        f"{request_}\n\n{block}",
        f"{block}\n\n{request_}\n",
        f"{request_}\n{fenced}",
        f"{fenced}\n{request_}",
        f"{request_}\n\n{block * 20}"[:20_000],
    ):
        assert without_pasted(text) == request_


@pytest.mark.parametrize("block", [LOG, WORDY_LOG, TRACE, TABLE], ids=range(4))
def test_next_to_machine_text_a_line_or_a_phrase_is_enough(block: str) -> None:
    assert without_pasted(f"Commit my changes.\n{block}") == "Commit my changes."
    assert without_pasted(f"{block}\nCommit my changes.") == "Commit my changes."
    assert without_pasted(f"the weather in Oslo\n\n{block}") == "the weather in Oslo"
    asked = without_pasted(f"This is the log of last night:\n\n{block}\n\nSearch the docs for the reason.")
    assert asked.splitlines()[-1] == "Search the docs for the reason."
    assert len(asked) < 100


MACHINE_TEXTS = [LOG, WORDY_LOG, TRACE, TEST_RUN, HISTORY, TABLE]


@pytest.mark.parametrize("block", MACHINE_TEXTS, ids=range(6))
@pytest.mark.parametrize(
    "request_",
    [
        *("save this log to a file", "What time is it in Tokyo?", "what time is it in Tokyo", "I need the git status"),
        *("which branch am I on?", "how many errors are in worker.log", "please commit the staged changes"),
    ],
)
def test_a_paragraph_that_asks_between_two_blocks_of_machine_text_decides(request_: str, block: str) -> None:
    for before, after in ((block, block), (LOG, block), (block, TABLE), (f"The log of last night:\n\n{block}", LOG)):
        assert without_pasted(f"{before}\n\n{request_}\n\n{after}") == request_
        assert without_pasted(f"{before}\n \n\n{request_}\n\t\n{after}\n\n") == request_
        assert without_pasted(f"{before[:3_000]}\r\n\r\n{request_}\r\n\r\n{after}") == request_


@pytest.mark.parametrize(
    "text",
    [
        f"{LOG}\n\nsave this log to a file\n\n{LOG}\n\nfind the ticket of the failure\n\n{LOG}",  # two
        f"{LOG}\n\nthe worker has ended\n\n{LOG}",  # asks for nothing
        f"{LOG}\n\ndo it\n\n{LOG}",
        f"{LOG}\n\n- save this log to a file\n\n{LOG}",
        f"{LOG}\n\n    save this log to a file\n\n{LOG}",  # part of the block
        f"{LOG}\n\nsave this log to a file {'and this one ' * 40}\n\n{LOG}",
        f"{PROSE}\n\nsave this log to a file\n\n{PROSE}",
        f"2026-01-01 10:00:00 ERROR\n\nsave this log to a file\n\n{LOG[:150]}",
    ],
    ids=range(8),
)
def test_other_paragraphs_between_blocks_do_not(text: str) -> None:
    assert without_pasted(text) == text


@pytest.mark.parametrize(
    "first",
    [
        *("import os", "import os, sys", "import numpy as np", "from pathlib import Path", "from .a import b"),
        *(
            "import React, { useState } from 'react';",
            'import * as fs from "fs"',
            'import "fmt"',
            "import java.util.List;",
        ),
        *("export default App;", "export const limit = 5;", "export function load(path) {", "export { a, b }"),
        *("use std::io::Read;", "using System.Linq;", "package main", "require 'json'"),
        *(
            "import os  # noqa",
            "import os  # the files of a user",
            "import os; import sys",
            "import qualified Data.Map as M",
        ),
        *("import java.util.*;", "import type { A } from './a';", "import a from './a';", "import Data.List (sort)"),
        *("export namespace Foo {", "export PATH=/usr/bin", "export const { a, b } = c;", "export const a = all(b);"),
        *("import { a } from './the'; // all of the app", "export let a: string;", "import scala.{A, B}"),
    ],
)
@pytest.mark.parametrize("between", ["", "\n"])
def test_the_first_line_of_code_is_no_request(first: str, between: str) -> None:
    code = f"{first}\n{between}" + "".join(f"def f{n}(a, b):\n    return join(a, b)\n{between}" for n in range(6))
    assert without_pasted(f"{code}\ntake a screenshot of the page") == "take a screenshot of the page"


@pytest.mark.parametrize(
    "request_",
    [
        *("import this module into the project:", "export this module as a zip file:", "use this code in a new file"),
        *("import all contacts of Anna", "export issues as csv", "import users from contacts.csv", "export my notes"),
        *("import data for Anna", "export tasks to Anna"),
        *("export function list as csv", "import this module as a package into the project?"),
    ],
)
@pytest.mark.parametrize("between", ["", "\n"])
def test_a_request_before_code_may_begin_like_a_line_of_it(request_: str, between: str) -> None:
    code = "".join(f"def f{n}(a, b):\n    return join(a, b)\n" for n in range(9))
    assert without_pasted(f"{request_}\n{between}{code}") == request_


def test_who_imports_a_table_asks_for_that() -> None:
    assert without_pasted("import contacts\n" + "Anna,0170 12345,anna@example.com\n" * 20) == "import contacts"


LONG_TEXTS = {
    "code": "import os\n" + "def f(x): return x\n" * 500,
    "nearly code": "import os\n" + "def " * 2_000,
    **{
        piece: piece * (20_000 // len(piece))
        for piece in ("a\n\n", "save a\n\n", "2026 x: y\n\n", "\n \t", "\n\n", "save ")
    },
    "asking": "please save a log to a file\n\n" * 700,
    "asking once": "ERROR 12 34\n\n" * 700 + "save the log to a file\n\n" + "ERROR 12 34\n\n" * 700,
    "words": "\n\n".join(f"the log of {chr(97 + n % 26)} has ended" for n in range(700)),
    "long paragraphs": "\n\n".join(["the log of the night has ended and so on " * 7] * 70),
}


@pytest.mark.parametrize("text", LONG_TEXTS.values(), ids=LONG_TEXTS)
def test_a_long_text_of_paragraphs_costs_little(text: str) -> None:
    for block in (LOG, ""):
        began = time.process_time()
        without_pasted(f"{block}\n\n{text}\n\n{block}")
        assert time.process_time() - began < 1  # against hanging; it takes some milliseconds


def test_a_long_text_without_a_request_costs_little() -> None:
    for text in (LOG * 10, "a\n\n" * 4_000, "```\n" * 4_000, "a: b\n" * 4_000, " \n" * 8_000, "please " * 2_000 + "\n"):
        began = time.process_time()
        without_pasted(text)
        assert time.process_time() - began < 1  # against hanging


@pytest.mark.parametrize("request_", ["which branch am I on?", "what is in the graph?", "why did we choose NATS"])
def test_a_question_after_a_log_needs_one_word_of_its_own(request_: str) -> None:
    assert without_pasted(f"{LOG}\n\n{request_}") == request_


def test_the_words_of_a_block_do_not_count() -> None:
    assert set(parse(f"What time is it in Tokyo?\n\n{LOG}").tokens) == {"time", "tokyo", "current"}
