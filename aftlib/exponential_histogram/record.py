"""What both histograms share: checked parameters, and bytes that notice damage."""

from __future__ import annotations

import hashlib
import struct
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

from aftlib.exponential_histogram.events import MAX_UNITS

VERSION = 1
_MAGIC = b"AFTH"
_FRAME = struct.Struct("<4sBBQ")
_SUM_SIZE = 16


def seal(kind: int, payload: bytes) -> bytes:
    """Wrap a payload: magic `AFTH`, version, kind, length, payload, 16 bytes of BLAKE2b."""
    body = _FRAME.pack(_MAGIC, VERSION, kind, len(payload)) + payload
    return body + _checksum(body)


def unseal(kind: int, data: bytes) -> bytes:
    """Return the payload of a sealed byte string; raise ValueError if it is not as sealed."""
    data = bytes(data)
    if len(data) < _FRAME.size + _SUM_SIZE or data[:4] != _MAGIC:
        raise ValueError(f"data must come from to_bytes, got {len(data)} bytes of something else")
    _, version, found, length = _FRAME.unpack_from(data)
    if version != VERSION:
        raise ValueError(f"data must be of version {VERSION}, got {version}: rebuild from the log")
    if len(data) != _FRAME.size + length + _SUM_SIZE:
        wanted = _FRAME.size + length + _SUM_SIZE
        raise ValueError(f"data must hold {wanted} bytes, got {len(data)}: use an older copy")
    if _checksum(data[:-_SUM_SIZE]) != data[-_SUM_SIZE:]:
        raise ValueError("data is damaged, its check sum differs: use an older copy")
    if found != kind:
        raise ValueError(f"data must be of kind {kind}, got {found}: another class wrote it")
    return data[_FRAME.size : -_SUM_SIZE]


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_SUM_SIZE).digest()


class Sketch(ABC):
    """A histogram of the last `window` of a stream, with a relative error of at most `epsilon`.

    Its bytes hold a head of fields, then the buckets, `_width` bytes each.
    """

    _kind: ClassVar[int]
    _head: ClassVar[struct.Struct]
    _width: ClassVar[int]

    def __init__(self, window: int, epsilon: float) -> None:
        if not 1 <= window < MAX_UNITS or window != int(window):
            raise ValueError(
                f"window must be a whole number from 1 to 2**61, got {window}: "
                "count events, or with timed=True units of the timestamps"
            )
        if not 0 < epsilon < 1:
            raise ValueError(f"epsilon must lie in (0, 1), got {epsilon}: try 0.01")
        self._window, self._epsilon = int(window), float(epsilon)

    @property
    def window(self) -> int:
        """Width in events, or of a time window in the timestamps' unit."""
        return self._window

    @property
    def epsilon(self) -> float:
        """Relative error ε of this histogram's own buckets."""
        return self._epsilon

    def to_bytes(self) -> bytes:
        """The state as bytes with a version and a check sum, the same for the same state."""
        fields, rows = self._state()
        return seal(self._kind, self._head.pack(*fields) + rows)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Rebuild a histogram that goes on exactly as the one that wrote the bytes.

        Raises
        ------
        ValueError
            If the bytes are damaged, cut short, of another version or another kind of histogram.
        """
        payload = unseal(cls._kind, data)
        if len(payload) < cls._head.size or (len(payload) - cls._head.size) % cls._width:
            raise ValueError(f"data holds no histogram in its {len(payload)} bytes: rebuild it")
        self, sound = cls._restored(payload[cls._head.size :], *cls._head.unpack_from(payload))
        if not sound:
            raise ValueError(
                f"data holds no histogram, its buckets contradict {self!r}: rebuild it"
            )
        return self

    @abstractmethod
    def _state(self) -> tuple[tuple[Any, ...], bytes]:
        """The head's fields, and the buckets."""

    @classmethod
    @abstractmethod
    def _restored(cls, rows: bytes, *fields: Any) -> tuple[Self, bool]:
        """A histogram of the buckets and the head's fields, and whether these fit each other."""
