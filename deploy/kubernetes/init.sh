#!/bin/sh
# shellcheck disable=SC2329 # traps call functions
# The init container: check.sh, and its verdict as the container's termination message, however it ends.
#
#   TERMINATION_LOG  where the message goes, by default /dev/termination-log
#
# Kubernetes keeps 4096 bytes of a message, the last ones: what matters stands first here, and the rest is cut at a line.
set -eu

log=${TERMINATION_LOG:-/dev/termination-log}
here=$(dirname "$0") # both scripts lie in one ConfigMap

# Nothing can be examined: 3, with a message where it can be written.
stop() {
  printf 'fi-doctor: %s; nothing was examined (exit 3)\n' "$1" >&2
  printf 'fi-doctor: %s; nothing was examined (exit 3)\n' "$1" >"$log" || :
  exit 3
}

# Whether a code is the gate's: its line is the last, and a check that gives 0 has written what it found. Not so of
# --help, of which that code comes too, nor of a shell that found no script, which gives 1.
is_decided() {
  case $1:$(tail -n 1 "$scratch/errors") in
    0:"fi-doctor: "*"(exit 0)") [ -s "$CHECK_CONSOLE" ] ;;
    1:"fi-doctor: "*"(exit 1)") ;;
    [01]:*) return 1 ;;
  esac
}

# What decided, or why there is no verdict: a line.
headline() {
  last=$(tail -n 1 "$scratch/errors")
  case $last in
    # The last line of an error says what to do.
    "  "*) last=$(sed -n 's/^error: //p' "$scratch/errors" | tail -n 1) ;;
  esac
  case $1:$last in
    137:*) echo "fi-doctor: the check was killed, as where memory ends; no verdict (exit 137)" ;;
    *:"fi-doctor: "*) printf '%s\n' "$last" ;;
    *) printf 'fi-doctor: no verdict (exit %s): %s\n' "$1" "$(complaint)" ;;
  esac
}

# Of the last error what it says itself, of a fault the exception, else the last line.
complaint() {
  awk '
    /^error: / { said = substr($0, 8) }
    /^Traceback / { is_traced = 1; next }
    is_traced && /^[^ ]/ { said = $0; is_traced = 0 }
    { last = $0 }
    END { print said != "" ? said : last }' "$scratch/errors"
}

message() {
  headline "$1"
  grep -E '^gate: (no|cannot tell) |^warning: ' "$scratch/errors" || :
  sed -n '/^error: /,$p' "$scratch/errors"
  [ ! -f "$CHECK_CONSOLE" ] || cat "$CHECK_CONSOLE"
}

# Whole lines, as long as they fit into 4096 bytes; of a long one that does not fit, the words that do, or what does of
# a word without an end. A character of several bytes is not cut.
fitted() {
  LC_ALL=C awk '
    { room = 4096 - left - 1 }
    length($0) > room && NR > 1 && length($0) <= 200 { exit }
    length($0) > room {
      if (room < 10) exit
      cut = substr($0, 1, room - 4)
      sub(/[\300-\377][\200-\277]*$/, "", cut)
      if (match(cut, / [^ ]*$/) && RLENGTH <= 200) cut = substr(cut, 1, RSTART - 1)
      print cut " ..."
      exit
    }
    { left = left + length($0) + 1; print }'
}

ended() {
  code=$1
  exec 2>&3 # tee ends once nobody writes to it any more
  turns=0
  while kill -0 "$tee" 2>/dev/null && [ "$turns" -lt 50 ]; do
    sleep 0.1
    turns=$((turns + 1))
  done
  if ! is_decided "$code"; then
    said=$(complaint)
    echo "fi-doctor: no verdict, and no check ended with code $1 (exit 3)${said:+: $said}" | tee -a "$scratch/errors" >&2
    code=3
  fi
  message "$code" | fitted >"$log" || echo "warning: $log cannot be written" >&2
  rm -rf "$scratch"
  exit "$code"
}

[ -r "$here/check.sh" ] || stop "there is no check.sh beside $0, to be put into the same ConfigMap"
scratch=$(mktemp -d) || stop "no file can be made in ${TMPDIR:-/tmp}: mount an emptyDir there, or set TMPDIR to a place"
# It stays where the kernel kills the whole container, after which nothing of it runs.
echo "fi-doctor: the container ended before its check did, as where memory ends; no verdict" >"$log" || :
CHECK_CONSOLE=$scratch/console
exec 3>&2
mkfifo "$scratch/fifo" || stop "no pipe can be made in $scratch"
# It outlives signals to the group, and so what the check says of them arrives.
(trap '' HUP INT TERM && exec tee "$scratch/errors" <"$scratch/fifo" >&3) &
tee=$!
exec 2>"$scratch/fifo"
trap 'ended "$?"' EXIT
# shellcheck source=deploy/check.sh
. "$here/check.sh"
