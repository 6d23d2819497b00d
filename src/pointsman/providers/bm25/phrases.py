"""Phrases of requests that say in other words than tools what is wanted, and which words are only the subject.

`the code that opens the database` wants code: `opens the database` says which, and names no tool for it.
"""

from __future__ import annotations

import re

MAX_CHARS = 400  # of a step, in which phrases are looked for

_ASKING = r"^\W*(?:please |can you |could you )?(?:(?:find|get|give|show|tell|send)(?: me| us)? |where is |what is )?"

_CLOCK = re.compile(
    r"\bwhat(?:'?s| is) the (?:time|date)(?: in\b| now\b|\W*$)|\bwhat (?:time|day|date) (?:is it|it is)\b"
    rf"|{_ASKING}(?:the )?(?:current |local |exact )*time (?:in|for|at) |\bhow late is it\b"
    r"|^\W*(?-i:[A-Z])\w+ time\W*$",
    re.IGNORECASE,
)
_TIME_THERE = re.compile(
    r"\bwhat time (?:is|was|will)\b|\btime\b[^.?!]{0,30} in\b|\b(?:in|to) (?:[\w']+ ){1,3}time\b"
    r"|\bwhen (?:is|was|will) (?:that|it|this)\b[^.?!]{0,20} in\b",
    re.IGNORECASE,
)
_TIME_HERE = re.compile(r"\b(?:noon|midnight|\d{1,2}[:.]\d\d|\d{1,2} ?(?:[ap]\.?m\b|o['\u2019]?clock))", re.IGNORECASE)
_TODAY = re.compile(
    r"\b(?:today['\u2019]?s|current|present) date\b|\b(?:day|date) (?:is (?:it )?)?today\b|^\W*(?:the )?date\W*$"
    r"|\bwhat(?:['\u2019]?s| is) the date(?: in\b| now\b|\W*$)|\bwhat (?:day|date) (?:is it|it is)\b",
    re.IGNORECASE,
)
_USES = re.compile(
    r"\bwho (?:uses|calls|imports)\b|\bwhere (?:is|are|do we|do they)\b[^.?!]{1,60}\b(?:use|used|called|imported)\b",
    re.IGNORECASE,
)
_REASONS = re.compile(r"\bwhat (?:was|is|were|are) (?:the|our|their) (?:reason|motive|rationale)", re.IGNORECASE)
_OUR_REASONS = re.compile(r"\bwhy (?:did|do|have|had|are|were) (?:we|they)\b", re.IGNORECASE)
SIZE = re.compile(r"\bhow (?:large|big) (?:is|are)\b", re.IGNORECASE)
ADDING_NUMBERS = re.compile(  # `add 12 and 30`, `7 + 35`, `add two numbers`
    r"\badd(?: up)? [-+]?\d[\d.,]{0,20}(?: and| to|,) [-+]?\d|\d\s?(?:\+|plus)\s?\d"
    r"|\badd(?: up)? (?:(?:the|these|those|some|two|three|four|\d{1,3}) ){1,2}numbers\b",
    re.IGNORECASE,
)
# Behind these words `open` says which pages: `close all open pages`. It does not before an article: `of these open the
# first page`.
_BESIDE_OPEN = """
    the an all any every another other these those of no my our each many some which
    close count find get list reload show is are was were already currently
"""
_IS_VERB = "".join(rf"(?<!\b{word} )" for word in (*_BESIDE_OPEN.split(), "switch to"))
_OPEN = rf"\bopen(?= (?:the|an?) )|{_IS_VERB}\bopen"
NAVIGATING = re.compile(  # `open a website`; `open a new page` makes one
    rf"(?:{_OPEN}|\b(?:go to|visit|load|bring up|pull up|browse to|navigate to))"
    r" (?!(?:an? |the )?(?:new|previous|last|next)\b)"
    r"(?:[\w'\u2019-]{1,30} ){0,5}?(?:web ?sites?|web ?pages?|home ?pages?|sites?|pages?|urls?)\b(?! \d)",
    re.IGNORECASE,
)
_PART = re.compile(
    r"\b(?:chapter|section|part|paragraph) (?:\d{1,4}|[IVX]{1,6}|one|two|three|four|five)\b", re.IGNORECASE
)
HISTORY = re.compile(
    r"\b(?:commits?|git|revision|version) history\b|\bhistory of (?:the |this |our )?(?:repo|branch|commit|project)",
    re.IGNORECASE,
)
COMMITS = re.compile(
    r"\b(?:recent|last|latest|newest|previous|past|all|list|show|see|view|get|fetch|\d+)(?: [\w-]+){0,3}? commits\b"
    r"|\bwho (?:committed|(?:made|wrote) (?:the|this|that)(?: \w+)? commit)\b",
    re.IGNORECASE,
)
_DIFF = re.compile(
    r"\b(?:chang(?:es?|ed)|different|differs?) between\b|\bwhat (?:has |have )?changed since\b"
    r"|\bcompare (?:(?:two|the|these|those|both|my) ){0,2}(?:branches|commits|revisions)\b",
    re.IGNORECASE,
)
_COMMIT = re.compile(  # one of them
    r"\bcommit [0-9a-f]{6,40}\b"
    r"|\b(?:changes?|contents?|diff) (?:of|in) (?:the |this |that |my )?(?:last |latest |previous )?commit\b",
    re.IGNORECASE,
)
_REVIEWED = r"\b(?:approv|branch|clos|commit|diff|draft|github|merg|open|rebas|repo|review|squash)\w{0,5}\b"
_PULL_REQUEST = re.compile(  # `PR agency` is none
    rf"\bprs\b|\bpr ?#?\d|{_REVIEWED}[^.?!]{{0,40}}\bpr\b|\bpr\b[^.?!]{{0,40}}{_REVIEWED}", re.IGNORECASE
)
_STAGING = re.compile(r"^\W*(?:please |now )?stage (?=\w)", re.IGNORECASE)
_REQUESTING = re.compile(
    r"\b(?:make|send|do|perform|issue) (?:an? |the )?http (?:get )?requests?\b|^\W*http (?:get )?request\b",
    re.IGNORECASE,
)
_VERSION_CONTROL = re.compile(
    r"\b(?:save|store|put|record|check)\b[^.?!]{1,40} (?:to|in|into|under) (?:version|source) control\b", re.IGNORECASE
)

