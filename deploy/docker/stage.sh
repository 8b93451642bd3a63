#!/bin/sh
# What the stages of the Dockerfile run; each ends with the code of what it did, and any but 0 ends the build.
#
#   stage.sh install PYTHON                   fi-doctor into a venv of its own, from the source beside this script
#   stage.sh static  PYTHON ARGS              with the policy; 3 is no failure: without a GPU nothing is measured
#   stage.sh built   PYTHON REQUIRED BUDGET   REQUIRED: what must be built, as --require takes it, with commas; nothing
#                                             else is compiled, and of a policy, which asks for what runs, nothing taken
#   stage.sh target  PYTHON TARGET REQUIRED   what is foretold for TARGET, as --target takes it; what is not compiled yet of
#                                             the rows in REQUIRED is listed for `warm`, and nothing is compiled
#   stage.sh warm    PYTHON BUDGET            what the server in the image would compile at its first start, or what
#                                             `target` listed
#
#   STAGE_CACHE   where kernels are compiled, by default /opt/jit-cache
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${STAGE_CACHE:-/opt/jit-cache}
doctor=$here/bin/fi-doctor

stop() {
  printf 'fi-doctor: %s (exit 2)\n' "$1" >&2
  exit 2
}

install_doctor() {
  "$1" -I -m venv "$here/venv"
  "$here/venv/bin/python" -I -m pip install --quiet --no-cache-dir "$here/source[serve]"
  rm -rf "$here/source"
  mkdir -p "$here/bin" # a folder with this one command can be on PATH; the venv's would hide the server's python
  ln -s ../venv/bin/fi-doctor "$doctor"
}

# check PYTHON ARGS POLICY: the code of the gate is left in `code`.
check() {
  CHECK_PYTHON=$(command -v "$1") || stop "there is no $1 in this image"
  CHECK_ARGS=$2
  CHECK_REPORT=$here/report.json
  CHECK_CONFIG=
  [ ! -f "$3" ] || CHECK_CONFIG=$3
  export CHECK_PYTHON CHECK_ARGS CHECK_REPORT CHECK_CONFIG
  PATH=$here/bin:$PATH
  code=0
  (cd / && exec sh "$here/check.sh") || code=$?
}

for_gpu() {
  [ -n "${FLASHINFER_CUDA_ARCH_LIST:-}" ] || stop "--build-arg ARCH=9.0a names the GPU that will serve"
  mkdir -p "$cache"
  FLASHINFER_WORKSPACE_BASE=$cache
  XDG_CACHE_HOME=$cache/xdg # of fi-doctor alone: parts of modules
  export FLASHINFER_WORKSPACE_BASE XDG_CACHE_HOME
}

case ${1:-} in
  install)
    install_doctor "$2"
    ;;
  static)
    check "$2" "--depth static $3" "$here/fi-doctor.toml"
    [ "$code" -ne 3 ] || [ ! -s "$CHECK_REPORT" ] || code=0 # without a report it is not the gate's
    exit "$code"
    ;;
  built)
    for_gpu
    rows=$(printf '%s' "$3" | sed 's/=[a-z]*//g')
    check "$2" "--no-config --depth build --budget $4 --feature '$rows' --require '$3'" ""
    exit "$code"
    ;;
  target)
    check "$2" "--no-config --target '$3' --require '$4' --warm-list '$here/warm.txt'" ""
    exit "$code"
    ;;
  warm)
    for_gpu
    if [ -f "$here/warm.txt" ]; then
      "$doctor" warm --python "$(command -v "$2")" --budget "$3" --list "$here/warm.txt"
    else
      "$doctor" warm --python "$(command -v "$2")" --budget "$3"
    fi
    rm -rf "$cache/xdg"
    ;;
  *)
    stop "install, static, target, built or warm, and not '${1:-}'"
    ;;
esac
