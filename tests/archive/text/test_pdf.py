"""PDF: its text, or the reason why there is none."""

from __future__ import annotations

import io
import sys

import pytest
from pypdf import PdfReader, PdfWriter

from pointsman.archive.text.pdf import PdfError, PdfText, read_pdf


def made(*pages: str, title: str = "") -> bytes:
    """A PDF with a line of text on each page, written by hand."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for text in pages:
        drawn = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" if text else ""
        objects.append(f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream")
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {len(objects)} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    objects.append(f"<< /Title ({title}) >>")
    out, places = "%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    out += (
        f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n"
        f"<< /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R >>\nstartxref\n{len(out)}\n%%EOF"
    )
    return out.encode()


def locked(raw: bytes) -> bytes:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(raw)))
    writer.encrypt("secret", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def test_each_page_with_text_has_a_heading() -> None:
    assert read_pdf(made("Hello world", "", "The end", title="A study")) == PdfText(
        "A study", "## Page 1\n\nHello world\n\n## Page 3\n\nThe end\n"
    )


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"not a PDF at all", "cannot be read as PDF"),
        (made("x")[:150], "cannot be read as PDF"),
        (locked(made("x")), "protected by a password"),
        (made(""), "contains no text"),
    ],
    ids=["no PDF", "cut off", "locked", "pictures"],
)
def test_what_cannot_be_read_is_said(raw: bytes, reason: str) -> None:
    with pytest.raises(PdfError, match=reason):
        read_pdf(raw)


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)  # as Python marks what cannot be imported
    with pytest.raises(PdfError, match=r"pip install .*'pointsman\[pdf\]'"):
        read_pdf(made("x"))


def test_a_pdf_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(PdfError, match="took longer"):
        read_pdf(made("x"), read_s=0.001)