_WRITTEN_FILE = re.compile(
    r"\b(?:save|write|store|put|dump|append)\b[^.?!]{1,60} (?:to|into|in) (?:an?|the|this|my)(?: [\w-]+){0,2} file\b"
    r"|^\W*(?:please )?(?:create|make) (?:an? |the )?(?:new |empty |text )*file\b",
    re.IGNORECASE,
)
_READ_FILE = re.compile(
    r"\bwhat (?:was|is|has been) (?:written|stored|saved) in (?:the|this|that|my)(?: [\w-]+){0,2} file\b", re.IGNORECASE
)
_FOUND_FILES = re.compile(
    r"\b(?:find|search for|look for|locate)(?: [\w*.-]+){0,4} (?:files|pdfs|images|photos|videos|spreadsheets)\b",
    re.IGNORECASE,
)
_LARGEST = re.compile(
    r"\b(?:largest|biggest)(?: \w+){0,2} (?:files?|folders?)\b|\bfiles?(?: \w+){0,3} (?:largest|biggest)\b",
    re.IGNORECASE,
)
_PAGE_SOURCE = re.compile(
    r"\b(?:html|source|contents?|text) of (?:an?|the|this|that) (?:web ?)?(?:page|site)\b", re.IGNORECASE
)
_SHELL = {
    "ls": "list the directory",
    "mkdir": "create the directory",
    "mv": "move the file",
    "cp": "copy the file",
    "rm": "delete the file",
    "cat": "read the file",
    "curl": "fetch the url",
    "wget": "fetch the url",
}
_COMMAND = re.compile(rf"^\W*({'|'.join(_SHELL)})(?=\s(?!\w+ (?:is|are|was|has)\b)\S|\W*$)")  # not `cat pictures are`

