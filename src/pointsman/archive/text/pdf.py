"""Converts PDF to Markdown, with a heading for each page, in a child process: a crafted PDF can take forever.

Started as `python -P -m pointsman.archive.text.pdf` it reads a PDF from stdin and writes JSON to stdout.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from pointsman.core.extras import install_command

READ_S = 120.0
MAX_PAGES = 5_000
MAX_CHARS = 20_000_000
MAX_MEMORY = 4 * 1024**3


class PdfError(ValueError):
    """The PDF cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class PdfText:
    title: str | None
    markdown: str


def read_pdf(raw: bytes, *, read_s: float = READ_S) -> PdfText:
    """Raises PdfError."""
    if find_spec("pypdf") is None:
        raise PdfError(f"PDF files need the package pypdf. Install it with: {install_command('pdf')}")
    command = (sys.executable, "-P", "-m", "pointsman.archive.text.pdf")
    try:
        done = subprocess.run(command, input=raw, capture_output=True, timeout=read_s, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise PdfError(f"reading it as PDF took longer than {read_s:.0f} seconds") from None
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise PdfError("it cannot be read as PDF (the reader crashed)") from None
    if "error" in answer:
        raise PdfError(answer["error"])
    return PdfText(answer["title"], answer["markdown"])


def _extract(raw: bytes) -> dict[str, str | None]:
    import io
    import logging

    from pypdf import PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError, PyPdfError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = PdfReader(io.BytesIO(raw))
        if reader.is_encrypted and not reader.decrypt(""):
            return {"error": "it is protected by a password"}
        pages, size = [], 0
        for number, page in enumerate(reader.pages[:MAX_PAGES], start=1):
            text = page.extract_text().strip()
            size += len(text)
            if size > MAX_CHARS:
                break
            if text:
                pages.append(f"## Page {number}\n\n{text}\n")
        title = reader.metadata.title if reader.metadata else None
    except (FileNotDecryptedError, DependencyError):
        return {"error": "it is encrypted in a way that is not supported"}
    except PyPdfError as error:
        return {"error": f"it cannot be read as PDF ({error})"[:300]}
    except Exception as error:  # pypdf raises anything on a broken file
        return {"error": f"it cannot be read as PDF ({type(error).__name__})"}
    if not pages:
        return {"error": "it contains no text, perhaps only images; run OCR on it first"}
    return {"title": title and str(title), "markdown": "\n".join(pages)}


def _main() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    except (ImportError, ValueError, OSError):
        pass  # not supported on this system: the timeout remains
    json.dump(_extract(sys.stdin.buffer.read()), sys.stdout)


if __name__ == "__main__":
    _main()
