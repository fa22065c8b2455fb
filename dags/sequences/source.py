"""Write the source of the example: sentences of the Python Language Reference, which Python has for `help()`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from trainyard import storage


def write(file: str, chapters: Sequence[str]) -> str:
    """Write a JSON object for each sentence to the URI `file`, unless it exists; return the URI."""
    if not storage.exists(file):
        lines = [
            json.dumps({"sentence": f"{chapter}-{number:04d}", "chapter": chapter, "text": text})
            for chapter in chapters
            for number, text in enumerate(sentences(chapter))
        ]
        storage.replace(file, "\n".join(lines).encode())
    return file


def sentences(chapter: str) -> list[str]:
    """Return the sentences of a chapter, without headings and code."""
    from pydoc_data.topics import topics

    paragraphs = (" ".join(text.split()) for text in re.split(r"\n\s*\n", topics[chapter]))
    parts = (part for text in paragraphs for part in re.split(r"(?<=[.?!]) (?=[A-Z\"])", text))
    return list(dict.fromkeys(part for part in parts if re.fullmatch(r"[A-Z].{30,}[.?!]", part)))
