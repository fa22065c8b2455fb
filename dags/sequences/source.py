"""Write the source of the example: sentences of the Python Language Reference, which Python has for `help()`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence

from trainyard.files import storage, uris


def write(directory: str, chapters: Sequence[str]) -> str:
    """Write a JSON object for each sentence to `DIRECTORY/HASH.json`, unless it exists; return the URI of the file.

    The hash is that of the content, so that other chapters have another file.
    """
    lines = [
        json.dumps({"sentence": f"{chapter}-{number:04d}", "chapter": chapter, "text": text})
        for chapter in chapters
        for number, text in enumerate(sentences(chapter))
    ]
    content = "\n".join(lines).encode()
    file = uris.join(directory, f"{hashlib.sha256(content).hexdigest()[:16]}.json")
    if not storage.exists(file):
        storage.replace(file, content)
    return file


def sentences(chapter: str) -> list[str]:
    """Return the sentences of a chapter, without headings and code."""
    from pydoc_data.topics import topics

    paragraphs = (" ".join(text.split()) for text in re.split(r"\n\s*\n", topics[chapter]))
    parts = (part for text in paragraphs for part in re.split(r"(?<=[.?!]) (?=[A-Z\"])", text))
    return list(dict.fromkeys(part for part in parts if re.fullmatch(r"[A-Z].{30,}[.?!]", part)))
