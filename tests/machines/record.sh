#!/usr/bin/env bash
# Records the machine it runs on: everything checked with an empty JIT cache, then again with the cache that left.
#   record.sh FOLDER [PYTHON]     PYTHON (default python3) runs fi-doctor and is the interpreter that is examined
# FLASHINFER_WORKSPACE_BASE must name an empty folder. What is written is never edited; ORIGIN.md says where it is from.
#   RECORD_STATES  "cold warm"; "warm" alone takes the cache as it is, which need not be empty then
#   RECORD_BUDGET  of each; RECORD_WARM_BUDGET: of the second, where it is another
#   RECORD_BETWEEN a shell command to run before the second, as one that waits for what else uses the machine
#   RECORD_ARGS    further arguments of fi-doctor report, "--jobs 40 --feature 'moe.*'"
#   RECORD_NOTE    a sentence for ORIGIN.md on what is not as it would be on another machine
set -uo pipefail
export PYTHONSAFEPATH=1  # what is installed is recorded, not what lies in the current folder
folder=${1:?folder}; python=${2:-python3}; states=${RECORD_STATES:-cold warm}
base=${FLASHINFER_WORKSPACE_BASE:?an empty folder}
[[ $states != cold* ]] || [ -z "$(ls -A "$base" 2>/dev/null)" ] || { echo "record.sh: $base is not empty" >&2; exit 2; }
mkdir -p "$folder"
eval "extra=(${RECORD_ARGS:-})"
for state in $states; do
  # The limit cuts a run that hangs: fi-doctor's own budget ends before it.
  [ "$state" != warm ] || eval "${RECORD_BETWEEN:-}"
  budget=${RECORD_BUDGET:-7m}; [ "$state" != warm ] || budget=${RECORD_WARM_BUDGET:-$budget}
  timeout -k 10 "${RECORD_LIMIT:-480}" "$python" -m fi_doctor report --depth run --json --budget "$budget" \
    "${extra[@]}" -o "$folder/$state.json" 2> >(tee "$folder/$state.stderr" >&2)
  echo "record.sh: $state ended with $?" >&2
done
{
  echo "# Where this recording is from"
  echo
  echo "- when: $(date -u +%Y-%m-%dT%H:%M:%SZ)"
  echo "- fi-doctor: commit ${FI_DOCTOR_COMMIT:-unknown}"
  echo "- command, for each of: $states (cold: with an empty JIT cache; warm: with what was built before):"
  echo "  \`python3 -m fi_doctor report --depth run --json --budget ${RECORD_BUDGET:-7m}${RECORD_WARM_BUDGET:+ (warm: $RECORD_WARM_BUDGET)} ${RECORD_ARGS:-}\`"
  echo "- device: $(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | paste -sd ';')"
  echo "- CUDA_VISIBLE_DEVICES: ${CUDA_VISIBLE_DEVICES-not set}"
  [ -z "${RECORD_NOTE:-}" ] || echo "- note: $RECORD_NOTE"
  echo "- raw output, unchanged:"
  (cd "$folder" && sha256sum ./*.json | sed 's/^/  - `/; s/$/`/; s,  \./,`  `,')
} > "$folder/ORIGIN.md"
