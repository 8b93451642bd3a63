#!/bin/sh
# shellcheck disable=SC2329 # traps call functions
# The step of the action: annotations on stdout, the summary, and the outputs `code` and `report` however it ends.
set -eu

outputs() {
  code=$1
  report=
  [ ! -s "$CHECK_REPORT" ] || report=$CHECK_REPORT
  printf 'code=%s\nreport=%s\n' "$code" "$report" >>"$GITHUB_OUTPUT"
  # With these there is a verdict, and its annotations have been written.
  case $code in
    0 | 1) ;;
    *) [ -n "$report" ] || printf '::error title=fi-doctor%%3A exit %s::no verdict; the log says why\n' "$code" ;;
  esac
}
trap 'outputs "$?"' EXIT

CHECK_STDOUT=github
CHECK_INSTALL=${CHECK_INSTALL:-$GITHUB_ACTION_PATH/../..}
# shellcheck source=deploy/check.sh
. "$GITHUB_ACTION_PATH/../check.sh"
