"""Read expressions: text in, nodes of ``cel`` out."""

import re
from typing import NamedTuple

from telo_standin import cel
from telo_standin.errors import ManifestError

# Deeper expressions than anybody writes would only exhaust Python's own stack.
MAX_DEPTH = 60
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>\d+(?:\.\d+)?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
      | (?P<symbol>==|!=|<=|>=|&&|\|\||[-+*/%<>!?:.,()\[\]])
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'", "`": "`", "?": "?"}
_CONSTANTS = {"true": True, "false": False, "null": None}
# Loosest binding first; each level's operators join from the left.
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("==", "!=", "<", ">", "<=", ">=", "in"),
    ("+", "-"),
    ("*", "/", "%"),
)


class Token(NamedTuple):
    """A word of an expression; ``kind`` is number, name, string, symbol or end."""

    kind: str
    text: str


def parse(text: str) -> cel.Node:
    """Return the node of an expression.

    Raises:
        ManifestError: it is no expression, or uses what the stand-in does not know.
    """
    parser = _Parser(_tokens(text), text)
    node = parser.conditional()
    parser.expect("")
    return node


def _tokens(text: str) -> list[Token]:
    tokens, position = [], 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise ManifestError(f"cannot read the expression '{text}' at '{text[position:]}'")
        kind = str(match.lastgroup)
        tokens.append(Token(kind, match[kind]))
        position = match.end()
    return [*tokens, Token("end", "")]


class _Parser:
    """A parser by recursive descent over one expression's tokens."""

    def __init__(self, tokens: list[Token], text: str) -> None:
        self._tokens = tokens
        self._text = text
        self._position = 0
        self._depth = 0

    def conditional(self) -> cel.Node:
        """Read ``a ? b : c`` or anything that binds tighter."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ManifestError("the expression is nested too deeply")
        condition = self._binary(0)
        if self._accept("?"):
            then = self.conditional()
            self.expect(":")
            condition = cel.Conditional(condition, then, self.conditional())
        self._depth -= 1
        return condition

    def expect(self, text: str) -> None:
        """Take a symbol; the empty text is the end."""
        if not self._accept(text):
            found = self._tokens[self._position].text or "the end"
            wanted = text or "the end"
            raise ManifestError(f"expected {wanted}, not {found}, in the expression '{self._text}'")

    def _accept(self, *texts: str) -> str | None:
        token = self._tokens[self._position]
        if token.kind in ("number", "string") or token.text not in texts:
            return None
        self._position += 1 if token.kind != "end" else 0
        return token.text or "end"

    def _binary(self, level: int) -> cel.Node:
        if level == len(_LEVELS):
            return self._unary()
        node = self._binary(level + 1)
        while symbol := self._accept(*_LEVELS[level]):
            right = self._binary(level + 1)
            if symbol in ("&&", "||"):
                node = cel.Logic(symbol, node, right)
            else:
                node = cel.Binary(symbol, node, right)
        return node

    def _unary(self) -> cel.Node:
        symbols = []
        while symbol := self._accept("!", "-"):
            symbols.append(symbol)
        node = self._member()
        for symbol in reversed(symbols):
            node = cel.Unary(symbol, node)
        return node

    def _member(self) -> cel.Node:
        node = self._primary()
        while symbol := self._accept(".", "["):
            if symbol == "[":
                node = cel.Index(node, self.conditional())
                self.expect("]")
                continue
            name = self._name()
            if self._opens_call(name):
                self.expect(")")
                node = self._call(name, node)
            else:
                node = cel.Member(node, name)
        return node

    def _primary(self) -> cel.Node:
        token = self._tokens[self._position]
        if self._accept("("):
            node = self.conditional()
            self.expect(")")
            return node
        if self._accept("["):
            return cel.ListLiteral(tuple(self._items()))
        if token.kind == "number":
            self._position += 1
            return cel.Literal(float(token.text) if "." in token.text else int(token.text))
        if token.kind == "string":
            self._position += 1
            return cel.Literal(_unescape(token.text[1:-1]))
        name = self._name()
        if name in _CONSTANTS:
            return cel.Literal(_CONSTANTS[name])
        if self._opens_call(name):
            argument = self.conditional()
            self.expect(")")
            return self._call(name, argument)
        return cel.Name(name)

    def _items(self) -> list[cel.Node]:
        items: list[cel.Node] = []
        while not self._accept("]"):
            if items:
                self.expect(",")
            items.append(self.conditional())
        return items

    def _name(self) -> str:
        token = self._tokens[self._position]
        if token.kind != "name":
            found = token.text or "the end"
            raise ManifestError(f"expected a name, not {found}, in the expression '{self._text}'")
        self._position += 1
        return token.text

    def _opens_call(self, name: str) -> bool:
        if not self._accept("("):
            return False
        if name != "has" and name not in cel.FUNCTIONS:
            raise ManifestError(f"the stand-in kernel does not know the CEL function {name}()")
        return True

    def _call(self, name: str, argument: cel.Node) -> cel.Node:
        if name == "has":
            if not isinstance(argument, cel.Member):
                raise ManifestError(f"has() takes a member such as a.b in '{self._text}'")
            return cel.Has(argument)
        return cel.Call(name, argument)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    if escape not in _ESCAPED:
        raise ManifestError(f"the stand-in kernel does not know the escape \\{escape} in a string")
    return _ESCAPED[escape]
