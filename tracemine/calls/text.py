"""Read the JSON texts in which a trace keeps what operators were called with: nothing else reads them.

A text that was not recorded, or is damaged, is None to all who ask.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from tracemine.ops.infer.tensor import Sizes

# Of one input: sizes, or strides, of a tensor; of a list those of each member; () for a number, None, a 0-dim tensor.
Extents = tuple[int | Sizes, ...]

_EXTENTS = msgspec.json.Decoder(tuple[Extents, ...])
_WORDS = msgspec.json.Decoder(tuple[str, ...])
_Read = TypeVar("_Read")


class Texts:
    """Texts, each decoded once however often it is asked for."""

    def __init__(self) -> None:
        self.damaged = 0  # texts that could not be read
        self._extents: dict[str, tuple[Extents, ...] | None] = {}
        self._words: dict[str, tuple[str, ...] | None] = {}

    def extents(self, text: str | None) -> tuple[Extents, ...] | None:
        """Return the shapes, or the strides, of a call's inputs.

        >>> Texts().extents("[[2,3],[[4],[5]],[]]"), Texts().extents("[[2"), Texts().extents(None)
        (((2, 3), ((4,), (5,)), ()), None, None)
        """
        return self._read(text, self._extents, _EXTENTS)

    def words(self, text: str | None) -> tuple[str, ...] | None:
        """Return the types, or the values as text, of a call's inputs.

        >>> Texts().words('["float","Scalar"]'), Texts().words("[1]")
        (('float', 'Scalar'), None)
        """
        return self._read(text, self._words, _WORDS)

    def _read(
        self, text: str | None, known: dict[str, _Read | None], decoder: msgspec.json.Decoder[_Read]
    ) -> _Read | None:
        if text is None or text in known:
            return None if text is None else known[text]
        try:
            content = decoder.decode(text)
        except (msgspec.DecodeError, RecursionError):
            content, self.damaged = None, self.damaged + 1
        known[text] = content
        return content
