#!/usr/bin/env bash
# Trains on a cluster of processes on this machine: a chief, workers and parameter servers.
#
#   launch/local_cluster.sh --flagfile=configs/quickstart.flags --workdir=/tmp/clrec-cluster
#
# All flags go to python -m clrec_tf.train. Only the chief generates, prepares, evaluates and exports. From the
# environment: WORKERS (2), PARAMETER_SERVERS (2), EVALUATOR (0; 1 starts one), LOGS (a new folder), PYTHON (python).
# Ends with the chief's exit code, and ends everything on Ctrl-C; on SIGTERM the chief saves a checkpoint first.
set -euo pipefail

workers=${WORKERS:-2}
servers=${PARAMETER_SERVERS:-2}
python=${PYTHON:-python}
logs=${LOGS:-$(mktemp -d "${TMPDIR:-/tmp}/clrec-logs-XXXXXX")}
mkdir -p "$logs"
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
