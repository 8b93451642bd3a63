#!/bin/sh
# shellcheck disable=SC2329 # traps call functions
# Checks one interpreter with fi-doctor and ends with the code of its gate; the action, the job and the container run it.
#
#   CHECK_INSTALL  what pip installs, into a venv of its own: a checkout or a requirement; empty: fi-doctor is on PATH
#   CHECK_PYTHON   the interpreter that serves; empty: fi-doctor's own
#   CHECK_CONFIG   the policy; empty: the nearest one, from the current folder upwards
#   CHECK_ARGS     more words for `fi-doctor check`; quotes keep a word together, and nothing is expanded
#   CHECK_WARM     a time, as 1h: `fi-doctor warm` comes first and takes no longer
#   CHECK_STDOUT   the format on stdout, by default console; with another the console goes to stderr
#   CHECK_REPORT   CHECK_JUNIT  CHECK_CONSOLE  files: JSON, JUnit and the console's text; empty: not written
#
# 3 also where fi-doctor cannot be installed, or CHECK_ARGS ask for no check (--help). It may be sourced by a script
# that has a trap for EXIT.
set -eu

check_told=
check_child=
check_place=
check_proof=
# A child in the background is deaf to SIGINT, so it is told with SIGTERM; the code is that of the first signal.
check_forward() {
  check_told=${check_told:-$1}
  [ -z "$check_child" ] || kill -TERM "$check_child" 2>/dev/null || :
}
trap 'check_forward 129' HUP
trap 'check_forward 130' INT
trap 'check_forward 143' TERM

# Runs a command so that signals reach it; its code is left in check_code.
check_run() {
  check_code=0
  "$@" &
  check_child=$!
  [ -z "$check_told" ] || kill -TERM "$check_child" 2>/dev/null || :
  wait "$check_child" || check_code=$?
  # A signal ends the first wait, and not the child.
  while kill -0 "$check_child" 2>/dev/null; do
    check_code=0
    wait "$check_child" || check_code=$?
  done
  check_child=
  [ -z "$check_told" ] || check_end "$check_told"
}

check_end() {
  [ -z "$check_place" ] || rm -rf "$check_place"
  [ -z "$check_proof" ] || rm -f "$check_proof"
  exit "$1"
}

check_stop() {
  printf 'fi-doctor: %s (exit %s)\n' "$2" "$1" >&2
  check_end "$1"
}

# The words of CHECK_ARGS, a line each; xargs knows quotes and expands nothing.
check_words() {
  [ -z "${CHECK_ARGS:-}" ] || printf '%s\n' "$CHECK_ARGS" | xargs printf '%s\n'
}

# A file of an earlier run would pass for one of this run. Only a plain file goes, and none that the check reads.
check_fresh() {
  for check_file in "${CHECK_REPORT:-}" "${CHECK_JUNIT:-}" "${CHECK_CONSOLE:-}"; do
    [ -n "$check_file" ] || continue
    case $check_file in -*) check_stop 2 "$check_file is no name of a file; ./$check_file is one" ;; esac
    if [ -e "$check_file" ] || [ -h "$check_file" ]; then
      { [ -f "$check_file" ] && [ ! -h "$check_file" ]; } || check_stop 2 "$check_file is no plain file to be written anew"
      check_kept "$check_file"
    fi
    { mkdir -p "$(dirname "$check_file")" && rm -f "$check_file"; } || check_stop 2 "$check_file cannot be written"
  done
}

# Stops where a file is the policy, or a report or a lock among the words of CHECK_ARGS.
check_kept() {
  while IFS= read -r check_word; do
    case $check_word in --*=*) check_word=${check_word#*=} ;; esac
    # shellcheck disable=SC3013 # dash, bash and busybox know -ef
    ! [ "$1" -ef "$check_word" ] || check_stop 2 "$1 is to be read and written"
  done <<LIST
${CHECK_CONFIG:-}
fi-doctor.toml
pyproject.toml
$check_list
LIST
}

