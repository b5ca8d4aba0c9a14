"""One token per tag, one per printable character: exact in both directions."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence

from tool_gym.protocol import ENVIRONMENT_TAGS, tags

PAD, BOS, END = 0, 1, 2
_CONTROL = ("<|pad|>", "<|bos|>", "<|end|>")


class Tokenizer:
    """Text to ids and back.

    Ids: three control tokens (padding, begin of the episode, end of a turn), then the tags of the
    grammar, then the characters of ``string.printable``. A tag in a text is always its one token, so
    ``decode(encode(s)) == s`` for every printable string; the other direction holds for every list of
    ids that does not spell a tag out of characters.

    Args:
        tool_names: the environment's tools, in order; each brings an opening and a closing tag.
    """

    def __init__(self, tool_names: Sequence[str]) -> None:
        self.tool_names = tuple(tool_names)
        self.pieces: tuple[str, ...] = _CONTROL + tags(self.tool_names) + tuple(string.printable)
        self._ids = {piece: number for number, piece in enumerate(self.pieces) if number >= len(_CONTROL)}
        names = sorted(tags(self.tool_names), key=len, reverse=True)
        self._scanner = re.compile("|".join(map(re.escape, names)) + "|.", re.DOTALL)
        # What only the environment may write is masked from sampling; so are padding and the begin token.
        self.forbidden_ids: tuple[int, ...] = (PAD, BOS, *(self._ids[tag] for tag in ENVIRONMENT_TAGS))

    def __len__(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> list[int]:
        """Ids of a text. Raises ValueError, naming the character, for one that is not printable."""
        try:
            return [self._ids[piece] for piece in self._scanner.findall(text)]
        except KeyError as error:
            raise ValueError(f"not a character of string.printable: {error.args[0]!r}") from None

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids; control tokens are left out."""
        pieces = self.pieces
        return "".join([pieces[number] for number in ids if number > END])
