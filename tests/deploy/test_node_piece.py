"""The DaemonSet's scripts: what they leave on the node, and what they set as its condition."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import shutil
import signal
import ssl
import subprocess
import sys
import threading

import pytest
from pieces import ASKED, DEPLOY, REPORT, ROOT, script, validator
from waiting import wait_for

FOLDER = DEPLOY / "kubernetes"
NOW = "2026-01-02T03:04:05Z"


@pytest.fixture
def node(place):
    """The pod of one node: node(CODE=1) checks once; the folders are features and textfiles."""
    for name in ("etc", "features", "textfiles"):
        (place.folder / name).mkdir()
    for path in (DEPLOY / "check.sh", FOLDER / "node.sh", FOLDER / "condition.py"):
        shutil.copy(path, place.folder / "etc")
    place.record()
    script(place.bin / "set-condition", '#!/bin/sh\nprintf "%s\\n" "$2" "$4" >>"$THIS_TEST/condition"\n')
    base = {
        "NODE_EVERY": 0,
        "NODE_FEATURES": place.folder / "features",
        "NODE_TEXTFILES": place.folder / "textfiles",
        "NODE_NAME": "gpu7",
        "NODE_PYTHON": "set-condition",
        "TMPDIR": place.folder,
        "CHECK_CONFIG": "",
    }
    place.script = place.folder / "etc" / "node.sh"
    place.base = base
    return lambda shell="sh", **changes: place.run(shell, place.script, **{**base, **changes})


def left(place):
    return sorted(path.name for name in ("features", "textfiles") for path in (place.folder / name).iterdir())


def conditions(place):
    path = place.folder / "condition"
    found = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return found


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_verdict_leaves_labels_metrics_and_a_condition(node, place, code, shell):
    done = node(shell, CODE=code, CHECK_ARGS="--depth static 'a b'")
    assert done.returncode == code
    assert left(place) == ["fi-doctor", "fi-doctor.prom"]
    assert conditions(place) == ["gpu7", str(code)]
    words = place.words()
    assert words[words.index("--depth") :] == [
        *("--depth", "static", "a b"),
        *("--format", f"nfd:{place.folder}/features/fi-doctor"),
        *("--format", f"prometheus:{place.folder}/textfiles/fi-doctor.prom"),
    ]
    assert not list(place.folder.glob("tmp.*"))


def test_a_real_check_leaves_labels_and_metrics_of_this_answer(node, place):
    place.put_doctor(ROOT)
    assert node(CHECK_ARGS=ASKED[1]).returncode == 1
    assert "\nfi-doctor.io/gate=fails\n" in (place.folder / "features" / "fi-doctor").read_text()
    assert "\nfi_doctor_gate_exit_code 1\n" in (place.folder / "textfiles" / "fi-doctor.prom").read_text()
    assert conditions(place) == ["gpu7", "1"]


@pytest.mark.parametrize("how", [{"CODE": 2}, {"CODE": 4}, {"CODE": 3, "SILENT": 1}, {"CODE": 0, "SILENT": 1}])
def test_without_a_verdict_nothing_of_an_earlier_one_stays(node, place, how):
    node(CODE=0)
    conditions(place)
    assert node(**how).returncode in (2, 3, 4)
    assert left(place) == []
    assert conditions(place)[0] == "gpu7"


def test_a_check_that_hangs_is_ended_and_is_no_verdict(node, place):
    node(CODE=0)
    conditions(place)
    script(place.bin / "fi-doctor", "#!/bin/sh\nexec sleep 600\n")
    assert node(NODE_TIMEOUT="0.5").returncode == 124
    assert left(place) == []
    assert conditions(place) == ["gpu7", "124"]
    assert wait_for(lambda: not place.processes("sleep 600"), seconds=5)


def test_it_checks_over_and_over_and_takes_its_files_along_when_it_is_ended(node, place):
    child = subprocess.Popen(
        ["sh", place.script],
        env=place.environ(**{**place.base, "NODE_EVERY": "0.2", "CODE": 0}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    condition = place.folder / "condition"
    assert wait_for(lambda: condition.exists() and len(condition.read_text().split()) >= 4)
    assert left(place) == ["fi-doctor", "fi-doctor.prom"]
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=10) == 143
    assert left(place) == []
    assert wait_for(lambda: not place.processes(), seconds=5)


@pytest.mark.parametrize("every", ["soon", "-1", " "])
def test_without_a_pause_between_checks_there_is_one_and_it_leaves_nothing(node, place, every):
    done = node(CODE=0, NODE_EVERY=every)
    assert (done.returncode, left(place), conditions(place)) == (2, [], ["gpu7", "0"])
    assert "sleep" in done.stderr


@pytest.mark.parametrize("name", ["it's", "a b", '"', "$(touch run)", "back\\slash", "''", "*"])
def test_the_folders_may_have_any_name(node, place, name):
    folder = place.folder / name
    folder.mkdir()
    assert node(CODE=0, NODE_FEATURES=folder, NODE_TEXTFILES=folder).returncode == 0
    assert sorted(path.name for path in folder.iterdir()) == ["fi-doctor", "fi-doctor.prom"]


def test_the_last_report_is_kept_under_the_name_of_the_node(node, place):
    """For `fi-doctor fleet`; of a check without a verdict none is left."""
    folder = place.folder / "reports"
    assert node(CODE=1, NODE_REPORTS=folder).returncode == 1
    assert [path.name for path in folder.iterdir()] == ["gpu7.json"]
    assert json.loads((folder / "gpu7.json").read_text()) == json.loads(REPORT)
    assert node(CODE=2, NODE_REPORTS=folder).returncode == 2
    assert list(folder.iterdir()) == []


def test_what_is_not_wanted_is_not_written(node, place):
    assert node(CODE=0, NODE_FEATURES="", NODE_TEXTFILES="", NODE_NAME="").returncode == 0
    assert (left(place), conditions(place)) == ([], [])
    assert "--format nfd" not in " ".join(place.words())


def test_a_condition_that_cannot_be_set_is_told_and_changes_no_code(node, place):
    done = node(CODE=1, NODE_PYTHON="false")
    assert done.returncode == 1
    assert done.stderr.endswith("warning: the condition of gpu7 was not set\n")


@functools.cache
def condition_script():
    spec = importlib.util.spec_from_file_location("condition", FOLDER / "condition.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("code", "status"), [("0", "True"), ("1", "False"), ("3", "Unknown"), ("2", "Unknown"), ("143", "Unknown")]
)
def test_the_condition_says_what_the_gate_says(code, status):
    found = condition_script().condition({"status": {}}, json.loads(REPORT), code, NOW)
    assert found["status"] == status
    assert found["lastTransitionTime"] == NOW
    assert ("it is so" in found["message"]) == (code in "013")
    validator("io.k8s.api.core.v1.NodeCondition").validate(found)


def test_without_a_report_nothing_is_known():
    found = condition_script().condition({"status": {}}, None, "0", NOW)
    assert (found["status"], found["reason"]) == ("Unknown", "NoVerdict")


@pytest.mark.parametrize(("before", "moved"), [("True", False), ("False", True)])
def test_the_time_of_the_last_change_stays_while_nothing_changes(before, moved):
    old = {"type": "FlashInferReady", "status": before, "lastTransitionTime": "2025-01-01T00:00:00Z"}
    node = {"status": {"conditions": [{"type": "Ready", "status": "True"}, old]}}
    found = condition_script().condition(node, json.loads(REPORT), "0", NOW)
    assert (found["lastTransitionTime"] == NOW) == moved
    assert found["lastHeartbeatTime"] == NOW


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "7", "null", "[" * 100_000),
        *('{"gate": 1, "created": "x"}', '{"gate": {}, "created": "x"}', '{"gate": {"reason": "x"}}'),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_report_is_none(tmp_path, text):
    path = tmp_path / "report.json"
    path.write_text(text)
    assert condition_script().read_report(path) is None


@pytest.mark.parametrize("conditions", [None, [{}], [{"type": "FlashInferReady", "status": "True"}]], ids=str)
def test_a_node_may_lack_what_others_have(conditions):
    found = condition_script().condition({"status": {"conditions": conditions}}, json.loads(REPORT), "0", NOW)
    assert (found["status"], found["lastTransitionTime"]) == ("True", NOW)


@pytest.mark.parametrize("words", [(), ("gpu7",), ("gpu7", "report.json", "0", "1")], ids=len)
def test_other_words_are_told_in_a_line(words):
    done = subprocess.run([sys.executable, "-I", FOLDER / "condition.py", *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "condition.py NODE REPORT CODE" in done.stderr


def test_the_api_server_is_asked_as_the_service_account(tmp_path):
    key, ca = tmp_path / "key", tmp_path / "ca.crt"
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    of = ["-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", ca]
    subprocess.run(["openssl", *words, *of], check=True, capture_output=True)
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "report.json").write_text(REPORT)
    asked = []

    class Api(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(
                (
                    self.command,
                    self.path,
                    dict(self.headers),
                    self.rfile.read(int(self.headers.get("Content-Length", 0))),
                )
            )
            status = 403 if self.headers["Authorization"] != "Bearer secret" else 200
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps({"status": {"conditions": []}}).encode())

        do_PATCH = do_GET  # noqa: N815 - the name that the server looks for

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Api)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ca, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def run(**changes):
        place = {
            "SERVICE_ACCOUNT": str(tmp_path),
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "https_proxy": "http://192.0.2.1",
        }
        environ = {**place, "KUBERNETES_SERVICE_PORT": str(server.server_port), **changes}
        argv = [sys.executable, "-I", FOLDER / "condition.py", "gpu7", tmp_path / "report.json", "0"]
        return subprocess.run(argv, env=environ, capture_output=True, text=True)

    try:
        done = run()
        assert (done.returncode, done.stderr) == (0, "")
        assert [one[:2] for one in asked] == [
            ("GET", "/api/v1/nodes/gpu7/status"),
            ("PATCH", "/api/v1/nodes/gpu7/status"),
        ]
        assert asked[1][2]["Content-Type"] == "application/strategic-merge-patch+json"
        [sent] = json.loads(asked[1][3])["status"]["conditions"]
        assert (sent["type"], sent["status"]) == ("FlashInferReady", "True")
        (tmp_path / "token").write_text("another")
        done = run()
        assert done.returncode == 1
        assert done.stderr == "FlashInferReady was not set: HTTPError: HTTP Error 403: Forbidden\n"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    done = run()
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert run(SERVICE_ACCOUNT=str(tmp_path / "none")).returncode == 1
