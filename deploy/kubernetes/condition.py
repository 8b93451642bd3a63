"""Sets the condition FlashInferReady of a node by a report of fi-doctor: condition.py NODE REPORT CODE.

True where the gate holds (code 0), False where it does not (1), else Unknown. Only the Python of an image is needed. It
asks the API server of the pod's cluster as the pod's service account, which may get and patch nodes/status and no more.
Ends with 0 once the condition is set, with 1 and a line on stderr where it cannot be.
"""

import datetime as dt
import http.client
import json
import os
import ssl
import sys
import urllib.request

ACCOUNT = os.environ.get("SERVICE_ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount")
TYPE = "FlashInferReady"
# code of the gate -> status, reason
MEANINGS = {"0": ("True", "GateHolds"), "1": ("False", "GateFails"), "3": ("Unknown", "CannotTell")}
TIMEOUT_S = 15
MOST = 1000  # characters of a message


def condition(node, report, code, now):
    """The condition as it is to be, with the time of the last change where nothing changes; pure.

    node: the node's status as it is. report: what was found, None where there is no report.
    """
    status, reason = "Unknown", "NoVerdict"
    message = f"the check gave no verdict (exit {code})"
    if report is not None and code in MEANINGS:
        status, reason = MEANINGS[code]
        message = f"{report['gate']['reason']} (exit {code}, checked {report['created']})"
    before = next((one for one in node["status"].get("conditions") or [] if one.get("type") == TYPE), {})
    is_same = before.get("status") == status
    return {
        "type": TYPE,
        "status": status,
        "reason": reason,
        "message": message[:MOST],
        "lastHeartbeatTime": now,
        "lastTransitionTime": (before.get("lastTransitionTime") if is_same else None) or now,
    }


def read_report(path):
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        return report if {"reason"} <= report["gate"].keys() and {"created"} <= report.keys() else None
    except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError):  # it is no report
        return None


def ask(url, body=None):
    """What the API server answers: the node, patched where a body is given."""
    with open(os.path.join(ACCOUNT, "token"), encoding="utf-8") as file:
        headers = {"Authorization": f"Bearer {file.read().strip()}", "Accept": "application/json"}
    if body is not None:
        headers["Content-Type"] = "application/strategic-merge-patch+json"
    request = urllib.request.Request(url, body, headers, method="GET" if body is None else "PATCH")
    trusted = ssl.create_default_context(cafile=os.path.join(ACCOUNT, "ca.crt"))
    # A proxy of the environment is not for the cluster.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted))
    with opener.open(request, timeout=TIMEOUT_S) as answer:
        return json.load(answer)


def main(node, report, code):
    """0 once the condition is set."""
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    host = f"[{host}]" if ":" in host else host
    url = f"https://{host}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}/api/v1/nodes/{node}/status"
    now = dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    wanted = condition(ask(url), read_report(report), code, now)
    ask(url, json.dumps({"status": {"conditions": [wanted]}}).encode())
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(f"{TYPE} was not set: it is called as condition.py NODE REPORT CODE")
    try:
        sys.exit(main(*sys.argv[1:]))
    # The last three are of an answer that is none of an API server.
    except (OSError, http.client.HTTPException, KeyError, ValueError, AttributeError, TypeError) as error:
        sys.exit(f"{TYPE} was not set: {type(error).__name__}: {error}")
