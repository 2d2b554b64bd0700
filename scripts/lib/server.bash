# What scripts/kafka, scripts/nats and scripts/rabbitmq have in common: one private server in a folder, on loopback.
# Sourced, not run. Written for bash 3.2, the version that macOS ships.
#
# The script that sources this sets
#   name        what the server is called, for people
#   process     a word in its command line
#   ready       what it logs when it accepts connections
#   in_use      what it logs when a port is taken
#   ports       the names of the ports that it needs; the first is the one of the URL
# and defines
#   installed           true if its programs are here; sets the variables that the other functions need
#   install_programs    makes that true, or fails with EXIT_UNAVAILABLE; runs under a lock
#   prepare             sets the prefix $as_server, with which the server's user runs a command
#   url_for PORT        prints the URL
#   configure           writes the settings, with the ports that `port NAME` prints
#   create              makes what else must be there before the first launch
#   run                 becomes the server (exec), in $dir/data
# and may define
#   before_launch, after_stop
# Then it calls `main "$@"`.
#
#   DIR/data   what the server keeps     DIR/ports/NAME   its ports, chosen once by `start` and kept by `restart`
#   DIR/pid    its process               DIR/log          what the server and its tools said
# shellcheck shell=bash disable=SC2154 # the script that sources this sets them
set -euo pipefail
export LC_ALL=C   # messages are searched below
umask 022

readonly START_SECONDS_MAX=120   # recovery after `kill` comes first, so this is generous
readonly STOP_SECONDS_MAX=30
readonly EXIT_USAGE=2
readonly EXIT_UNAVAILABLE=3

self=scripts/$(basename "$0")
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/oncebox
as_server=(env)

fail() {
  printf '%s: %s\n' "$self" "$1" >&2
  exit "${2:-1}"
}

unavailable() {
  fail "cannot have $name here: $1" $EXIT_UNAVAILABLE
}

before_launch() { :; }
after_stop() { :; }

# ---- installing ----

# apt_install ADVICE PACKAGE…: ADVICE says what to do by hand.
apt_install() {
  local advice=$1 as_root='' said why
  shift
  command -v apt-get >/dev/null || unavailable "$* is missing and there is no apt-get; $advice"
  if ((EUID != 0)); then
    command -v sudo >/dev/null || unavailable "$* is missing, apt-get needs root and there is no sudo; $advice"
    as_root=sudo
  fi
  said=$(mktemp)
  # A stale or partly failed update may still know the package: only the installation decides.
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get update >"$said" 2>&1 || true
  if ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 \
    install -y --no-install-recommends "$@" >"$said" 2>&1; then
    why=$(grep '^E:' "$said" | tail -n 1 || true)
    rm -f "$said"
    unavailable "apt-get install $* failed (${why:-no reason given}); $advice"
  fi
  rm -f "$said"
}

# Two at once do not get in each other's way: the second waits, and finds the work done. Where there is no flock, both
# work; what they make appears in one piece, by a rename.
install_once() {
  ! installed || return 0
  mkdir -p "$cache" || unavailable "cannot create $cache, where its programs are kept"
  (
    if command -v flock >/dev/null; then
      exec 9>"$cache/$(basename "$0").lock"
      flock 9
    fi
    installed || install_programs 9>&-
  ) || exit $?   # it has said why
  installed || unavailable "it was installed, but its programs do not run"
}

# move_in FROM TO: FROM becomes the folder TO in one step; if another was faster, that one stays.
move_in() {
  chmod 755 "$1"
  if [[ -e $2 ]]; then
    rm -rf "$1"
  else
    mv "$1" "$2"
  fi
}

# ---- the server in $dir ----

port() {
  cat "$dir/ports/$1"
}

url() {
  local main_port=${ports%% *}
  [[ -s $dir/ports/$main_port ]] || fail "there is no $name server in $dir; run $self start $dir"
  url_for "$(port "$main_port")"
}

# True if process $1 is alive and belongs to this server. A pid alone proves little: it may have been given to another
# process since, or be a zombie that nobody reaps. The server works in its data folder; a zombie works nowhere.
# It is asked as the server's user, because root in a container may not look into another user's processes.
is_ours() {
  [[ -n ${1:-} ]] || return 1
  if [[ -d /proc/self ]]; then
    [[ $("${as_server[@]}" readlink "/proc/$1/cwd" 2>/dev/null) == "$dir/data" ]]
  else
    [[ $(ps -o stat=,args= -p "$1" 2>/dev/null) == [!Z]*"$process"* ]]
  fi
}

# Prints the pid of the running server; prints nothing if it does not run.
server_pid() {
  local pid=''
  pid=$(cat "$dir/pid" 2>/dev/null || true)
  if is_ours "$pid"; then
    printf '%s' "$pid"
  fi
}

# What was logged since the last launch.
news() {
  tail -c "+$((logged + 1))" "$dir/log"
}

last_words() {
  local words
  words=$(news | grep -E 'FATAL|\[FTL\]|ERROR|\[ERR\]|\[error\]|[Ee]xception|[Ee]rror:|in use|eaddrinuse' | tail -n 1 || true)
  [[ -n $words ]] || words=$(news | grep . | tail -n 1 || true)
  printf '%s' "${words:-it gave no reason}"
}

