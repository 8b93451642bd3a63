#!/bin/sh
# Slurm's HealthCheckProgram: drains the node where the gate says no. In slurm.conf, with check.sh in the same folder:
#
#   HealthCheckProgram=/opt/fi-doctor/health.sh
#   HealthCheckInterval=600
#   HealthCheckNodeState=ANY,CYCLE
#
# Settings stand in health.conf beside it, or in the file that HEALTH_CONF names, as lines of sh:
#
#   CHECK_PYTHON CHECK_CONFIG CHECK_ARGS   as check.sh reads them; by default nothing is run on the GPUs, which compute
#   HEALTH_S       seconds for the check, by default 35, at most 40: slurmd ends what takes 60
#   HEALTH_CODES   codes that drain, by default 1: what cannot be told (3), a mistake (2), a check that hangs (124) do not
#   HEALTH_RESUME  yes: a node that was drained by this script is put back once the gate holds; by default nothing is
#
# It ends with 0 where nothing was to be done or was done, and with 1 where the node could not be drained. All that slurmd
# started is gone by then, also where a check or scontrol hangs.
set -u

PATH=${PATH:-/usr/local/bin}:/usr/bin:/bin
here=$(cd "$(dirname "$0")" && pwd)
conf=${HEALTH_CONF:-$here/health.conf}
# shellcheck source=/dev/null
[ ! -f "$conf" ] || . "$conf"
PATH=$here/bin:/opt/fi-doctor/bin:$PATH
export PATH
CHECK_ARGS=${CHECK_ARGS:---depth static --fail-on error}
export CHECK_ARGS CHECK_PYTHON="${CHECK_PYTHON:-}" CHECK_CONFIG="${CHECK_CONFIG:-}"
node=${SLURMD_NODENAME:-$(hostname -s)}
mark="fi-doctor: " # what a reason of ours begins with

say() {
  timeout 1 logger -t fi-doctor-health -- "$1" 2>/dev/null || printf '%s\n' "$1" >&2
}

# scontrol waits for a controller that does not answer.
control() {
  timeout -k 1 4 scontrol "$@"
}

# seconds: a number from 1 to 40.
seconds=${HEALTH_S:-35}
case $seconds in
  *[!0-9]* | '' | 0*) seconds=35 ;;
esac
[ "$seconds" -le 40 ] || seconds=40

scratch=$(mktemp -d) || {
  say "no check: no file can be made in ${TMPDIR:-/tmp}"
  exit 0
}
trap 'rm -rf "$scratch"' EXIT
code=0
timeout -k 2 "$seconds" sh "$here/check.sh" >/dev/null 2>"$scratch/errors" </dev/null || code=$?
line=$(tail -n 1 "$scratch/errors" | LC_ALL=C tr -cd '[:print:]' | cut -c 1-200)
case $code:$line in
  124:* | 137:*) line="fi-doctor: no verdict within $seconds s (exit $code)" ;;
  *:"$mark"*) ;;
  *) line="${mark}no verdict (exit $code): $line" ;;
esac
# 0 and 1 without the gate's own line are not of a check.
case $code:$line in
  0:*"(exit 0)" | 1:*"(exit 1)") ;;
  [01]:*) code=3 ;;
esac

drains=no
for one in ${HEALTH_CODES:-1}; do
  [ "$one" != "$code" ] || drains=yes
done
[ "$code" = 0 ] || say "$line"
if [ "$drains" = no ] && { [ "$code" != 0 ] || [ "${HEALTH_RESUME:-}" != yes ]; }; then
  exit 0
fi

known=$(control -o show node "$node") || known=
state=$(printf '%s\n' "$known" | sed -n 's/.* State=\([^ ]*\).*/\1/p')
reason=$(printf '%s\n' "$known" | sed -n 's/.* Reason=\(.*\)/\1/p')
if [ "$drains" = yes ]; then
  # What an operator wrote stays, and so does our own reason: updating it would only make it look new.
  case $state in *DRAIN*) exit 0 ;; esac
  control update "NodeName=$node" State=DRAIN "Reason=$line" && exit 0
  say "$node could not be drained: $line"
  exit 1
fi
case $state:$reason in
  *DRAIN*:"$mark"*)
    control update "NodeName=$node" State=RESUME || say "$node could not be put back"
    ;;
esac
