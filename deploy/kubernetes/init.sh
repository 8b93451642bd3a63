#!/bin/sh
# shellcheck disable=SC2329 # traps call functions
# The init container: check.sh, and its verdict as the container's termination message, however it ends.
#
#   TERMINATION_LOG  where the message goes, by default /dev/termination-log
#
# Kubernetes keeps 4096 bytes of a message, the last ones: what matters stands first here, and the rest is cut at a line.
set -eu

log=${TERMINATION_LOG:-/dev/termination-log}
scratch=$(mktemp -d) || exit 3
here=$(dirname "$0") # both scripts lie in one ConfigMap

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
    *) printf 'fi-doctor: no verdict (exit %s): %s\n' "$1" "$last" ;;
  esac
}

message() {
  headline "$1"
  grep -E '^gate: (no|cannot tell) |^warning: ' "$scratch/errors" || :
  sed -n '/^error: /,$p' "$scratch/errors"
  [ ! -f "$CHECK_CONSOLE" ] || cat "$CHECK_CONSOLE"
}

# Whole lines, as long as they fit into 4096 bytes; of a first line that does not fit, the words that do.
fitted() {
  LC_ALL=C awk '
    NR == 1 && length($0) > 4091 { $0 = substr($0, 1, 4091); sub(/ [^ ]*$/, ""); $0 = $0 " ..." }
    { left = left + length($0) + 1; if (left > 4096) exit; print }'
}

ended() {
  code=$1
  exec 2>&3 # tee ends once nobody writes to it any more
  turns=0
  while kill -0 "$tee" 2>/dev/null && [ "$turns" -lt 20 ]; do
    sleep 0.1
    turns=$((turns + 1))
  done
  message "$code" | fitted >"$log" || echo "warning: $log cannot be written" >&2
  rm -rf "$scratch"
}

# It stays where the kernel kills the whole container, after which nothing of it runs.
echo "fi-doctor: the container ended before its check did, as where memory ends; no verdict" >"$log" || :
CHECK_CONSOLE=$scratch/console
exec 3>&2
mkfifo "$scratch/fifo" || exit 3
# It outlives signals to the group, and so what the check says of them arrives.
(trap '' HUP INT TERM && exec tee "$scratch/errors" <"$scratch/fifo" >&3) &
tee=$!
exec 2>"$scratch/fifo"
trap 'ended "$?"' EXIT
# shellcheck source=deploy/check.sh
. "$here/check.sh"
