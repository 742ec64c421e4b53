"""nginx as launch/proxy/nginx.conf sets it up, before the real service: TLS, passwords, client certificates, tokens."""
import base64
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request

import grpc
import pytest
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import model_service_pb2_grpc

from tests import exported
from tests import service_process
from tests import test_tokens

ROOT = pathlib.Path(__file__).parents[1]
CONFIG = ROOT / "launch" / "proxy" / "nginx.conf"
NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
TOKEN = "of-the-proxy-0123456789abcdef"
BODY = b'{"signature_name": "retrieve", "instances": [{"history": [], "k": 3}]}'

pytestmark = pytest.mark.skipif(not (NGINX and shutil.which("openssl")), reason="nginx and openssl are not installed")


def openssl(*words):
    return subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, text=True).stdout.strip()


def free_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]


def certificates(folder):
    """A certificate of its own for the server, one of an authority for clients, and one that nobody signed."""
    for name, subject, more in (("server", "localhost", ("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")),
                                ("ca", "authority", ()), ("stranger", "stranger", ())):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                "-subj", f"/CN={subject}", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem", *more)
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=client",
            "-keyout", folder / "client.key", "-out", folder / "client.csr")
    openssl("x509", "-req", "-in", folder / "client.csr", "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key",
            "-CAcreateserial", "-days", "2", "-out", folder / "client.pem")


@pytest.fixture(name="proxy", scope="module")
def fixture_proxy(tmp_path_factory):
    """(folder of certificates, port of HTTPS, port of gRPC over TLS) of nginx before a service that asks for a token."""
    folder = tmp_path_factory.mktemp("proxy")
    certificates(folder)
    (folder / "passwords").write_text(f"client:{openssl('passwd', '-6', 'secret')}\n")
    (folder / "token").write_text(TOKEN + "\n")
    for name, protocol in (("upstream_token", "proxy"), ("grpc_token", "grpc")):
        (folder / f"{name}.conf").write_text(f'{protocol}_set_header Authorization "Bearer {TOKEN}";\n')
    export_dir = exported.bundle_folder("int").rpartition("/")[0]
    with service_process.serving(export_dir, f"--token_file={folder}/token", "--grpc_port=0",
                                 "--trusted_proxies=127.0.0.1") as service:
        https, grpcs = free_port(), free_port()
        text = CONFIG.read_text()
        for old, new in (("/etc/clrec", folder), ("/run/clrec-nginx.pid", f"{folder}/pid"), ("/tmp/clrec-nginx", folder),
                         ("127.0.0.1:8501", f"127.0.0.1:{service.port}"),
                         ("127.0.0.1:8500", f"127.0.0.1:{test_tokens.grpc_port(service)}"),
                         ("listen 8443", f"listen 127.0.0.1:{https}"), ("listen 8444", f"listen 127.0.0.1:{grpcs}")):
            assert old in text, old
            text = text.replace(str(old), str(new))
        first = "worker_processes 1; daemon off;" + (" user root;" if os.getuid() == 0 else "")  # who made the folder
        (folder / "nginx.conf").write_text(re.sub(r"^worker_processes .*$", first, text, flags=re.MULTILINE))
        with subprocess.Popen([NGINX, "-p", folder, "-c", folder / "nginx.conf"], stderr=subprocess.PIPE) as nginx:
            try:
                wait_until_open(nginx, https)
                yield folder, https, grpcs
            finally:
                nginx.terminate()
                nginx.wait(20)


def wait_until_open(nginx, port):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        assert nginx.poll() is None, nginx.stderr.read().decode()
        with socket.socket() as connection:
            if connection.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail("nginx does not listen")


def https_status(folder, port, path, body=None, password="", ca="server"):
    """The status of a request over TLS."""
    request = urllib.request.Request(f"https://localhost:{port}{path}", body)
    if password:
        request.add_header("Authorization", "Basic " + base64.b64encode(f"client:{password}".encode()).decode())
    context = ssl.create_default_context(cafile=folder / f"{ca}.pem")
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_http_needs_tls_and_a_password(proxy):
    folder, port, _ = proxy
    predict = "/v1/models/clrec:predict"
    assert https_status(folder, port, "/readyz") == 200
    assert https_status(folder, port, predict, BODY, "secret") == 200
    assert https_status(folder, port, "/v1/models/clrec", None, "secret") == 200
    assert https_status(folder, port, predict, BODY) == https_status(folder, port, predict, BODY, "wrong") == 401
    assert https_status(folder, port, predict, b" " * 3_000_000, "secret") == 413
    assert https_status(folder, port, "/metrics", None, "secret") == 404
    assert https_status(folder, port, "/v1/models/../../metrics", None, "secret") == 404
    assert https_status(folder, port, "/v1/models/%2e%2e/%2e%2e/metrics", None, "secret") == 404
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        https_status(folder, port, "/readyz", ca="stranger")
    with socket.create_connection(("127.0.0.1", port), 20) as plain:
        plain.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert plain.recv(100).startswith(b"HTTP/1.1 400")


def grpc_code(folder, port, client=""):
    """The code of a call over TLS, with a client's certificate."""
    read = lambda name: (folder / name).read_bytes()
    own = (read(f"{client}.key"), read(f"{client}.pem")) if client else (None, None)
    credentials = grpc.ssl_channel_credentials(read("server.pem"), *own)
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "clrec"
    with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
        try:
            model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(request, timeout=20)
            return "OK"
        except grpc.RpcError as error:
            return error.code().name


def test_grpc_needs_tls_and_a_certificate_of_the_authority(proxy):
    folder, _, port = proxy
    assert grpc_code(folder, port, "client") == "OK"
    assert "OK" not in (grpc_code(folder, port), grpc_code(folder, port, "stranger"))
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, pytest.raises(grpc.RpcError):
        request = get_model_status_pb2.GetModelStatusRequest()
        model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(request, timeout=5)


