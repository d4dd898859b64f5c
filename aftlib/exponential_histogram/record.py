"""Byte strings that notice damage: kind, version, length, payload, check sum."""

from __future__ import annotations

import hashlib
import struct

VERSION = 1
_MAGIC = b"AFTH"
_HEAD = struct.Struct("<4sBBQ")
_SUM_SIZE = 16


def seal(kind: int, payload: bytes) -> bytes:
    """Wrap a payload: magic `AFTH`, version, kind, length, payload, 16 bytes of BLAKE2b."""
    body = _HEAD.pack(_MAGIC, VERSION, kind, len(payload)) + payload
    return body + _checksum(body)


def unseal(kind: int, data: bytes) -> bytes:
    """Return the payload of a sealed byte string; raise ValueError if it is not as sealed."""
    data = bytes(data)
    if len(data) < _HEAD.size + _SUM_SIZE or data[:4] != _MAGIC:
        raise ValueError(f"data must come from to_bytes, got {len(data)} bytes of something else")
    _, version, found, length = _HEAD.unpack_from(data)
    if version != VERSION:
        raise ValueError(f"data must be of version {VERSION}, got {version}: rebuild from the log")
    if len(data) != _HEAD.size + length + _SUM_SIZE:
        wanted = _HEAD.size + length + _SUM_SIZE
        raise ValueError(f"data must hold {wanted} bytes, got {len(data)}: use an older copy")
    if _checksum(data[:-_SUM_SIZE]) != data[-_SUM_SIZE:]:
        raise ValueError("data is damaged, its check sum differs: use an older copy")
    if found != kind:
        raise ValueError(f"data must be of kind {kind}, got {found}: another class wrote it")
    return data[_HEAD.size : -_SUM_SIZE]


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_SUM_SIZE).digest()
