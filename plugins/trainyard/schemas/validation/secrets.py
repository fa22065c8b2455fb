"""Find secrets among options: specs and reports are stored in clear text, and command lines are public.

A name is split into words. It names a secret where it has the words of one, such as "password" or "access key", and no
later word that makes it the name of something about a secret, such as "password file". Some words, such as "session
key", are also used for columns: under them an identifier is no secret. Hadoop's keys of Azure end with the name of an
account, so they are matched by their prefix.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

REDACTED = "redacted"
"""The type of a validation error whose input must not be repeated."""
EXPOSED = "what is written there can be read by others"
IN_CREDENTIAL_STORE = (
    "Put it into a Hadoop credential store, and name that in conf as "
    "spark.hadoop.hadoop.security.credential.provider.path"
)
IN_CODE = (
    "Let your code read it on the nodes: from a Hadoop credential store, an environment variable, or a file that only "
    "you can read"
)

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_AZURE = re.compile(r"(^|\.)fs\.azure\.(account\.key|account\.oauth2\.client\.secret|sas)(\.|$)(?!token\.provider\.)")
_SECRET = re.compile(
    r"\b((pg|mysql|db|user)?passwords?|passwd|passphrase|pwd|dbpass|authorization|secret|apikey|accesskey|privatekey"
    r"|secretkey|(?<!application )credentials?"
    r"|(api|access|private|secret|account|session|encryption|signing) key|pass$|pw$)\b"
)
_AMBIGUOUS = re.compile(r"\b((account|session|encryption|signing) key|credentials?)$")
_IDENTIFIER = re.compile(r"(?=.{1,40}$)([A-Z]?[a-z]+|[A-Z]+)((?<=[a-z])[A-Z][a-z]+|_[a-z]+|_[A-Z]+|_\d{1,3})*")
"""A name in snake_case, camelCase or capitals. A generated key is longer, or has digits or capitals in between."""
_ABOUT = frozenset(
    [
        "algorithm",
        "alias",
        "bit",
        "class",
        "column",
        "count",
        "enabled",
        "endpoint",
        "env",
        "fallback",
        "file",
        "format",
        "id",
        "interval",
        "length",
        "lifetime",
        "name",
        "path",
        "policy",
        "provider",
        "renewal",
        "size",
        "type",
        "url",
    ]
)
"""Words that, after the words of a secret, name something about it."""
_SPECIAL_TOKENS = frozenset(["bos", "cls", "end", "eos", "mask", "pad", "sep", "special", "start", "stop", "unk"])
"""Words before "token" in the names of a tokenizer's tokens."""
_HARMLESS = frozenset({"", "true", "false"})
# A number before / or , is a port. Lengths are limited, so that a long text takes no quadratic time.
_USER_OF_URL = re.compile(r"://[^/\s:@\[]{0,255}:(?!\d{1,9}(?:[/,?#]|$))[^\s@]{1,1023}@")
_USER_OF_ORACLE = re.compile(r"\b(jdbc:oracle:)\w{1,255}:[^/@\s]{1,255}/[^@\s]{1,255}@")
_BEARER = re.compile(r"\bBearer\s+[\w.~+/=-]{8,}")
_BASIC = re.compile(r"\bBasic\s+([A-Za-z0-9+/]+={0,2})")
_TEMPLATE = re.compile(r"\{[{%](?:(?!\{[{%]).)*?[%}]\}", re.DOTALL)
_STORED = re.compile(r"\b(?:conn\.(?:\w+|get\([^()]{0,255}\))|var\.(?:value|json))\.(?:get\(\s*['\"])?(?P<name>[\w.]+)")
"""What a template reads of a connection or a Variable."""
_WHOLE = ("get_uri", "extra", "extra_dejson")
"""What has all secrets of a connection."""
_TOKEN = re.compile(
    r"\b(?:gh[opsu]_\w{36}|github_pat_\w{22}|glpat-[\w-]{20}|hf_[A-Za-z]{30}|AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}"
    r"|xox[abp]-\d{10}|eyJ[\w-]{10,1023}\.eyJ[\w-]{5,1023}\.)[\w-]*"
)
"""Tokens that are known by their form: of GitHub, GitLab, Hugging Face, AWS, Slack, and JSON web tokens."""
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_PARAMETER = re.compile(r"(?:^|[?&;,\s])([\w.-]+)\s*=\s*[^\s&;,]")
_SIGNATURES = frozenset({"sig", "x-amz-signature", "x-goog-signature"})
_IN_TEXT: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), "***"),
    (_USER_OF_ORACLE, r"\1***@"),
    (_USER_OF_URL, "://***@"),
    (_BEARER, "Bearer ***"),
    (_TOKEN, "***"),
)
"""Secrets inside a text, and what they are replaced by."""
_NAMED_IN_TEXT = re.compile(
    r"""(?<![\w.-])(?P<name>[\w.-]+)(?P<between>\s*=\s*['"]?|['"]\s*:\s*['"])(?P<value>[^\s&;,'"=)][^\s&;,'")]*)"""
)
_ASSIGNMENT = re.compile(r"(-{0,2}[\w.-]+)=(.*)", re.DOTALL)


