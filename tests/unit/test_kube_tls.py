"""Authorities that Python 3.13 finds fault with, and servers that are not who they should be."""

import base64
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from telorunner.conf import ClusterKind
from telorunner.errors import ClusterUnavailable
from telorunner.kube import objects
from telorunner.kube.client import ClusterSettings, open_cluster


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every Python make TLS contexts as 3.13 does."""
    create = ssl.create_default_context

    def create_strictly(*arguments: Any, **more: Any) -> ssl.SSLContext:
        context = create(*arguments, **more)
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", create_strictly)


def certificate(name: str, issuer: x509.Certificate | None, key: Any, signer: Any) -> bytes:
    """Return a certificate as clusters made them once: no key usage, no key identifiers."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer:
        address = x509.IPAddress(ipaddress.ip_address(name))
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@asynccontextmanager
async def serving(folder: Path, address: str) -> AsyncIterator[ClusterSettings]:
    """Serve one pod over TLS, with a certificate for an address."""
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = certificate("an old cluster", None, ca_key, ca_key)
    issuer = x509.load_pem_x509_certificate(authority)
    (folder / "server.pem").write_bytes(
        certificate(address, issuer, key, ca_key)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": {"name": "a"}})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        server = f"https://127.0.0.1:{runner.addresses[0][1]}"
        data = base64.b64encode(authority).decode()
        cluster = {"server": server, "certificate-authority-data": data}
        config = {
            "current-context": "old",
            "clusters": [{"name": "old", "cluster": cluster}],
            "users": [{"name": "old", "user": {"token": "a-token"}}],
            "contexts": [{"name": "old", "context": {"cluster": "old", "user": "old"}}],
        }
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config))
        yield ClusterSettings(ClusterKind.KUBECONFIG, str(path), "sessions", "fake-runner")
    finally:
        await runner.cleanup()


async def test_an_authority_without_key_usage_is_taken_by_every_python(tmp_path: Path) -> None:
    async with serving(tmp_path, "127.0.0.1") as settings, open_cluster(settings) as cluster:
        assert (await objects.get(cluster, "pods", "a"))["metadata"]["name"] == "a"


async def test_a_server_of_another_name_is_refused_all_the_same(tmp_path: Path) -> None:
    async with serving(tmp_path, "127.0.0.2") as settings, open_cluster(settings) as cluster:
        with pytest.raises(ClusterUnavailable) as caught:
            await objects.get(cluster, "pods", "a")
    assert "CERTIFICATE_VERIFY_FAILED" in str(caught.value.__cause__)
