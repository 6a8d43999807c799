"""Wrong versions of right files: at random, or changed where a file's structure is."""

import gzip
import io
import json
import random
import re
import struct
import zipfile
from collections.abc import Callable
from typing import Any

# Numbers at the edges of types and of what memory holds.
EDGES = (0, 1, 2, 7, 127, 128, 255, 256, 32767, 65535, 65536, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1)
WORDS = (
    "0",
    "-1",
    "1e400",
    "NaN",
    "-Infinity",
    "9" * 30,
    "1e-320",
    '"',
    "null",
    "{",
    "[" * 40,
    "\x00",
    "\n",
    ",,,",
    "é",
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3.5, 10**6, 10**30, -(10**30), 1e308, float("nan"), float("inf")),
    *("", "a", "os:system", "builtins:eval", "../../etc/passwd", "\x1b[2J", "x" * 3000, [], [[]], {}, {"kind": "Mala"}),
)


def mutate(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """A file with one to eight mistakes; one in twenty is no version of the file at all."""
    if rng.random() < 0.05:
        return rng.randbytes(rng.choice((0, 1, 10, 100, 1000)))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        content = rng.choice(MISTAKES)(content, others, rng)
    return content


def _flip(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    if not content:
        return content
    at, changed = _place(content, rng), bytearray(content)
    changed[at] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _byte(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    if not content:
        return content
    at = _place(content, rng)
    return content[:at] + bytes([rng.choice((0, 1, 10, 127, 128, 255, rng.randrange(256)))]) + content[at + 1 :]


def _integer(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """A number of 2, 4 or 8 bytes, in either order: sizes and offsets are such."""
    size, code = rng.choice(((2, "H"), (4, "I"), (8, "Q")))
    at = _place(content, rng)
    number = struct.pack(rng.choice("<>") + code, rng.choice(EDGES) % 256**size)
    return content[:at] + number + content[at + size :]


def _word(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """A number in text becomes another, or no number."""
    numbers = list(re.finditer(rb"-?\d+(\.\d+)?", content[:100_000]))
    found = rng.choice(numbers).span() if numbers else (0, 0)
    text = rng.choice(WORDS) if rng.random() < 0.5 else str(rng.choice(EDGES) * rng.choice((1, -1)))
    return content[: found[0]] + text.encode() + content[found[1] :]


def _cut(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _remove(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    at = _place(content, rng)
    return content[:at] + content[at + rng.choice((1, 2, 4, 16, 64)) :]


def _repeat(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    at = _place(content, rng)
    return content[:at] + content[at : at + rng.choice((1, 4, 64))] * rng.choice((2, 3, 50)) + content[at:]


def _splice(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    other = rng.choice(others)
    return content[: _place(content, rng)] + other[_place(other, rng) :]


MISTAKES: tuple[Callable[[bytes, list[bytes], random.Random], bytes], ...] = (
    _flip,
    _byte,
    _integer,
    _word,
    _cut,
    _remove,
    _repeat,
    _splice,
)


def _place(content: bytes, rng: random.Random) -> int:
    """Where to change a file: half of the time near its start or its end, where headers are."""
    n = max(len(content), 1)
    if rng.random() < 0.5:
        return rng.randrange(n)
    near = min(rng.choice((8, 64, 256)), n)
    return rng.randrange(near) if rng.random() < 0.7 else n - 1 - rng.randrange(near)


# --- files within files: changed inside, and closed again with the right checksums ---


def inside_zip(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """An archive with one member changed, or its name."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    chosen = rng.choice(list(members))
    if rng.random() < 0.1:
        members[rng.choice(("../x", "/etc/x", "X.npy", "x" * 300))] = members.pop(chosen)
    else:
        members[chosen] = mutate(members[chosen], list(members.values()), rng)
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, value in members.items():
            archive.writestr(name, value)
    return written.getvalue()


def inside_gzip(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """A compressed file with its content changed."""
    return gzip.compress(mutate(gzip.decompress(content), [gzip.decompress(o) for o in others], rng), 1, mtime=0)


def json_value(value: Any, rng: random.Random) -> Any:
    """JSON in which one value, anywhere within, is another, or gone, or there under another name."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(list(value))
        if rng.random() < 0.1:
            return {
                (rng.choice(("x", "kind", name)) if n == name else n): v
                for n, v in value.items()
                if rng.random() < 0.95
            }
        return {**value, name: json_value(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.5:
        at = rng.randrange(len(value))
        return [*value[:at], json_value(value[at], rng), *value[at + 1 :]]
    return rng.choice(VALUES)


def inside_json_text(text: str, rng: random.Random) -> str:
    """The text of JSON with one value changed."""
    return json.dumps(json_value(json.loads(text), rng))
