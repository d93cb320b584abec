"""Terms as HTML: what is written in Markdown shows, and nothing in it loads or runs."""

import logging

import pytest

from catalog.markdown import render


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("# Title", "<h1>Title</h1>\n"),
        ("a **b** *c* `d`", "<p>a <strong>b</strong> <em>c</em> <code>d</code></p>\n"),
        ("- a\n- b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n"),
        ("> a", "<blockquote>\n<p>a</p>\n</blockquote>\n"),
        ("a\r\n\r\nb", "<p>a</p>\n<p>b</p>\n"),
        ("", ""),
    ],
)
def test_markdown_is_shown(text: str, html: str) -> None:
    assert render(text) == html


@pytest.mark.parametrize(
    "link", ["https://a.example/b?c=d", "http://a.example", "mailto:a@b.example"]
)
def test_a_link_to_the_web_or_a_mailbox_opens_beside_the_form(link: str) -> None:
    html = f'<a href="{link}" target="_blank" rel="noopener noreferrer">'
    assert html in render(f"[a]({link})")
    assert html in render(f"<{link}>")
    assert html in render(f"[a]\n\n[a]: {link}")


@pytest.mark.parametrize(
    "link",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "java&#115;cript:alert(1)",
        "&#x6A;avascript:alert(1)",
        "vbscript:x",
        "data:text/html,x",
        "data:image/png;base64,AAAA",
        "file:///etc/passwd",
        "ftp://a.example",
        "//a.example",
        "/admin/",
        "?x",
        "#x",
        "xhttp://a.example",
    ],
)
def test_another_link_stays_text(link: str) -> None:
    for text in (f"[a]({link})", f"<{link}>", f"[a]\n\n[a]: {link}", f"![a]({link})"):
        html = render(text)
        assert "<a" not in html
        assert "<img" not in html


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "a <b onclick=alert(1)>c</b>",
        '<img src=x onerror="alert(1)">',
        "<!-- a -->",
        "<style>*{}</style>",
        "```html\n<script>\n```",
        "`<script>`",
        '[a](https://b.example "x" onclick="alert(1)")',
        '[a](https://b.example "x\\" onclick=\\"alert(1)")',
        '```"><script>alert(1)</script>\n```',
    ],
)
def test_html_is_shown_as_text(text: str) -> None:
    html = render(text)
    for part in ("<script", "<b ", "<img", "<style", "<!--", '" onclick="'):
        assert part not in html


def test_an_image_is_not_loaded() -> None:
    assert "<img" not in render("![a](https://a.example/b.png)")


def test_deep_nesting_ends() -> None:
    assert len(render(">" * 5000 + "a")) < 100_000
    assert len(render("[" * 5000 + "a")) < 100_000


def test_a_text_is_not_spelled_out_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    render("# a\n" * 100)
    assert not caplog.records