_LOGGING = r"\blog(?:ging|s)?[ -](?:(?:me|us|him|her|them) )?"
_LOGGING_IN = re.compile(_LOGGING + r"(?:in to|into|in|onto|on to)\b(?! the (?:logs?|file)\b)", re.IGNORECASE)
_LOGGING_OUT = re.compile(_LOGGING + r"(?:out|off)\b", re.IGNORECASE)

_HAVING = re.compile(
    r"\b((?:have|has|had|\w+'(?:ve|s))(?: (?:i|you|we|they|he|she|it))?) got\b(?! to\b)", re.IGNORECASE
)

IDENTIFIER = r"\b(?:[A-Za-z]+(?:_[A-Za-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+)\b"
_REFERENCES = re.compile(r"\b(?i:references|refs|calls) (?:to|of) (?=[`'\"]?" + IDENTIFIER + ")")
_REMEMBERED = re.compile(
    r"^\W*(?:please )?(?:remember|memori[sz]e|note|keep|record|make a note|take note)\b[^.?!]{0,40}?\bthat\b"
    r"(?=\W+\w+\W+\w)",
    re.IGNORECASE,
)
_REMEMBERING = re.compile(r"^\W*(?:please )?(?:remember|memori[sz]e|note down) (?:this|that|these|it)\b", re.IGNORECASE)
_KNOWN = re.compile(
    r"^\W*(?:what|whom?) (?:do|did) (?:you|i|we) (?:know|remember|recall)(?: (?:about|of|that|on))?(?=\W+\w)",
    re.IGNORECASE,
)
_FORGOTTEN = re.compile(
    r"^\W*(?:please )?forget(?: (?:about |everything|all|what|that)(?: (?:about|of|you know about))?(?=\W+\w)"
    r"|(?= (?-i:[A-Z])\w))",  # `forget Bob`
    re.IGNORECASE,
)
_WANTED_PASSAGE = re.compile(  # `search the documents for ...`; several searches at once say so behind it
    rf"{_ASKING}(?:(?:search|look|find|check)(?: in| through| up)? )?(?:the |all |my |our |these |any )*"
    r"(?:documents|docs|documentation)(?: for| about| on| that mention|:)(?=\W+\w)"
    r"(?![^?!]{0,80}\b(?:several|multiple|these|those|at once|in one go|together)\b)",
    re.IGNORECASE,
)
_WANTED_PAGE = re.compile(  # `which page covers ...`, `which chapter of the manual explains ...`
    rf"{_ASKING}(?:on )?(?:which|what|the|any) "
    r"(?:page|passage|paragraph|section|chapter|part|document|docs?|manual|guide|handbook)s?"
    r"(?: (?:of|in) [^.?!]{1,40}?)? "
    r"(?:covers?|explains?|describes?|mentions?|discuss(?:es)?|talks? about|deals? with|is about|are about)(?=\W+\w)",
    re.IGNORECASE,
)
_WANTED_RULES = re.compile(
    rf"{_ASKING}(?:which|what|the|our|any)(?: are)?(?: \w+){{0,2}} (?:rules|conventions|guidelines)\b"
    r"[^.?!]{0,40}? (?:about|on|for)\b(?=\W+\w)",
    re.IGNORECASE,
)
_WANTED_CODE = re.compile(
    rf"{_ASKING}(?:the |all |any )?(?:(?:part|place|piece|spot|line)s? (?:of|in) )?(?:the |our )?(?:source )?"
    r"(?:code|function|method|helper|routine)s? (?:that|which|where)\b",
    re.IGNORECASE,
)
_WANTED_USES = re.compile(rf"{_ASKING}(?:the |all |any )*(?:usages|uses|callers|call sites) of\b", re.IGNORECASE)


