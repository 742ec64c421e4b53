"""The service with --token_file: who is let through over HTTP and gRPC, rotation, and that no token is ever shown."""
import http.server
import os
import pathlib
import re
import sys
import threading
import time

import grpc
import pytest
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import model_service_pb2_grpc

from clrec_tf.errors import UserError
from clrec_tf.server.faults import Unauthenticated
from clrec_tf.server.tokens import Tokens
from tests import exported
from tests import forked
from tests import service_process

ROOT = pathlib.Path(__file__).parents[1]
FIRST, SECOND, THIRD = ("first-0123456789abcdef", "second-0123456789abcde/+~.", "third-0123456789abcdef==")
BODY = {"signature_name": "retrieve", "instances": [{"history": [], "k": 3}]}


def bearer(token, scheme="Bearer"):
    return {"authorization": f"{scheme} {token}"}


@pytest.fixture(name="file")
def fixture_file(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"{FIRST}\n\n {SECOND} \n")
    return path


@pytest.mark.parametrize("sent, passes", [
    ([f"Bearer {FIRST}"], True), ([f"bearer  {SECOND}"], True), ([], False), ([FIRST], False),
    ([f"Basic {FIRST}"], False), ([f"Bearer {FIRST[:-1]}"], False), ([f"Bearer {FIRST}x"], False),
    ([f"Bearer {FIRST} {FIRST}"], False), (["Bearer "], False), ([f"Bearer {FIRST}", f"Bearer {FIRST}"], False),
    ([f"Bearer {FIRST.upper()}"], False), ([f"Bearer {THIRD}"], False), (["Bearer \xff\xfe" * 9], False)])
def test_one_of_the_tokens_must_be_shown_once(file, sent, passes):
    tokens = Tokens(str(file))
    if passes:
        tokens.check(sent)
    else:
        with pytest.raises(Unauthenticated) as caught:
            tokens.check(sent)
        assert FIRST not in str(caught.value) and SECOND not in str(caught.value)


@pytest.mark.parametrize("text, words", [
    ("", "it holds 0"), ("short\n", "line 1 is none"), (f"{FIRST}\nwith space 0123456789\n", "line 2 is none"),
    ("a" * 513, "line 1 is none"), ("\n".join(f"{FIRST}{n}" for n in range(101)), "it holds 101"),
    ("ä" * 20, "line 1 is none"), (f"\n{FIRST}\n\nshort\n", "line 4 is none")])
def test_a_file_without_tokens_is_refused_and_not_quoted(tmp_path, text, words):
    (tmp_path / "tokens").write_text(text)
    with pytest.raises(UserError, match=f"--token_file=.*{words}") as caught:
        Tokens(str(tmp_path / "tokens"))
    assert not any(line in str(caught.value) for line in text.split("\n") if line)


