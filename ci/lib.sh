# Shared by the shell scripts of this folder: source it, do not run it.
# It changes to the root of the repository, so every path below and in its users is relative to it.

set -euo pipefail

# --help prints the comment at the head of the script.
case "${1:-}" in
  -h | --help)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s\n' "$*"; }

# A heading: bold on a terminal, plain in a log.
heading() {
  if [ -t 1 ]; then printf '\n\033[1m%s\033[0m\n' "$*"; else printf '\n%s\n' "$*"; fi
}

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Seconds since the script began, and since a given time.
started_at=$SECONDS
elapsed() { printf '%d' "$((SECONDS - ${1:-$started_at}))"; }

# build_jobs: one compiler per core, but never more than the free memory holds (about 1.5 GB each).
build_jobs() {
  local cores memory_kb by_memory
  cores=$(nproc)
  memory_kb=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo 2>/dev/null || true)
  by_memory=$((${memory_kb:-$((cores * 1500000))} / 1500000))
  [ "$by_memory" -ge 1 ] || by_memory=1
  if [ "$by_memory" -lt "$cores" ]; then printf '%d' "$by_memory"; else printf '%d' "$cores"; fi
}

# ticker TITLE LOG: on a terminal, repeats the title with the build's last "[done/all]" until killed,
# or until the script that started it is gone.
ticker() {
  local began=$SECONDS
  while [ -t 1 ] && kill -0 $$ 2>/dev/null; do
    printf '\r  %-44s %5d s  %s ' "$1" "$((SECONDS - began))" \
      "$(tail -n 1 "$2" 2>/dev/null | grep -o '^\[[0-9/]*\]' || true)"
    sleep 1
  done
}

# stage TITLE LOG COMMAND...: runs the command with its output in LOG and prints one line: title,
# seconds, verdict. The end of the log is shown when the command fails; its exit code is returned.
stage() {
  local title=$1 log=$2 began=$SECONDS code=0
  shift 2
  mkdir -p "$(dirname "$log")"
  : >"$log"
  [ -t 1 ] || printf '  %-44s ' "$title"
  ticker "$title" "$log" &
  "$@" >"$log" 2>&1 </dev/null || code=$?
  kill $! 2>/dev/null || true
  wait $! 2>/dev/null || true
  if [ -t 1 ]; then printf '\r\033[K  %-44s ' "$title"; fi
  case $code in
    0) printf '%5d s  ok\n' "$((SECONDS - began))" ;;
    77) printf '%5d s  skipped: %s\n' "$((SECONDS - began))" "$(tail -n 1 "$log")" ;;
    *)
      printf '%5d s  FAILED (exit %d)\n\n' "$((SECONDS - began))" "$code"
      tail -n 60 "$log" | sed 's/^/    | /'
      printf '    the whole output: %s\n\n' "$log"
      ;;
  esac
  return "$code"
}

# The argument of `cmake` for what runs the compiler: with an allocator with which clang takes less time, and
# from a cache, as far as they are installed.
launcher_argument() {
  local launcher= allocator
  allocator=$(/sbin/ldconfig -p 2>/dev/null | awk '/libmimalloc\.so/ {found = $NF} END {print found}') || true
  [ -z "$allocator" ] || launcher="env;LD_PRELOAD=$allocator"
  if command -v ccache >/dev/null; then launcher="${launcher:+$launcher;}ccache"; fi
  [ -z "$launcher" ] || printf '%s' "-DCMAKE_CXX_COMPILER_LAUNCHER=$launcher"
}

# configure_for_use BUILD: the command and the libraries, no tests, quick to compile.
configure_for_use() {
  cmake --preset release -B "$1" -DKVFENCE_BUILD_TESTS=OFF -DKVFENCE_BUILD_BENCHMARKS=OFF \
    -DKVFENCE_CUDA=OFF -DKVFENCE_WERROR=OFF -DKVFENCE_UNITY=ON -DCMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG" $(launcher_argument)
}

# listed_packages WHEN...: the names in ci/packages.txt that are needed at one of these times.
listed_packages() {
  awk -v when=" $* " '!/^#/ && NF && index(when, " " $2 " ") {print $1}' ci/packages.txt
}

# missing_packages WHEN...: those of them that are not installed according to dpkg.
missing_packages() {
  local package
  for package in $(listed_packages "$@"); do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
      printf '%s ' "$package"
  done
}

# can_be_root: whether this is root, or sudo works; on a terminal sudo may ask for the password, once.
can_be_root() {
  [ "$(id -u)" -eq 0 ] && return
  command -v sudo >/dev/null || return
  sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }
}

# as_root COMMAND...: only after can_be_root succeeded.
as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi; }

# install_packages PACKAGE...: through apt, without questions; waits for another running apt.
install_packages() {
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
  as_root "${apt[@]}" update && as_root "${apt[@]}" install -y --no-install-recommends "$@"
}
