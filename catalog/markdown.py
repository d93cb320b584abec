"""Terms as a browser shows them: Markdown made HTML on the server; pure.

Raw HTML is escaped, images are not loaded, and links lead to the web or to a mailbox only.

Source: https://spec.commonmark.org/
"""

import re
from collections.abc import MutableMapping, Sequence
from typing import Any

from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

_LINK = re.compile(r"(?:https?|mailto):", re.IGNORECASE)


class _Terms(MarkdownIt):
    """CommonMark without what could load or run anything."""

    def __init__(self) -> None:
        super().__init__("commonmark", {"html": False})
        self.disable("image")
        self.add_render_rule("link_open", _open_link)

    def validateLink(self, url: str) -> bool:  # the parser asks by this name
        """Tell whether a link may stand; one that may not stays text."""
        return _LINK.match(url) is not None


def _open_link(
    renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    options: OptionsDict,
    env: MutableMapping[str, Any],
) -> str:
    # In the admin a link must not leave a half-written form.
    tokens[index].attrSet("target", "_blank")
    tokens[index].attrSet("rel", "noopener noreferrer")
    return renderer.renderToken(tokens, index, options, env)


_terms = _Terms()


def render(text: str) -> SafeString:
    """Return the HTML of a text."""
    html: str = _terms.render(text)
    return mark_safe(html)  # noqa: S308 # the parser escapes all that it is given
