"""Parser of the text format of protocol buffers, as far as data feeds need it, with the position of every value.

`read` follows a schema, a table of the allowed fields of a message, and raises an error for anything else::

    >>> schema = {"name": FieldKind("string"), "part": FieldKind({"size": FieldKind("int32")}, repeated=True)}
    >>> message = read('name: "a"  part { size: 1 } part { size: 2 }', schema, "an example")
    >>> [part.value.one("size").value for part in message.all("part")]
    [1, 2]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..base import FileFormatError, did_you_mean

_BLANKS = re.compile(r"(?:[ \t\r\n\f\v]|#[^\n]*)+")
_TOKEN = re.compile(
    r"""(?P<name>[A-Za-z_]\w*)
    |(?P<number>-?[0-9.][\w.]*)
    |(?P<string>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')
    |(?P<symbol>[][{}<>:,;])""",
    re.VERBOSE | re.ASCII,
)
_INTEGER = re.compile(r"(-?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv?'\"\\])|([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))|(\\)|([^\\]+)"
)
_SIMPLE_ESCAPES = dict(zip("abfnrtv?'\"\\", "\a\b\f\n\r\t\v?'\"\\"))
_BOOLS = {
    **dict.fromkeys(("true", "True", "t", "1"), True),
    **dict.fromkeys(("false", "False", "f", "0"), False),
}
_CLOSING = {"{": "}", "<": ">"}


class FieldKind(NamedTuple):
    """Type of a field: "string", "int32", "bool", or the schema of a message.

    Args:
        repeated: whether the field may be repeated.
    """

    type: Any
    repeated: bool = False


class Token(NamedTuple):
    """A token of the text; line and column are numbered from 1, columns in characters."""

    kind: str
    text: str
    line: int
    column: int


class ParsedValue(NamedTuple):
    """A value and its first token."""

    value: Any
    token: Token


@dataclass
class ProtoMessage:
    """The fields of a message."""

    end: Token
    fields: dict[str, list[ParsedValue]] = field(default_factory=dict)

    def all(self, name: str) -> list[ParsedValue]:
        """Return the values of a field in order."""
        return self.fields.get(name, [])

    def one(self, name: str, default: Any = None) -> ParsedValue:
        """Return the value of a field, or a default at the end of the message."""
        values = self.all(name)
        return values[0] if values else ParsedValue(default, self.end)


def read(text: str, schema: Mapping[str, FieldKind], source: str) -> ProtoMessage:
    """Read a message.

    Args:
        source: name of the text in errors, such as the path of its file.
    """
    return _Parser(text, source).message(schema, "the description", "")


def syntax_error(source: str, token: Token, expected: str) -> FileFormatError:
    """Return the error for an unexpected token."""
    actual = "the end of the text" if token.kind == "end" else _shown(token.text)
    return FileFormatError(
        f"{source}: line {token.line}, column {token.column}: found {actual}, expected {expected}"
    )


def quoted(text: str) -> str:
    """Return a text as a string literal for `read`."""
    characters = []
    for character in text:
        if character in '"\\':
            characters.append("\\" + character)
        elif character.isprintable():
            characters.append(character)
        else:
            characters += [f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogatepass")]
    return '"' + "".join(characters) + '"'


def _shown(text: str) -> str:
    return repr(text[:40]) + ("..." if len(text) > 40 else "")


class _Parser:
    """Recursive descent parser with one token of lookahead."""

    def __init__(self, text: str, source: str) -> None:
        self._text, self._source = text, source
        self._position, self._line, self._line_begin = 0, 1, 0
        self._token = self._next_token()

    def message(self, schema: Mapping[str, FieldKind], owner: str, closing: str) -> ProtoMessage:
        """Read fields up to a closing brace, or the end of the text for ""."""
        fields: dict[str, list[ParsedValue]] = {}
        while self._token.text != closing or self._token.kind == "string":
            name = self._token
            if name.kind != "name":
                raise self._error(f"a field of {owner}" + (f" or {closing!r}" if closing else ""))
            if name.text not in schema:
                hint = did_you_mean(name.text, schema)
                raise self._error(f"a field of {owner} ({', '.join(schema)}){hint}")
            kind, before = schema[name.text], fields.setdefault(name.text, [])
            self._advance()
            values = self._field(kind, name.text)
            if not kind.repeated and len(before) + len(values) > 1:
                raise syntax_error(self._source, name, f"{name.text} only once")
            before += values
            if self._token.kind == "symbol" and self._token.text in ",;":
                self._advance()
        return ProtoMessage(self._token, fields)

    def _field(self, kind: FieldKind, name: str) -> list[ParsedValue]:
        has_colon = self._at_symbol(":")
        if has_colon:
            self._advance()
        elif isinstance(kind.type, str):
            raise self._error(f"':' after {name}")
        if not (kind.repeated and self._at_symbol("[")):
            return [self._value(kind, name)]
        self._advance()
        values: list[ParsedValue] = []
        while not self._at_symbol("]"):
            if values:
                self._expect(",")
            values.append(self._value(kind, name))
        self._advance()
        return values

    def _value(self, kind: FieldKind, name: str) -> ParsedValue:
        token = self._token
        if not isinstance(kind.type, str):
            if not (self._at_symbol("{") or self._at_symbol("<")):
                raise self._error(f"'{{' after {name}")
            self._advance()
            message = self.message(kind.type, name, _CLOSING[token.text])
            self._advance()
            return ParsedValue(message, token)
        if kind.type == "string":
            return ParsedValue(self._string(name), token)
        value = _BOOLS.get(token.text) if kind.type == "bool" else _int32(token.text)
        if value is None or token.kind == "string":
            raise self._error(
                f"true or false for {name}" if kind.type == "bool" else f"an integer of 32 bits for {name}"
            )
        self._advance()
        return ParsedValue(value, token)

    def _string(self, name: str) -> str:
        first, parts = self._token, []
        while self._token.kind == "string":
            parts.append(self._unescaped(self._token))
            self._advance()
        if not parts:
            raise self._error(f"a string in quotes for {name}")
        try:
            return b"".join(parts).decode()
        except UnicodeDecodeError:
            raise syntax_error(self._source, first, f"UTF-8 in the string for {name}") from None

    def _unescaped(self, token: Token) -> bytes:
        pieces = []
        for match in _ESCAPE.finditer(token.text[1:-1]):
            simple, octal, hexadecimal, short, long, bad, plain = match.groups()
            code = int(octal or "0", 8) if octal else int(hexadecimal or "0", 16)
            point = int(short or long or "0", 16)
            if bad or code > 255 or point > 0x10FFFF:
                place = token._replace(
                    column=token.column + 1 + match.start(), text=token.text[1 + match.start() :]
                )
                raise syntax_error(
                    self._source, place, 'an escape such as \\n, \\", \\\\, \\101, \\x41 or \\u0041'
                )
            if octal or hexadecimal:
                pieces.append(bytes([code]))
            else:
                character = chr(point) if short or long else _SIMPLE_ESCAPES[simple] if simple else plain
                pieces.append(character.encode("utf-8", "surrogatepass"))
        return b"".join(pieces)

    # tokens

    def _at_symbol(self, symbol: str) -> bool:
        return self._token.kind == "symbol" and self._token.text == symbol

    def _expect(self, symbol: str) -> None:
        if not self._at_symbol(symbol):
            raise self._error(repr(symbol))
        self._advance()

    def _advance(self) -> None:
        self._token = self._next_token()

    def _next_token(self) -> Token:
        blanks = _BLANKS.match(self._text, self._position)
        if blanks:
            self._position = blanks.end()
            lines = blanks.group().count("\n")
            if lines:
                self._line += lines
                self._line_begin = self._text.rindex("\n", 0, self._position) + 1
        position = (self._line, self._position - self._line_begin + 1)
        if self._position == len(self._text):
            return Token("end", "", *position)
        match = _TOKEN.match(self._text, self._position)
        if match is None:
            rest = self._text[self._position :].split("\n", 1)[0]
            is_string = rest[0] in "\"'"
            expected = (
                f"a closing {rest[0]} on the same line" if is_string else "a name, number, string or brace"
            )
            raise syntax_error(
                self._source, Token("odd", rest if is_string else rest[0], *position), expected
            )
        self._position = match.end()
        return Token(str(match.lastgroup), match.group(), *position)

    def _error(self, expected: str) -> FileFormatError:
        return syntax_error(self._source, self._token, expected)


def _int32(text: str) -> int | None:
    match = _INTEGER.fullmatch(text)
    if match is None or len(text) > 40:
        return None
    sign, digits = match.groups()
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
    value = int(digits, base) * (-1 if sign else 1)
    return value if -(2**31) <= value < 2**31 else None
