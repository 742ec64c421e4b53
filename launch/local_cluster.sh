#!/usr/bin/env bash
# Trains on a cluster of processes on this machine: a chief, workers and parameter servers.
#
#   launch/local_cluster.sh --flagfile=configs/quickstart.flags --workdir=/tmp/clrec-cluster
#
# All flags go to python -m clrec_tf.train. Only the chief generates, prepares, evaluates and exports. From the
# environment: WORKERS (2), PARAMETER_SERVERS (2), EVALUATOR (0; 1 starts one), LOGS (a new folder), PYTHON (python),
# NETWORK (private; host shares this machine's).
# Ends with the chief's exit code, and ends everything on Ctrl-C; on SIGTERM the chief saves a checkpoint first.
exec "${PYTHON:-python}" -m clrec_tf.training.cluster.run_locally "$@"