# The words of tools for a phrase, and whether they count as much as if they were said.
_WORDS: tuple[tuple[re.Pattern[str], tuple[str, ...], bool], ...] = (
    (_TODAY, ("current", "time"), False),
    (SIZE, ("size",), False),
    (_USES, ("usages", "callers", "code"), False),
    (_WANTED_USES, ("usages", "callers", "code"), True),
    (_WANTED_CODE, ("find", "code", "function"), True),
    (_REASONS, ("why",), False),
    (_OUR_REASONS, ("reason", "decision"), False),
    (ADDING_NUMBERS, ("sum",), True),
    (NAVIGATING, ("navigate", "url"), True),
    (_PART, ("section",), True),
    (_VERSION_CONTROL, ("git", "commit"), True),
    (_PULL_REQUEST, ("pull", "request"), True),
    (_STAGING, ("add",), True),
    (_REQUESTING, ("fetch", "url"), True),
    (_REMEMBERED, ("memory", "add"), True),
    (_REMEMBERING, ("memory", "add"), True),
    (_KNOWN, ("memory", "search"), True),
    (_FORGOTTEN, ("memory", "delete"), True),
    (_WANTED_PASSAGE, ("passage", "mention"), True),
    (_WANTED_PAGE, ("passage", "mention"), True),
    (_WANTED_RULES, ("convention", "rule"), False),
    (HISTORY, ("log",), False),
    (COMMITS, ("log",), True),
    (_DIFF, ("diff",), True),
    (_COMMIT, ("show", "commit"), True),
    (_WRITTEN_FILE, ("write", "file"), True),
    (_READ_FILE, ("read", "file"), True),
    (_FOUND_FILES, ("search", "files"), True),
    (_LARGEST, ("size",), True),
    (_PAGE_SOURCE, ("fetch", "url"), True),
)


# What is behind these is the subject.
_WANTED = (
    *(_WANTED_CODE, _WANTED_USES, _WANTED_PASSAGE, _WANTED_PAGE, _WANTED_RULES),
    *(_REMEMBERED, _KNOWN, _FORGOTTEN),
)


def words_for_phrases(text: str) -> dict[str, bool]:
    """The words of tools for the phrases in a text, each once and in order; True: it counts as much as if it were said.

    The time that one asks for is the current one, and a clock knows the date, too; the time there when it is noon here
    is a converted one. Who asks how large something is asks for its size; where it is used, for its usages in the code;
    for its reason, why; who adds numbers, for a sum; who opens a website, navigates to a URL; who asks for the last
    commits, for the log.
    """
    text = text[:MAX_CHARS]
    found: dict[str, bool] = {}
    if _TIME_HERE.search(text) and _TIME_THERE.search(text):
        found["convert"] = True
    elif _CLOCK.search(text):
        found["current"] = True
    for phrase, said, firm in _WORDS:
        if phrase.search(text):
            found |= {word: firm or found.get(word, False) for word in said}
    return found


def command_in_words(step: str) -> str:
    """A step that is a command of a shell as what that does."""
    return _COMMAND.sub(lambda command: _SHELL[command[1]], step)


def in_words_of_tools(text: str) -> str:
    """`references to get_user` as `usages of get_user`, as a paper has others, and `log in` as `login`.

    `What channels have we got` asks for no tool that gets something.
    """
    text = _HAVING.sub(r"\1", _REFERENCES.sub("usages of ", text))
    return _LOGGING_OUT.sub("logout", _LOGGING_IN.sub("login", text)) if "log" in text.lower() else text


def subject_of(text: str) -> str:
    """The part of a text that says about what, where a phrase before it says all of what is wanted; empty: none."""
    for phrase in _WANTED:
        if wanted := phrase.match(text[:MAX_CHARS]):
            return text[wanted.end() :]
    return ""