def test_a_file_that_is_absent_binary_or_open_to_all_is_refused(file, tmp_path):
    with pytest.raises(UserError, match="No such file"):
        Tokens(str(tmp_path / "none"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe0123456789abcdef")
    with pytest.raises(UserError, match="is not text"):
        Tokens(str(tmp_path / "binary"))
    file.chmod(0o666)
    with pytest.raises(UserError, match="everybody may write"):
        Tokens(str(file))


def test_a_changed_file_holds_after_a_second_and_a_broken_one_changes_nothing(file, caplog):
    now = [0.0]
    tokens = Tokens(str(file), lambda: now[0])

    def passes(token):
        try:
            tokens.check([f"Bearer {token}"])
            return True
        except Unauthenticated:
            return False

    file.write_text(f"{THIRD}\n")
    assert passes(FIRST) and not passes(THIRD)  # not looked at yet
    now[0] = 1.0
    assert passes(THIRD) and not passes(FIRST)
    for broken in ("short", ""):
        file.write_text(broken)
        now[0] += 1.0
        assert passes(THIRD)
        assert f"--token_file={file}: " in caplog.text and "the tokens before stay in force" in caplog.text
        caplog.clear()
    file.unlink()
    now[0] += 1.0
    assert passes(THIRD)
    assert (f"--token_file={file} cannot be read (No such file or directory): the tokens before stay in force"
            in caplog.text)
    file.write_text(f"{FIRST}\n")
    now[0] += 1.0
    assert passes(FIRST) and not passes(THIRD)


def grpc_port(service) -> int:
    return int(re.search(r"gRPC at 127\.0\.0\.1:(\d+)", service.log)[1])


def status(port, *metadata):
    """The code of a gRPC call."""
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "clrec"
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(request, timeout=20, metadata=metadata)
            return "OK"
        except grpc.RpcError as error:
            return error.code().name


def test_the_service_lets_nobody_through_without_a_token(file):
    export_dir = exported.bundle_folder("int").rpartition("/")[0]
    with service_process.serving(export_dir, f"--token_file={file}", "--grpc_port=0", "--page") as service:
        assert service.request("/healthz").status == service.request("/readyz").status == 200
        paths = ("/metrics", "/", "/openapi.json", "/v1/models/clrec", "/v1/models/clrec/metadata", "/none",
                 "/v1/models/clrec/items?query=a", "//healthz", "/healthz/", "/healthz/../metrics")
        for path in paths:
            answer = service.request(path)
            assert answer.status == 401 and answer.headers["www-authenticate"] == "Bearer", path
            assert "Authorization: Bearer TOKEN" in answer.error and answer.headers["x-request-id"]
        assert service.request("/metrics", headers=bearer(FIRST)).status == 200
        assert service.predict(BODY).status == service.predict(BODY, headers=bearer(THIRD)).status == 401
        assert service.predict(b"x" * 3_000_000).status in (401, 413)
        assert len(service.predict(BODY, headers=bearer(SECOND)).json["predictions"][0]["ids"]) == 3
        port = grpc_port(service)
        assert status(port) == status(port, ("authorization", f"Bearer {THIRD}")) == "UNAUTHENTICATED"
        assert status(port, *[("authorization", f"Bearer {FIRST}")] * 2) == "UNAUTHENTICATED"
        assert status(port, ("authorization", f"Bearer {FIRST}")) == "OK"
        clients(service, file)
        rotated = file.with_name("new")
        rotated.write_text(f"{THIRD}\n")
        os.replace(rotated, file)
        time.sleep(1.1)
        assert service.predict(BODY, headers=bearer(THIRD)).status == 200
        assert service.predict(BODY, headers=bearer(FIRST)).status == 401
        assert status(port, ("authorization", f"Bearer {FIRST}")) == "UNAUTHENTICATED"
        counted = service.request("/metrics", headers=bearer(THIRD)).body.decode()
        assert 'clrec_requests_total{signature="",status="401"} ' in counted
        words = pathlib.Path(f"/proc/{service.process.pid}/cmdline").read_bytes().decode()
        service.signal(service_process.SIGNALS.SIGTERM)
        assert service.exit_code() == 0
        shown = words + service.log
    assert f"--token_file={file} was read again: 1 token(s)" in shown
    assert "requests without a valid token were refused, the latest from 127.0.0.1" in shown
    assert not any(token in shown for token in (FIRST, SECOND, THIRD))


def client(name, server, *flags):
    """An example client as a process of its own."""
    words = [sys.executable, "-c", f"import runpy, sys; sys.argv[0] = 'client'; runpy.run_path("
             f"'launch/clients/predict_{name}.py', run_name='__main__')", f"--server={server}", *flags]
    return forked.run(words, capture_output=True, text=True, cwd=ROOT, timeout=60)


def clients(service, file):
    """The example clients show a token."""
    for name, server in (("rest", f"http://127.0.0.1:{service.port}"), ("grpc", f"127.0.0.1:{grpc_port(service)}")):
        without, with_token = client(name, server), client(name, server, "--k=2", f"--token_file={file}")
        assert without.returncode == 1 and "--token_file" in without.stderr, without.stderr
        assert with_token.returncode == 0 and len(with_token.stdout.splitlines()) == 2, with_token.stderr


class Redirecting(http.server.BaseHTTPRequestHandler):
    """Sends who asks for /v1/… on to /other; `seen` are (path, Authorization) of the requests."""
    seen = []

    def do_GET(self):  # pylint: disable=invalid-name
        self.seen.append((self.path, self.headers["Authorization"]))
        self.send_response(302 if self.path.startswith("/v1/") else 200)
        self.send_header("Location", "/other")
        self.end_headers()
        self.wfile.write(b"<html>a page</html>")

    def log_message(self, *_):  # pylint: disable=arguments-differ
        """Says nothing."""


def test_the_rest_client_shows_its_token_to_the_server_asked_alone(file):
    with http.server.HTTPServer(("127.0.0.1", 0), Redirecting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = client("rest", f"http://127.0.0.1:{server.server_port}", f"--token_file={file}")
        server.shutdown()
    assert Redirecting.seen == [("/v1/models/clrec/metadata", f"Bearer {FIRST}"), ("/other", None)]
    assert done.returncode == 1 and "the answer is no JSON" in done.stderr and "Traceback" not in done.stderr