def find_secrets(options: Mapping[str, Any]) -> list[str]:
    """Return the names of options that hold a secret, by their name or, as in a URL, by their value.

    An option inside another one is named by its path, for example "db.password".
    """
    return list(_find("", options))


def find_secret_arguments(arguments: Sequence[Any]) -> list[str]:
    """Return the names of a command line's options that hold a secret, for example "--password"."""
    found, option = [], ""
    for number, argument in enumerate(arguments, start=1):
        match = _ASSIGNMENT.fullmatch(str(argument))
        name, value = match.groups() if match else (option, str(argument))
        if not value.startswith("--") and _is_secret(name, value):
            found.append(name or f"argument {number}")
        option = value if not match and value.startswith("-") else ""
    return found


def redact(value: Any) -> Any:
    """Return `value` with each secret in it replaced."""
    if isinstance(value, Mapping):
        return {key: "***" if _is_secret(str(key), item) else redact(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(redact, value)) if isinstance(value, tuple) else [*map(redact, value)]
    return "***" if _is_secret("", value) else value


def mask(text: str) -> str:
    """Return a text, such as that of an exception, with `***` in place of each secret of a known form in it."""
    for pattern, replacement in _IN_TEXT:
        text = pattern.sub(replacement, text)
    text = _BASIC.sub(lambda match: "Basic ***" if ":" in _decode(match[1]) else match[0], text)
    return _NAMED_IN_TEXT.sub(_mask_named, text)


def _mask_named(match: re.Match[str]) -> str:
    is_secret = _names_parameter(match["name"]) and match["value"].lower() not in _HARMLESS
    return f"{match['name']}{match['between']}***" if is_secret else match[0]


def _names_parameter(name: str) -> bool:
    return name.lower() in _SIGNATURES or _names_secret(name)


def _find(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _find(f"{name}.{key}" if name else str(key), item)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _find(f"{name}.{number}", item)
    elif _is_secret(name, value):
        yield name


def _is_secret(name: str, value: Any) -> bool:
    if not isinstance(value, str) or value.lower() in _HARMLESS:
        return False
    is_identifier = _is_ambiguous(name) and _IDENTIFIER.fullmatch(value)
    return (_names_secret(name) and not is_identifier) or _holds_secret(value)


def _names_secret(name: str) -> bool:
    if _AZURE.search(name):
        return True
    words = _split(name)
    if words[-1:] == ["token"]:
        return not _SPECIAL_TOKENS.intersection(words[-2:-1])
    match = _SECRET.search(" ".join(words))
    return match is not None and _ABOUT.isdisjoint(" ".join(words)[match.end() :].split())


def _is_ambiguous(name: str) -> bool:
    """Return whether a name can also be that of a column; not so a setting of Hadoop, such as fs.s3a.encryption.key."""
    return _AMBIGUOUS.search(" ".join(_split(name.rpartition(".")[2]))) is not None


def _split(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _holds_secret(value: str) -> bool:
    if any(pattern.search(value) for pattern in (_USER_OF_URL, _USER_OF_ORACLE, _PRIVATE_KEY, _BEARER, _TOKEN)):
        return True
    if any(":" in _decode(token) for token in _BASIC.findall(value)):
        return True
    read = [stored["name"] for template in _TEMPLATE.findall(value) for stored in _STORED.finditer(template)]
    if any(name in _WHOLE or _names_secret(name) for name in read):
        return True
    return any(map(_names_parameter, _PARAMETER.findall(value)))


def _decode(token: str) -> str:
    """Return the text in base64, "" if it is none."""
    with suppress(ValueError):
        return base64.b64decode(token, validate=True).decode()
    return ""
