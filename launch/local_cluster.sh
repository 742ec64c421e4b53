#!/usr/bin/env bash
# Trains on a cluster of processes on this machine: a chief, workers and parameter servers.
#
#   launch/local_cluster.sh --flagfile=configs/quickstart.flags --workdir=/tmp/clrec-cluster
#
# All flags go to python -m clrec_tf.train. Only the chief generates, prepares, evaluates and exports. From the
# environment: WORKERS (2), PARAMETER_SERVERS (2), EVALUATOR (0; 1 starts one), LOGS (a new folder), PYTHON (python),
# NETWORK (private; host shares this machine's).
# Ends with the chief's exit code, and ends everything on Ctrl-C; on SIGTERM the chief saves a checkpoint first.
set -euo pipefail

# TensorFlow's servers listen on all interfaces, whatever address they are given, and run any graph that they are sent.
# In a network namespace of their own there is nothing but the loopback interface, and nobody else on it.
if [ "${NETWORK:-private}" = private ]; then
  namespace=(unshare --net)
  "${namespace[@]}" true 2>/dev/null || namespace=(unshare --user --map-root-user --net)
  if ! "${namespace[@]}" true 2>/dev/null; then
    echo "error: this user may not make a network namespace (unshare --net), and without one TensorFlow's servers would" \
      "take graphs from everybody who reaches this machine: NETWORK=host allows that, behind a firewall" >&2
    exit 2
  fi
  NETWORK=loopback exec "${namespace[@]}" "$BASH" "$0" "$@"
fi

workers=${WORKERS:-2}
servers=${PARAMETER_SERVERS:-2}
python=${PYTHON:-python}
logs=${LOGS:-$(mktemp -d "${TMPDIR:-/tmp}/clrec-logs-XXXXXX")}
mkdir -p "$logs"
if [ "${NETWORK:-}" = loopback ]; then
  "$python" -c '
import fcntl, socket, struct
SIOCSIFFLAGS, IFF_UP_RUNNING = 0x8914, 0x41
fcntl.ioctl(socket.socket(), SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP_RUNNING).ljust(40, b"\0"))'
fi
echo "logs: $logs (chief.log and one for each other role)" >&2

# Free ports, all held open until all are known.
read -r -a ports < <("$python" -c "
import socket
held = [socket.socket() for _ in range(1 + $workers + $servers)]
for one in held: one.bind(('127.0.0.1', 0))
print(*(one.getsockname()[1] for one in held))")

addresses() { # first, count -> "127.0.0.1:port", …
  local list=()
  for ((i = $1; i < $1 + $2; i++)); do list+=("\"127.0.0.1:${ports[i]}\""); done
  (IFS=,; echo "${list[*]}")
}
cluster="{\"chief\": [$(addresses 0 1)], \"worker\": [$(addresses 1 "$workers")],"
cluster+=" \"ps\": [$(addresses $((1 + workers)) "$servers")]}"

pids=()
chief=
stop() {
  trap - EXIT
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do # until they have ended, 5 s at most
    for ((i = 0; i < 50; i++)); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
  done
}
trap stop EXIT
# A signal is the chief's first: it saves a checkpoint, and its end ends the others.
trap '[ -n "$chief" ] && kill -TERM "$chief"' TERM
trap '[ -n "$chief" ] && kill -INT "$chief"' INT

start() { # role, index, log, flags
  local role=$1 index=$2 log=$3
  shift 3
  TF_CONFIG="{\"cluster\": $cluster, \"task\": {\"type\": \"$role\", \"index\": $index}}" \
    TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-1} \
    setsid "$python" -m clrec_tf.train "$@" >"$log" 2>&1 &
  pids+=("$!")
  if [ "$role" != chief ]; then disown; fi  # or bash tells of their end
}
if [ "${EVALUATOR:-0}" != 0 ]; then set -- "$@" --validation_by=evaluator; fi
for ((i = 0; i < workers; i++)); do start worker "$i" "$logs/worker-$i.log" "$@"; done
for ((i = 0; i < servers; i++)); do start ps "$i" "$logs/ps-$i.log" "$@"; done
if [ "${EVALUATOR:-0}" != 0 ]; then start evaluator 0 "$logs/evaluator.log" "$@"; fi

: >"$logs/chief.log"
start chief 0 "$logs/chief.log" "$@"
chief=${pids[-1]}
echo "$chief" >"$logs/chief.pid"
tail -n +1 -f --pid="$chief" "$logs/chief.log" &
follower=$!

code=0
while true; do # a signal interrupts wait
  wait "$chief" && code=0 || code=$?
  kill -0 "$chief" 2>/dev/null || break
done
wait "$follower" 2>/dev/null || true
exit "$code"
