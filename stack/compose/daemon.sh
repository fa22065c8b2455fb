#!/usr/bin/env bash
# Start a daemon of the Hadoop in docker-compose.yaml by its name in stack/hadoop/config.py, or `history`: Spark's.
set -euo pipefail
request() { curl -fsS --retry 60 --retry-delay 1 --retry-all-errors "$@"; }
case $1 in
namenode)
  [ -e /var/lib/trainyard/namenode/current/VERSION ] || java @/etc/hadoop/namenode/java.args -format -nonInteractive
  ;;
gpunode*)
  # A node can register only with an existing label; adding one that exists changes nothing.
  request -X POST -H 'Content-Type: application/json' -d '{"nodeLabelInfo": [{"name": "gpu", "exclusivity": true}]}' \
    "http://resourcemanager:8088/ws/v1/cluster/add-node-labels?user.name=$(id -un)"
  ;;
history)
  # The NameNode refuses writes until its DataNodes have registered.
  request -X PUT "http://namenode:9870/webhdfs/v1/spark-events?op=MKDIRS&user.name=$(id -un)"
  exec spark-class org.apache.spark.deploy.history.HistoryServer
  ;;
esac
exec java "@/etc/hadoop/$1/java.args"
