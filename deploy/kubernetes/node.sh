#!/bin/sh
# shellcheck disable=SC2329 # traps call functions
# On a node, over and over: check.sh, and what it finds as labels, metrics and a condition of the node.
#
#   CHECK_*          as check.sh reads them, but CHECK_REPORT and CHECK_INSTALL's folder, which are this script's
#   NODE_EVERY       seconds between two checks, by default 600; 0: check once and end with the code of the gate
#   NODE_TIMEOUT     seconds after which a check that hangs is ended, by default 300
#   NODE_FEATURES    the folder features.d of node-feature-discovery; empty: no labels
#   NODE_TEXTFILES   the folder of node-exporter's textfile collector; empty: no metrics
#   NODE_REPORTS     a folder for the last report, NODE_NAME.json, which `fi-doctor fleet --reports` reads; empty: none
#   NODE_NAME        the node whose condition FlashInferReady is set by condition.py; empty: no condition
#   NODE_PYTHON      what runs condition.py, by default python3
#
# Where a check gives no report, the files of an earlier one are removed and the condition is Unknown: nobody knows then.
# They are removed, too, when this script is ended.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
labels=${NODE_FEATURES:+$NODE_FEATURES/fi-doctor}
metrics=${NODE_TEXTFILES:+$NODE_TEXTFILES/fi-doctor.prom}
report=${NODE_REPORTS:+$NODE_REPORTS/${NODE_NAME:-$(uname -n)}.json}
child=
scratch=$(mktemp -d)

forget() {
  [ -z "$labels" ] || rm -f "$labels"
  [ -z "$metrics" ] || rm -f "$metrics"
  [ -z "$report" ] || rm -f "$report"
}

# The report under its name once it is whole: somebody may be reading.
keep() {
  mkdir -p "$NODE_REPORTS" && cp "$scratch/report.json" "$report.part" && mv -f "$report.part" "$report" ||
    printf 'warning: the report of an earlier check stays in %s\n' "$NODE_REPORTS" >&2
}

leave() {
  trap '' HUP INT TERM
  [ -z "$child" ] || { kill -TERM "$child" 2>/dev/null && wait "$child" 2>/dev/null; } || :
  [ "${NODE_EVERY:-600}" = 0 ] && [ "$1" -lt 128 ] || forget
  rm -rf "$scratch"
  exit "$1"
}
trap 'leave 129' HUP
trap 'leave 130' INT
trap 'leave 143' TERM

# Runs a command in the background, so that a signal is handled at once.
run() {
  code=0
  "$@" &
  child=$!
  wait "$child" || code=$?
  child=
}

# A word as CHECK_ARGS takes it, whatever is in it.
quoted() {
  printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\"'\"'/g")"
}

check() {
  words=${CHECK_ARGS:-}
  [ -z "$labels" ] || words="$words --format $(quoted "nfd:$labels")"
  [ -z "$metrics" ] || words="$words --format $(quoted "prometheus:$metrics")"
  run env CHECK_ARGS="$words" CHECK_REPORT="$scratch/report.json" timeout -k 10 "${NODE_TIMEOUT:-300}" \
    sh "$here/check.sh" >/dev/null # what decided goes to stderr
  gate=$code
  # A verdict has a report, and 0, 1 or 3; whatever else ended, what lies there is of an earlier check.
  case $gate in
    0 | 1 | 3) [ -s "$scratch/report.json" ] || forget ;;
    *) forget && rm -f "$scratch/report.json" ;;
  esac
  [ -z "$report" ] || [ ! -s "$scratch/report.json" ] || keep
  [ -z "${NODE_NAME:-}" ] || run "${NODE_PYTHON:-python3}" "$here/condition.py" "$NODE_NAME" "$scratch/report.json" "$gate"
  [ -z "${NODE_NAME:-}" ] || [ "$code" = 0 ] || printf 'warning: the condition of %s was not set\n' "$NODE_NAME" >&2
}

while :; do
  check
  [ "${NODE_EVERY:-600}" != 0 ] || leave "$gate"
  run sleep "${NODE_EVERY:-600}"
  [ "$code" = 0 ] || leave 2 # it was no number, and without a pause there would be check after check
done
