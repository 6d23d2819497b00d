"""The real sentence encoder: sentences that mean the same are near, and no text costs more than its bound."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from pointsman.providers.semantic import encoder as module
from pointsman.providers.semantic.encoder import DIMENSIONS, EncoderUnavailableError, SentenceEncoder, load
from tests.providers.semantic.installed import with_encoder

FOLDER = Path(module.__file__).parent


@cache
def encoder() -> SentenceEncoder:
    return load()


def test_the_vocabulary_is_the_file_that_its_description_states() -> None:
    vocabulary = (FOLDER / "vocab.txt").read_bytes()
    assert sha256(vocabulary).hexdigest() in (FOLDER / "README.md").read_text()
    entries = vocabulary.decode().split("\n")
    assert entries[101:103] == ["[CLS]", "[SEP]"]


def test_without_the_packages_it_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # as Python marks what cannot be imported
    with pytest.raises(EncoderUnavailableError, match=r"pip install .*'pointsman\[semantic\]'"):
        load()


class TestEncoder:
    pytestmark = with_encoder()

    def test_other_words_for_the_same_are_nearer_than_the_same_words_for_another_thing(self) -> None:
        asked, same, other = (
            encoder().encode(text, 64)
            for text in (
                "How much money is left in my savings?",
                "get account balance",
                "How much time is left in my race?",
            )
        )
        assert asked @ same > asked @ other

    def test_a_vector_has_length_one_or_is_nothing(self) -> None:
        for text in ("send mail", "\ud800 lone surrogate", "天気", "x" * 100_000, "é" * 1_000, "[CLS] [SEP]"):
            assert np.linalg.norm(encoder().encode(text, 64)) == pytest.approx(1, abs=1e-3)
        for text in ("", " \n", "\x00", "\u200b"):
            assert not encoder().encode(text, 64).any()

    def test_what_is_behind_the_bound_is_not_read(self) -> None:
        start = "send a message to the team " * 20
        assert (encoder().encode(start + "weather " * 100_000, 64) == encoder().encode(start, 64)).all()

    def test_one_run_of_the_model_serves_all_sentences_of_a_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sizes: list[int] = []
        session = encoder()._session

        class Counted:
            def run(self, outputs: None, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
                sizes.append(inputs["input_ids"].size)
                return session.run(outputs, inputs)  # type: ignore[no-any-return]

        monkeypatch.setattr(encoder(), "_session", Counted())
        sentences = ["Find a flight to Rome for the second week of May.", "", "Then book a hotel."]
        for times, made in ((1, 2), (400, 8)):
            assert encoder().encode_sentences(sentences * times, 64).shape == (made, DIMENSIONS)
        assert len(sizes) == 2
        assert max(sizes) <= 64

    def test_a_sentence_that_is_too_long_loses_its_stop_words_first(self) -> None:
        wordy = "I would like you to please tell me what it is that the weather will be like in Rome"
        assert (encoder().encode_sentences([wordy], 12) == encoder().encode_sentences(["weather Rome"], 12)).all()
        assert len(encoder().encode_sentences(["what is it that you would like me to do for you now"], 12)) == 1

    def test_a_sentence_is_the_same_among_others(self) -> None:
        alone = encoder().encode("send an e-mail", 64)
        _, among = encoder().encode_sentences(["Look up the address of the new customer.", "send an e-mail"], 64)
        assert among == pytest.approx(alone, abs=1e-4)

    def test_a_sentence_alone_is_as_a_text_alone(self) -> None:
        [vector] = encoder().encode_sentences(["send an e-mail"], 64)
        assert vector == pytest.approx(encoder().encode("send an e-mail", 64), abs=1e-6)
        assert encoder().encode_sentences(["", " "], 64).shape == (0, DIMENSIONS)

    def test_it_starts_no_threads_and_runs_without_a_network(self) -> None:
        program = """
import os, socket
def refuse(*_, **__): raise AssertionError("a connection")
socket.socket.connect = refuse
import onnxruntime
from pointsman.providers.semantic.encoder import load
print(len(os.listdir("/proc/self/task")))
encoder = load()
encoder.encode("send mail", 64)
print(len(os.listdir("/proc/self/task")))
"""
        run = [sys.executable, "-c", program]
        threads = subprocess.run(
            run, check=True, capture_output=True, text=True, env={**os.environ, "HOME": "/nowhere"}
        )
        before, after = threads.stdout.split()
        assert before == after
