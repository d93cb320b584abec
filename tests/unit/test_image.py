import pytest

from telorunner.values.image import ImageReference, is_tag, parse_image

DIGEST = "sha256:" + "0a" * 32
NO_DIGESTS = (
    "sha256:" + "0a" * 16,
    "sha256:" + "0A" * 32,
    "sha256:" + "0a" * 33,
    "sha512:" + "0a" * 32,
    "md5:" + "0a" * 32,
)


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag", "digest"),
    [
        ("busybox", "docker.io", "library/busybox", "latest", ""),
        ("busybox:1.36", "docker.io", "library/busybox", "1.36", ""),
        ("telorun/node:1-slim", "docker.io", "telorun/node", "1-slim", ""),
        ("docker.io/busybox", "docker.io", "library/busybox", "latest", ""),
        ("index.docker.io/library/busybox", "docker.io", "library/busybox", "latest", ""),
        ("localhost/a", "localhost", "a", "latest", ""),
        ("localhost:5000/a/b:t", "localhost:5000", "a/b", "t", ""),
        ("[::1]:5000/a", "[::1]:5000", "a", "latest", ""),
        ("registry.example/a/b_c/d-e:T.1", "registry.example", "a/b_c/d-e", "T.1", ""),
        (f"busybox@{DIGEST}", "docker.io", "library/busybox", "", DIGEST),
        (f"busybox:1@{DIGEST}", "docker.io", "library/busybox", "1", DIGEST),
        ("a@sha512:" + "0" * 128, "docker.io", "library/a", "", "sha512:" + "0" * 128),
        ("a@sha384:" + "0" * 96, "docker.io", "library/a", "", "sha384:" + "0" * 96),
        ("r.example/" + "a" * 255, "r.example", "a" * 255, "latest", ""),
        ("0a" * 32 + ":1", "docker.io", "library/" + "0a" * 32, "1", ""),
    ],
)
def test_references_are_taken_apart(
    text: str, registry: str, repository: str, tag: str, digest: str
) -> None:
    assert parse_image(text) == ImageReference(registry, repository, tag, digest)


@pytest.mark.parametrize(
    "text",
    ["", " ", "busybox ", "Busybox", "a//b", "/a", "a/", "a:", ":a", "a:b:c", "a@", "a@sha256:0",
     "a:tag!", "a:" + "t" * 129, "a" * 513, "a\0", "a\nb", "é", "-a", "a..b", "http://a/b",
     "registry.example/", "a" * 256, "r.example/" + "a/" * 127 + "aa", "0a" * 32,
     *(f"busybox@{digest}" for digest in NO_DIGESTS)],
)  # fmt: skip
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="image reference"):
        parse_image(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("telorun/node:1", "docker.io/telorun/node:1"),
    ],
)
def test_spellings_of_one_image_are_equal(one: str, other: str) -> None:
    assert parse_image(one) == parse_image(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("busybox", "busybox:1"),
        ("telorun/node", "registry.example/telorun/node"),
        (f"busybox@{DIGEST}", "busybox"),
    ],
)
def test_different_images_are_different(one: str, other: str) -> None:
    assert parse_image(one) != parse_image(other)


def test_the_name_leaves_tag_and_digest_out() -> None:
    assert parse_image("busybox:1").name == "busybox"
    assert parse_image("telorun/node:1").name == "telorun/node"
    assert parse_image("r.example:5000/a/b:1").name == "r.example:5000/a/b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("latest", True),
        ("_1.2-x", True),
        ("t" * 128, True),
        ("t" * 129, False),
        ("", False),
        ("-a", False),
        (".a", False),
        ("a b", False),
        ("a\n", False),
        ("\u0661", False),
    ],
)
def test_a_text_is_a_tag_or_not(text: str, expected: bool) -> None:
    assert is_tag(text) is expected
