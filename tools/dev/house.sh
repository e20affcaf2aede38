# Sourced by dev and by every script in tools/dev: where things are kept, set-up, and building.
# Works from the root of the repository.
TF_ROOT=$PWD
TF_CACHE=${TENSOR_FUSION_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tensor-fusion}
TF_VENV=$TF_CACHE/venv
export TF_ROOT TF_CACHE TF_VENV
export PATH=$TF_CACHE/bin:$TF_VENV/bin:$PATH
export CCACHE_DIR=$TF_CACHE/ccache CCACHE_MAXSIZE=5G CCACHE_BASEDIR=$TF_ROOT CCACHE_NOHASHDIR=1
export NINJA_STATUS='[%f/%t %es] '
export CTEST_OUTPUT_ON_FAILURE=1

say() { printf 'dev: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# step "what it does" COMMAND…: runs quietly, shows the seconds it takes, and the end of its output if it fails.
step() {
  local title=$1 log start pid tick=30 rc=0
  shift
  log=$(mktemp) start=$SECONDS
  [ -t 2 ] && tick=1
  printf 'dev: %s …' "$title" >&2
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    if ((SECONDS - start >= tick)); then
      if [ -t 2 ]; then printf '\rdev: %s … %ds' "$title" $((SECONDS - start)) >&2; else printf ' %ds' $((SECONDS - start)) >&2; fi
      tick=$((SECONDS - start + (tick < 30 ? 1 : 30)))
    fi
  done
  wait "$pid" || rc=$?
  if ((rc == 0)); then
    if [ -t 2 ]; then printf '\rdev: %s … done in %ds\n' "$title" $((SECONDS - start)) >&2; else printf ' done in %ds\n' $((SECONDS - start)) >&2; fi
  else
    printf ' failed (exit %d):\n' $rc >&2
    tail -n 30 "$log" >&2
  fi
  rm -f "$log"
  return $rc
}

# The Debian packages in tools/dev/packages.txt that are not installed; of `a|b` the first that this system offers.
missing_packages() {
  local line name chosen installed
  installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' 2>/dev/null | awk '$2 == "installed" {print $1}' | sort -u)
  while read -r line; do
    line=${line%%#*} line=${line// /}
    [ -n "$line" ] || continue
    chosen=
    for name in ${line//|/ }; do
      if grep -qxF "$name" <<<"$installed"; then chosen=; continue 2; fi
    done
    for name in ${line//|/ }; do
      if [ -z "$chosen" ] && { [ "$name" = "$line" ] || apt-cache show "$name" >/dev/null 2>&1; }; then chosen=$name; fi
    done
    echo "${chosen:-${line%%|*}}"
  done <tools/dev/packages.txt
}

install_packages() {
  local missing
  if ! command -v apt-get >/dev/null; then
    for tool in cmake ninja c++; do
      command -v $tool >/dev/null || die "'$tool' is missing and this is no Debian or Ubuntu: install the packages named in tools/dev/packages.txt"
    done
    return 0
  fi
  missing=$(missing_packages)
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" != 0 ]; then
    die "these packages are missing, and installing them needs root; run: sudo apt-get install $(echo $missing)"
  fi
  step "refreshing the package lists" apt-get update -q ||
    die "cannot reach the package archive: set-up needs a network (or install by hand: $(echo $missing))"
  missing=$(missing_packages) # names with alternatives can be chosen only now
  DEBIAN_FRONTEND=noninteractive step "installing $(wc -w <<<"$missing") packages" \
    apt-get install -y -q --no-install-recommends $missing || die "apt-get could not install: $(echo $missing) (set-up needs a network)"
}

# tinygrad runs `clang`; a link in our own folder serves it, whatever versions the system has.
link_clang() {
  local version
  for version in 19 18 17; do
    command -v clang-$version >/dev/null || continue
    mkdir -p "$TF_CACHE/bin"
    ln -sfn "$(command -v clang-$version)" "$TF_CACHE/bin/clang"
    return 0
  done
}

install_python() {
  local stamp
  stamp=$(cat tools/dev/requirements.txt; /usr/bin/python3 --version)
  [ "$(cat "$TF_VENV/stamp" 2>/dev/null)" != "$stamp" ] || return 0
  rm -rf "$TF_VENV"
  mkdir -p "$TF_CACHE"
  step "making a Python environment in $TF_VENV" /usr/bin/python3 -m venv "$TF_VENV" || die "python3 -m venv failed"
  step "installing Python packages (tools/dev/requirements.txt)" \
    "$TF_VENV/bin/pip" install -q --disable-pip-version-check -r tools/dev/requirements.txt ||
    die "cannot install the Python packages: set-up needs a network that reaches a Python package index"
  printf '%s\n' "$stamp" >"$TF_VENV/stamp"
}

set_up() {
  mkdir -p "$TF_CACHE"
  exec 9>"$TF_CACHE/setup.lock" # two shells may start at once
  flock 9
  install_packages
  link_clang
  install_python
  exec 9>&-
}

# build PRESET [TARGET…]
build() {
  local preset=$1
  shift
  grep -qF "\"$preset\"" <<<"$(cmake --list-presets 2>/dev/null)" || die "there is no preset '$preset' (see CMakePresets.json)"
  step "configuring $preset" cmake --preset "$preset" || return 1
  say "compiling $preset in build/$preset"
  cmake --build "build/$preset" ${1:+--target "$@"} >&2
}