# Starts the server on its ports and waits until it accepts connections; returns non-zero if it does not come up.
launch() {
  local pid tenths=$((START_SECONDS_MAX * 10))
  logged=$(wc -c <"$dir/log")
  before_launch || return 1
  # A process group of its own, so that it outlives the Ctrl-C that is meant for the caller; and no file but its log, so
  # that whoever reads our output through a pipe does not wait for the server to end.
  set -m
  (
    trap '' HUP
    cd "$dir/data" || exit 1
    run
  ) </dev/null >>"$dir/log" 2>&1 &
  pid=$!
  set +m
  disown "$pid" 2>/dev/null || true   # the shell has nothing to say about its end
  echo "$pid" >"$dir/pid"
  while :; do
    ! news | grep -q "$ready" || return 0
    kill -0 "$pid" 2>/dev/null || return 1
    if ((tenths-- <= 0)); then
      kill -KILL "$pid" 2>/dev/null || true
      return 1
    fi
    sleep 0.1
  done
}

choose_ports() {
  local which number=$((20000 + RANDOM % 12000))
  for which in $ports; do
    echo $((number++)) >"$dir/ports/$which"
  done
  configure
}

start() {
  local attempt
  [[ ! -e $dir/data ]] || fail "$dir already holds a server; use $self restart, or another folder"
  # Not `test -x`, which is a builtin that answers for us and not for the server's user.
  "${as_server[@]}" ls -d "$dir/." >/dev/null 2>&1 || fail "the user that runs the server cannot enter $dir; make it and its parents traversable (chmod 755)"
  mkdir -m 700 "$dir/data"
  mkdir -p "$dir/ports"
  : >"$dir/log"
  logged=0
  choose_ports
  create || fail "cannot prepare a server in $dir: $(last_words)"

  # Asking whether a port is free proves nothing a moment later, so the server's own bind is the test: if it loses, the
  # next is tried. The range lies below the ports that systems hand to outgoing connections, so that the port is still
  # free when the server is restarted after an outage.
  for attempt in 1 2 3 4 5 6 7 8 9 10; do
    choose_ports
    if launch; then
      url
      return
    fi
    news | grep -q "$in_use" || break
    after_stop
  done
  after_stop
  rm -f "$dir/ports/"*
  fail "the server in $dir did not start (attempt $attempt): $(last_words)"
}

restart() {
  url >/dev/null
  stop
  launch || fail "the server in $dir did not start again on port $(port "${ports%% *}"): $(last_words)"
  url
}

# Waits up to $2 seconds until process $1 is gone.
wait_until_gone() {
  local tenths=$(($2 * 10))
  while is_ours "$1"; do
    ((tenths-- > 0)) || return 1
    sleep 0.1
  done
}

stop() {
  local pid signal
  for signal in TERM KILL; do
    pid=$(server_pid)
    [[ -n $pid ]] || break
    kill -$signal "$pid" 2>/dev/null || true
    wait_until_gone "$pid" $STOP_SECONDS_MAX || true
  done
  [[ -z $(server_pid) ]] || fail "the server in $dir (process $(server_pid)) does not stop"
  after_stop
}

kill_server() {
  local pid
  pid=$(server_pid)
  [[ -n $pid ]] || fail "no server runs in $dir"
  kill -KILL "$pid" 2>/dev/null || true
  wait_until_gone "$pid" 5 || fail "the server in $dir was killed, but process $pid does not end"
}

# ---- the command line ----

# The usage is the comment at the top of the script.
usage() {
  sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
}

main() {
  local verb=${1:-}
  case $verb in
    -h | --help | help)
      usage
      exit 0
      ;;
    install)
      (($# == 1)) || fail "install takes no argument; see $self --help" $EXIT_USAGE
      install_once
      exit 0
      ;;
    start | url | stop | kill | restart)
      [[ $# == 2 && -n $2 ]] || fail "$verb needs a folder; see $self --help" $EXIT_USAGE
      ;;
    *)
      fail "unknown verb '${verb}'; see $self --help" $EXIT_USAGE
      ;;
  esac
  open_folder "$verb" "$2"

  case $verb in
    url) url ;;
    start) install_once; prepare; start ;;
    restart) needed; prepare; restart ;;
    kill) prepare; kill_server ;;   # at once: the programs are not needed
    stop)
      [[ -d $dir/data ]] || exit 0
      prepare
      stop
      ;;
  esac
}

needed() {
  installed || fail "no $name server was found; run $self install" $EXIT_UNAVAILABLE
}

# open_folder VERB FOLDER: sets $dir.
open_folder() {
  dir=$2
  if [[ $1 == start ]]; then
    mkdir -p "$dir" || fail "cannot create $dir"
  elif [[ ! -d $dir ]]; then
    [[ $1 != stop ]] || exit 0
    fail "there is no folder $dir"
  fi
  dir=$(cd "$dir" && pwd -P)
  cd /   # the caller's folder may be closed to the server's user
}