def client(name, port, *flags):
    """The example client `name` as a process of its own, asked for three items."""
    server = f"{'https://' if name == 'rest' else ''}localhost:{port}"
    return test_tokens.client(name, server, "--k=3", "--timeout=20", *flags)


def rows(done) -> int:
    assert done.returncode == 0 and not done.stderr, done.stderr
    return len(done.stdout.splitlines())


def fault(done) -> str:
    """The one line that a client ends with: no rows, no trace, no HTML, no secret."""
    assert done.returncode == 1 and not done.stdout
    hidden = ("Traceback", "<html", "secret", "wrong-password", TOKEN)
    assert not any(word in done.stderr for word in hidden), done.stderr
    line, = done.stderr.splitlines()
    return line


def test_the_commands_of_the_documents_pass_the_proxy(proxy):
    folder, https, grpcs = proxy
    (folder / "user").write_text("client:secret\n")
    places = {"HOST:8443": f"localhost:{https}", "HOST:8444": f"localhost:{grpcs}", "=FILE": f"={folder}/user",
              "=CA": f"={folder}/server.pem", "=CERT": f"={folder}/client.pem", "=KEY": f"={folder}/client.key"}
    for page in (CONFIG, ROOT / "docs" / "server.md", ROOT / "SECURITY.md"):
        commands = re.findall(r"python launch/clients/predict_(\w+)\.py (--server=\S*HOST:[^`\n]*)", page.read_text())
        assert [name for name, _ in commands] == ["rest", "grpc"], page
        for name, flags in commands:
            for old, new in places.items():
                flags = flags.replace(old, new)
            assert rows(client(name, 0, *flags.split())) == 3


def test_the_rest_client_shows_its_user_to_the_proxy(proxy):
    folder, port, _ = proxy
    user, wrong, none, ca = folder / "user", folder / "wrong", folder / "none", f"--ca_file={folder}/server.pem"
    user.write_text("client:secret\n")
    wrong.write_text("client:wrong-password\n")
    none.write_text("secret\n")
    assert rows(client("rest", port, ca, f"--user_file={user}")) == 3
    assert rows(client("rest", port, ca, f"--user_file={user}", f"--token_file={folder}/token")) == 3
    asked = "401: Authorization Required: give --user_file=FILE, a file with a line user:password"
    assert asked in fault(client("rest", port, ca))
    assert asked in fault(client("rest", port, ca, f"--token_file={folder}/token"))  # the token is the proxy's affair
    assert (f"401: Authorization Required: the user or the password of --user_file={wrong} is wrong"
            in fault(client("rest", port, ca, f"--user_file={wrong}")))
    assert f"--user_file={none}: its first line is not user:password" in fault(
        client("rest", port, ca, f"--user_file={none}"))
    assert f"--user_file={folder}/absent cannot be read: No such file" in fault(
        client("rest", port, ca, f"--user_file={folder}/absent"))
    assert "give its authority's certificate by --ca_file" in fault(client("rest", port, f"--user_file={user}"))
    assert f"--ca_file={user} cannot be read" in fault(client("rest", port, f"--user_file={user}", f"--ca_file={user}"))
    # The last --server counts: no password goes over a connection that others can read.
    plain = f"--server=http://localhost:{port}"
    assert "--user_file is for TLS" in fault(client("rest", port, plain, f"--user_file={user}"))
    assert "400: The plain HTTP request was sent to HTTPS port" in fault(client("rest", port, plain))
    assert "--server=localhost: give http" in fault(client("rest", port, "--server=localhost"))


def test_the_grpc_client_shows_its_certificate_to_the_proxy(proxy):
    folder, _, port = proxy
    ca, token = f"--ca_file={folder}/server.pem", f"--token_file={folder}/token"
    own = lambda name, key: (f"--cert_file={folder}/{name}.pem", f"--key_file={folder}/{key}.key")
    assert rows(client("grpc", port, ca, *own("client", "client"))) == 3
    assert rows(client("grpc", port, ca, *own("client", "client"), token)) == 3
    assert "needs --cert_file and --key_file" in fault(client("grpc", port, ca))
    assert f"may not accept --cert_file={folder}/stranger.pem" in fault(
        client("grpc", port, ca, *own("stranger", "stranger")))
    assert "are no certificate and its unencrypted key" in fault(client("grpc", port, ca, *own("client", "stranger")))
    assert "--cert_file and --key_file belong together" in fault(client("grpc", port, ca, own("client", "client")[0]))
    assert "--cert_file is for TLS: give --ca_file" in fault(client("grpc", port, *own("client", "client")))
    assert f"--key_file={folder}/absent.key cannot be read: No such file" in fault(
        client("grpc", port, ca, *own("client", "absent")))


def test_a_proxy_that_lacks_the_services_token_is_told_of(proxy):
    folder, https, grpcs = proxy
    (folder / "user").write_text("client:secret\n")
    ca, own = f"--ca_file={folder}/server.pem", (f"--cert_file={folder}/client.pem", f"--key_file={folder}/client.key")
    try:
        (folder / "token").write_text("another-0123456789abcdef\n")
        time.sleep(1.1)  # the service looks at it once a second
        assert "the proxy must add the service's token" in fault(client("rest", https, ca, f"--user_file={folder}/user"))
        assert "must add the service's token" in fault(client("grpc", grpcs, ca, *own))
    finally:
        (folder / "token").write_text(TOKEN + "\n")
        time.sleep(1.1)
    assert rows(client("grpc", grpcs, ca, *own)) == 3
