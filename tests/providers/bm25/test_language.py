"""Recognizes requests in another language, and does not take English, names, identifiers or slips for one."""

from __future__ import annotations

import pytest

from pointsman.providers.base import SearchRequest, ToolDocument
from pointsman.providers.bm25.language import MAX_WORDS, is_english_catalog, is_foreign
from pointsman.providers.bm25.provider import BM25SearchProvider

FOREIGN = [
    "prends une capture d'écran de la page",
    "lies die Datei config.json",
    "wetter in Berlin morgen",
    "envoie un message à Anna",
    "wie spät ist es in Tokio",
    "lee el archivo de configuración",
    "leggi il file di configurazione",
    "leia o arquivo config.yaml",
    "lees het bestand",
    "przeczytaj plik",
]
ENGLISH = [
    "what's the weather like in Oslo tomorrow",
    "tell me a joke",
    "order a pizza",
    "wether forcast tomorow",
    "pleese ordr a piza",
    "kubectl",
    "kubectl get pods",
    "email Grzegorz Kowalczyk",
    "call Müller in Zürich",
    "book a table at Le Bernardin",
    "who are Juan de la Cruz and Søren Kierkegaard",
    'translate "bonjour tout le monde" into English',
    "getUserById parse_http_header",
    "https://example.org/die/das/der /srv/archivo/datei.txt",
    "404 500 !",
    "読み込んで",
    "",
]

GERMAN = [
    ("read_file", "Liest den Inhalt einer Datei und gibt ihn als Text zurück."),
    ("list_directory", "Zeigt alle Dateien und Ordner in einem Verzeichnis."),
    ("send_email", "Verschickt eine E-Mail an einen Empfänger, auf Wunsch mit Anhang."),
    ("create_event", "Legt einen Termin im Kalender an."),
]


@pytest.mark.parametrize("text", FOREIGN)
def test_words_that_are_neither_english_nor_the_catalogs_are_foreign(text: str) -> None:
    assert is_foreign([text], lambda token: token in {"captur", "page", "file", "messag"})
    assert not is_foreign([text], lambda token: True)


@pytest.mark.parametrize("text", ENGLISH)
def test_english_names_identifiers_and_slips_are_not_foreign(text: str) -> None:
    assert not is_foreign([text], lambda token: False)


def test_the_beginning_of_a_long_text_decides() -> None:
    unknown = " ".join(f"zq{chr(97 + one)}{chr(97 + other)}" for one in range(26) for other in range(26))
    assert is_foreign([unknown], lambda token: False)
    begun = " ".join(
        f"{verb} {noun}" for verb in ("read", "write", "open", "close") for noun in ("file", "mail", "page")
    )
    counted = set[str]()

    def counts(token: str) -> bool:
        counted.add(token)
        return False

    is_foreign([f"{begun} {unknown}"], counts)
    assert len(counted) <= MAX_WORDS


def test_a_catalog_is_english_by_most_of_its_words() -> None:
    assert is_english_catalog(["read", "file", "directory", "regex", "id"])
    assert not is_english_catalog(["liest", "inhalt", "datei", "read", "file"])
    assert is_english_catalog([])


@pytest.mark.parametrize("ask", ["bestelle eine Pizza", "wie wird das Wetter morgen in Berlin", "buche einen Flug"])
async def test_a_german_request_is_not_foreign_to_a_german_catalog(ask: str) -> None:
    german = [ToolDocument(f"s:{name}", name, "s", about, {}) for name, about in GERMAN]
    english = [ToolDocument("s:forecast", "forecast", "s", "The weather of tomorrow, such as in Berlin", {})]
    provider = BM25SearchProvider(embeddings=False)
    assert not (await provider.search(SearchRequest((ask,), None, german, 5))).foreign
    assert (await provider.search(SearchRequest((ask,), None, english, 5))).foreign