check_install() {
  check_doctor=fi-doctor
  [ -z "${CHECK_INSTALL:-}" ] || check_venv
  command -v "$check_doctor" >/dev/null || check_stop 3 "there is no fi-doctor on PATH, and nothing was examined"
}

check_venv() {
  check_base=$(command -v python3 || command -v "${CHECK_PYTHON:-}") || check_stop 3 "no python3 to install it with"
  check_place=$(mktemp -d "${RUNNER_TEMP:-${TMPDIR:-/tmp}}/fi-doctor-XXXXXX") || check_stop 3 "no folder for a venv"
  check_source=$CHECK_INSTALL
  if [ -d "$CHECK_INSTALL" ]; then
    # A checkout may be read-only, and what an earlier build left in it would be installed.
    check_source=$check_place/source
    mkdir "$check_source"
    (cd "$CHECK_INSTALL" && cp -R pyproject.toml README.md fi_doctor probes "$check_source") ||
      check_stop 3 "$CHECK_INSTALL is no checkout of fi-doctor, and nothing was examined"
  fi
  # With -I, because of what lies on PYTHONPATH pip says that it is installed, and fi-doctor does not look there.
  check_run "$check_base" -I -m venv "$check_place/venv" >&2
  [ "$check_code" = 0 ] || check_stop 3 "$check_base makes no venv, and nothing was examined"
  check_run "$check_place/venv/bin/python" -I -m pip install --quiet "$check_source" >&2
  [ "$check_code" = 0 ] || check_stop 3 "pip cannot install $CHECK_INSTALL, and nothing was examined"
  check_doctor=$check_place/venv/bin/fi-doctor
}

# Code 1 or 3 of warm is no verdict: what was not compiled, the check finds.
check_warm() {
  [ -n "${CHECK_WARM:-}" ] || return 0
  check_run "$check_doctor" warm --budget "$CHECK_WARM" ${CHECK_PYTHON:+--python "$CHECK_PYTHON"} >&2
  case $check_code in
    0) ;;
    1 | 3) printf 'warning: fi-doctor warm ended with code %s: not all is compiled\n' "$check_code" >&2 ;;
    *) check_end "$check_code" ;;
  esac
}

check_list=$(check_words) || check_stop 2 "CHECK_ARGS has a quote without its other one: $CHECK_ARGS"
check_fresh
check_install
check_warm
set -- check --explain-gate
[ -z "${CHECK_PYTHON:-}" ] || set -- "$@" --python "$CHECK_PYTHON"
[ -z "${CHECK_CONFIG:-}" ] || set -- "$@" --config "$CHECK_CONFIG"
set -- "$@" --format "${CHECK_STDOUT:-console}"
[ "${CHECK_STDOUT:-console}" = console ] || set -- "$@" --format console:/dev/stderr
[ -z "${CHECK_CONSOLE:-}" ] || set -- "$@" --format "console:$CHECK_CONSOLE"
[ -z "${CHECK_REPORT:-}" ] || set -- "$@" --format "json:$CHECK_REPORT"
[ -z "${CHECK_JUNIT:-}" ] || set -- "$@" --format "junit:$CHECK_JUNIT"
# Code 0 counts where a report was written: it comes of asking for help, too.
check_written=${CHECK_REPORT:-${CHECK_JUNIT:-${CHECK_CONSOLE:-}}}
if [ -z "$check_written" ]; then
  check_proof=$(mktemp "${RUNNER_TEMP:-${TMPDIR:-/tmp}}/fi-doctor-XXXXXX") || check_stop 3 "no file for a report"
  check_written=$check_proof
  set -- "$@" --format "json:$check_proof"
fi
while IFS= read -r check_word; do
  [ -z "$check_word" ] || set -- "$@" "$check_word"
done <<LIST
$check_list
LIST
check_run "$check_doctor" "$@"
[ "$check_code" != 0 ] || [ -s "$check_written" ] ||
  check_stop 3 "no report was written, so that nothing was examined; CHECK_ARGS: ${CHECK_ARGS:-none}"
check_end "$check_code"
