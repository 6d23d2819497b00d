"""`python -m bench.archive.typos`: how often a misspelt word is corrected to the intended one.

The vocabulary comes from the Python files and documentation installed in this environment, with the number of files
that contain each word. Typos are of the four usual kinds, at any position, the first letter included.
"""

from __future__ import annotations

import random
import sysconfig
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pointsman.archive.text.vocabulary import Vocabulary, edits_tolerated
from pointsman.archive.text.words import words_of

WORDS = 4_000
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def main() -> None:
    counts = _installed_words()
    vocabulary = Vocabulary()
    vocabulary.set(counts.items())
    print(f"{len(vocabulary):,} words")
    chance = random.Random(5)
    words = sorted(word for word in counts if word.isascii() and len(word) >= 5)
    print(f"  {'':22}{'words':>7}{'top 1':>8}{'top 5':>8}{'ms CPU':>8}")
    _measure("one slip", vocabulary, counts, [(word, _slip(word, chance)) for word in chance.choices(words, k=WORDS)])
    long = [word for word in words if len(word) >= 9]
    twice = [(word, _slip(_slip(word, chance), chance)) for word in chance.choices(long, k=WORDS // 4)]
    _measure("two slips, 9+ letters", vocabulary, counts, twice)


def _measure(name: str, vocabulary: Vocabulary, counts: Counter[str], pairs: list[tuple[str, str]]) -> None:
    """Drop typos that form another word, and those too short to be corrected."""
    asked = [(meant, written) for meant, written in pairs if written not in counts and edits_tolerated(written)]
    first = among = 0
    began = time.process_time()
    for meant, written in asked:
        guesses = [guess.word for guess in vocabulary.nearest(written)]
        first += guesses[:1] == [meant]
        among += meant in guesses
    each = (time.process_time() - began) * 1000 / len(asked)
    print(f"  {name:22}{len(asked):7,}{first / len(asked):8.3f}{among / len(asked):8.3f}{each:8.2f}", flush=True)


def _installed_words() -> Counter[str]:
    counts: Counter[str] = Counter()
    for pattern in ("*.py", "*.md", "*.txt"):
        for file in sorted(Path(sysconfig.get_path("purelib")).rglob(pattern)):
            if file.is_file() and file.stat().st_size < 1_000_000:
                counts.update(words_of(file.read_text("utf-8", "replace")))
    return counts


def _slip(word: str, chance: random.Random) -> str:
    """A deletion, an insertion, a substitution or a transposition."""
    at, letter = chance.randrange(len(word)), chance.choice(LETTERS)
    kinds: tuple[Callable[[], str], ...] = (
        lambda: word[:at] + word[at + 1 :],
        lambda: word[:at] + letter + word[at:],
        lambda: word[:at] + letter + word[at + 1 :],
        lambda: word[:at] + word[at : at + 2][::-1] + word[at + 2 :],
    )
    return chance.choice(kinds)()


if __name__ == "__main__":
    main()
