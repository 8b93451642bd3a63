"""What reports are judged by has not changed without its version: older reports would be taken as written."""

import hashlib
from pathlib import Path

from fi_doctor.knowledge import SHIPPED, read_head

JUDGING = ("rules", "settings", "features.yaml", "operators.yaml", "models.yaml", "architectures.yaml")
RECORDED = Path(__file__).parent / "data" / "version.txt"  # version and digest, as this test writes them


def digest():
    files = [path for name in JUDGING for path in sorted((SHIPPED / name).rglob("*.yaml")) or [SHIPPED / name]]
    files += sorted((SHIPPED.parent / "choices").glob("*.yaml"))
    found = hashlib.sha256()
    for path in files:
        found.update(path.relative_to(SHIPPED.parent).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def test_what_judges_has_the_version_that_it_was_recorded_with(request):
    version, known = read_head(SHIPPED).version, digest()
    recorded, was = RECORDED.read_text().split()
    if known != was:
        assert version != recorded, "rules have changed: move `version` in kb.yaml to today"
        assert request.config.getoption("--update-golden"), "then record it: --update-golden"
        RECORDED.write_text(f"{version} {known}\n")


def test_a_change_of_one_rule_is_seen(tmp_path, monkeypatch):
    before = digest()
    path = next(iter(sorted((SHIPPED / "rules").rglob("*.yaml"))))
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: read(self) + (b"#" if self == path else b""))
    assert digest() != before
