#!/usr/bin/env bash
# The tests that need neither torch nor a GPU, on each interpreter that is named:
#     benchmarks/pythons.sh python3.10 python3.12 ~/.pyenv/versions/3.13.0/bin/python
# Each has a virtual environment of its own below build/pythons, made anew.
set -euo pipefail
cd "$(dirname "$0")/.."
needs=(hypothesis jsonschema junitparser ninja numpy prometheus-client 'pytest>=8' pytest-timeout 'setuptools>=77' 'waitress>=3.0.1')
tests=(tests/fuzz tests/test_safe_code.py tests/test_conditions.py tests/diagnosis/test_gate.py)
tests+=(tests/cli/test_exit_codes.py tests/cli/test_redact.py tests/cli/test_secrets.py)
tests+=(tests/explaining/test_hostile.py tests/explaining/test_inputs.py)
tests+=(tests/facts/test_manifests.py tests/facts/test_survey.py tests/facts/test_system.py)
tests+=(tests/knowledge/test_bundles.py tests/knowledge/test_policies.py tests/locking/test_lock_document.py)
tests+=(tests/reports/test_document.py tests/reports/test_injection.py)
failed=0
for python in "$@"; do
    version=$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')
    place=build/pythons/$version
    rm -rf "$place"
    "$python" -m venv "$place"
    "$place/bin/python" -m pip install --quiet . "${needs[@]}"
    "$place/bin/python" -m pip uninstall --quiet --yes fi-doctor # the checkout is tested, with what it needs
    printf '%s: ' "$version"
    PATH=$PWD/$place/bin:$PATH "$place/bin/python" -m pytest -q -p no:cacheprovider "${tests[@]}" | tail -n 1 || failed=1
done
exit "$failed"
