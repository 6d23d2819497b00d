"""What secrets look like in the middle of a text, for those who must not write them down or pass them on."""

from __future__ import annotations

import re

MASK = "***"

# Every alternative starts with a literal and repeats one class at a time, so the search stays linear.
SECRET = re.compile(
    r"ptm_[A-Za-z0-9_-]*"
    r"|[Bb]earer\s+[^\s\"']{8,}"
    r"|\bsk-[A-Za-z0-9_-]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}"
    r"|github_pat_[A-Za-z0-9_]{20,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}"
    r"|AKIA[0-9A-Z]{16}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*(?:-----END [A-Z ]{0,40}-----)?"
    r"|(?i:password|passwd|secret|api[_-]?key|access[_-]?token)=[^\s&;,\"']+"
    r"|://[^\s/:@]{1,256}:[^\s/@]{1,256}@"
)
