"""Count the lines of a job."""

from __future__ import annotations

import io
import tokenize

NOT_COUNTED = ("measure", "# not counted")
SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}


def count(text: str) -> int:
    """Return the number of lines of a Python file with code, without those that only measure."""
    numbers: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SKIPPED and token.type != tokenize.ENDMARKER:
            numbers.update(range(token.start[0], token.end[0] + 1))
    lines = text.splitlines()
    return sum(not any(word in lines[number - 1] for word in NOT_COUNTED) for number in numbers)
