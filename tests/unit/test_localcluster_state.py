"""The state folder of the local cluster: certificates, token, port, lock, kubeconfig."""

import base64
import socket
import ssl
import stat
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from telorunner.errors import ConfigError
from telorunner.localcluster import statefolder, tls

# OpenSSL's flag for RFC 5280 checks, on by default from Python 3.13 on.
STRICT = ssl.VerifyFlags.VERIFY_X509_STRICT


def handshake(server: ssl.SSLContext, ca: bytes, name: str) -> None:
    """Do a TLS handshake in memory with strict checks."""
    client = ssl.create_default_context(cadata=ca.decode())
    client.verify_flags |= STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
        if not ends:
            return
    pytest.fail("the handshake does not end")


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_the_certificates_pass_strict_checks(tmp_path: Path, name: str) -> None:
    authority = tls.load_authority(tmp_path, statefolder.write_file)
    context = tls.server_context(authority, tmp_path, statefolder.write_file)
    handshake(context, authority.pem, name)


def test_another_name_is_not_certified(tmp_path: Path) -> None:
    authority = tls.load_authority(tmp_path, statefolder.write_file)
    context = tls.server_context(authority, tmp_path, statefolder.write_file)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context, authority.pem, "elsewhere.example")


def test_the_authority_is_kept_and_the_server_renewed(tmp_path: Path) -> None:
    first = tls.load_authority(tmp_path, statefolder.write_file)
    tls.server_context(first, tmp_path, statefolder.write_file)
    certificate = (tmp_path / "server.crt").read_bytes()
    again = tls.load_authority(tmp_path, statefolder.write_file)
    assert again.pem == first.pem
    tls.server_context(again, tmp_path, statefolder.write_file)
    assert (tmp_path / "server.crt").read_bytes() != certificate


@pytest.mark.parametrize("damage", ["ca.crt", "ca.key"])
def test_a_damaged_authority_is_made_anew(tmp_path: Path, damage: str) -> None:
    first = tls.load_authority(tmp_path, statefolder.write_file)
    (tmp_path / damage).write_bytes(b"nonsense")
    assert tls.load_authority(tmp_path, statefolder.write_file).pem != first.pem


def test_a_key_of_another_authority_is_not_used(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        tls.load_authority(folder, statefolder.write_file)
    (here / "ca.key").write_bytes((there / "ca.key").read_bytes())
    authority = tls.load_authority(here, statefolder.write_file)
    assert authority.key.public_key() == authority.certificate.public_key()


def test_secrets_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    folder = statefolder.prepare(tmp_path)
    authority = tls.load_authority(folder, statefolder.write_file)
    tls.server_context(authority, folder, statefolder.write_file)
    statefolder.load_token(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name


def test_the_token_is_kept(tmp_path: Path) -> None:
    token = statefolder.load_token(tmp_path)
    assert len(token) >= 32
    assert statefolder.load_token(tmp_path) == token


def test_the_port_is_kept_while_it_is_free(tmp_path: Path) -> None:
    with statefolder.open_listener(tmp_path, 0) as listener:
        port = listener.getsockname()[1]
    with statefolder.open_listener(tmp_path, 0) as listener:
        assert listener.getsockname()[1] == port
        with statefolder.open_listener(tmp_path, 0) as other:
            assert other.getsockname()[1] != port


def test_a_port_that_was_named_must_be_free(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(OSError, match="in use"),
    ):
        statefolder.open_listener(tmp_path, taken.getsockname()[1])


def test_a_folder_is_held_by_one_cluster(tmp_path: Path) -> None:
    folder = statefolder.prepare(tmp_path)
    assert not statefolder.is_locked(tmp_path)
    with statefolder.locked(folder):
        assert statefolder.is_locked(tmp_path)
        with (
            pytest.raises(ConfigError, match="a local cluster is running for this folder"),
            statefolder.locked(folder),
        ):
            pass
    assert not statefolder.is_locked(tmp_path)


def test_a_folder_without_a_cluster_is_not_locked(tmp_path: Path) -> None:
    assert not statefolder.is_locked(tmp_path / "nowhere")


def test_a_folder_that_cannot_be_made_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "localcluster").write_text("a file in its place")
    with pytest.raises(ConfigError, match="RUNNER_DATA_DIR"):
        statefolder.prepare(tmp_path)


def test_every_cluster_has_an_address_range_of_its_own() -> None:
    with (
        statefolder.reserved_address_range() as one,
        statefolder.reserved_address_range() as two,
    ):
        assert one != two
        assert one.startswith("127.")


def test_the_kubeconfig_says_where_and_how(tmp_path: Path) -> None:
    access = statefolder.Access("https://127.0.0.1:1", "secret", b"certificate", "apps")
    assert "secret" not in repr(access)
    path = tmp_path / "kubeconfig"
    statefolder.write_kubeconfig(path, access)
    content = yaml.safe_load(path.read_text())
    cluster = content["clusters"][0]["cluster"]
    assert cluster["server"] == "https://127.0.0.1:1"
    assert base64.b64decode(cluster["certificate-authority-data"]) == b"certificate"
    assert content["users"][0]["user"] == {"token": "secret"}
    assert content["contexts"][0]["context"]["namespace"] == "apps"


def test_the_server_certificate_says_what_it_is_for(tmp_path: Path) -> None:
    authority = tls.load_authority(tmp_path, statefolder.write_file)
    tls.server_context(authority, tmp_path, statefolder.write_file)
    certificate = x509.load_pem_x509_certificate((tmp_path / "server.crt").read_bytes())
    extensions = certificate.extensions
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert ExtendedKeyUsageOID.SERVER_AUTH in usage
