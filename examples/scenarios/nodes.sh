#!/bin/sh
# Systems of several nodes on one machine: each node is a process in a network namespace of its own, and all are joined by a bridge
# in one more namespace, the hub, from where clients and Elench reach them. Nothing of it touches the machine's own network.
# Needs root, iproute2, and the system itself (Debian: etcd-server and etcd-client, or redis).
#
#   sh nodes.sh up etcd         three etcd nodes, 10.231.7.1 to 10.231.7.3; the first one leads
#   sh nodes.sh up redis        a Redis primary, 10.231.7.1, its replica, 10.231.7.2, and an operator that fails over
#   sh nodes.sh exec COMMAND    runs a command in the hub: sh nodes.sh exec elench run examples/scenarios/etcd_leader_kill.md
#   sh nodes.sh lead            makes the first etcd node lead
#   sh nodes.sh start etcd N    starts an etcd node again that was killed
#   sh nodes.sh down            ends everything
#
# Elench breaks only what is listed: .elench/config.toml needs the line  sandbox = ["10.231.7.0/24"]
# NODES names another set beside this one; it begins the names of its namespaces and of its directory below /run.
set -eu

NODES=${NODES:-elench-nodes}
NET=10.231.7
DIR=/run/$NODES
HUB=$NODES-hub

# A namespace, joined to the hub.
node() {
  ip netns add "$NODES-$1"
  ip link add "v$1" netns "$HUB" type veth peer name eth0 netns "$NODES-$1"
  ip -n "$HUB" link set "v$1" master br0 up
  ip -n "$NODES-$1" address add "$NET.$1/24" dev eth0
  ip -n "$NODES-$1" link set eth0 up
  ip -n "$NODES-$1" link set lo up
}

network() {
  mkdir -m 700 "$DIR"
  ip netns add "$HUB"
  ip -n "$HUB" link set lo up
  ip -n "$HUB" link add br0 type bridge
  ip -n "$HUB" address add "$NET.254/24" dev br0
  ip -n "$HUB" link set br0 up
  for i in $1; do node "$i"; done
}

# Starts a process in a namespace; its number goes to a file.
start() {
  place=$1 name=$2
  shift 2
  setsid ip netns exec "$place" "$@" </dev/null >"$DIR/$name.log" 2>&1 &
  echo $! >"$DIR/$name.pid"
}

hub() { ip netns exec "$HUB" "$@"; }

# Tries something until it works, for half a minute.
until_it_works() {
  for _ in $(seq 150); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.2
  done
  echo "nodes.sh: this did not work: $*" >&2
  exit 1
}

etcd_node() {
  start "$NODES-$1" "n$1" etcd --name "n$1" --data-dir "$DIR/n$1" --logger zap \
    --listen-client-urls "http://$NET.$1:2379" --advertise-client-urls "http://$NET.$1:2379" \
    --listen-peer-urls "http://$NET.$1:2380" --initial-advertise-peer-urls "http://$NET.$1:2380" \
    --initial-cluster "n1=http://$NET.1:2380,n2=http://$NET.2:2380,n3=http://$NET.3:2380"
}

# The first column of a node's status is its endpoint, the second its id, the fifth whether it leads.
lead() {
  all="http://$NET.1:2379,http://$NET.2:2379,http://$NET.3:2379"
  status=$(hub etcdctl --endpoints "$all" endpoint status | tr -d ' ')
  leader=$(echo "$status" | awk -F, '$5 == "true" { print $1; exit }')
  first=$(echo "$status" | awk -F, -v e="http://$NET.1:2379" '$1 == e { print $2 }')
  [ -n "$leader" ] && [ -n "$first" ]
  [ "$leader" = "http://$NET.1:2379" ] || hub etcdctl --endpoints "$leader" move-leader "$first"
}

first_leads() {
  hub etcdctl --endpoints "http://$NET.1:2379" endpoint status | tr -d ' ' | awk -F, '$5 != "true" { exit 1 }'
}

lead_and_look() { lead && first_leads; }

redis_node() {
  i=$1
  shift
  start "$NODES-$i" "n$i" redis-server --port 6379 --bind "$NET.$i" --protected-mode no --save "" --appendonly no --dir "$DIR" \
    --repl-timeout 3 --repl-ping-replica-period 1 --repl-diskless-sync-delay 0 "$@"
}

ask() { redis-cli -h "$NET.$1" "$2" $3 $4; }

linked() { hub redis-cli -h "$NET.2" info replication | grep -q master_link_status:up; }

# Runs in the hub. Where the replica has lost its primary, it becomes the primary, and clients are sent over from the old one. What
# the old one acknowledged in the meantime is lost: that is what asynchronous replication means.
operate() {
  lost=0
  while [ "$lost" -lt 3 ]; do
    sleep 0.3
    if ask 2 info replication "" | grep -q master_link_status:down; then lost=$((lost + 1)); else lost=0; fi
  done
  ask 2 replicaof no one
  ask 1 replicaof "$NET.2" 6379
  ask 1 client kill "type normal"
}

# Says how to list the nodes, where they are not.
listed() {
  grep -qs "$NET" .elench/config.toml ||
    echo "Elench breaks only what is listed. To list these nodes: mkdir -p .elench && echo 'sandbox = [\"$NET.0/24\"]' >>.elench/config.toml"
}

down() {
  for file in "/run/netns/$NODES-"*; do
    [ -e "$file" ] || continue
    place=${file##*/}
    pids=$(ip netns pids "$place" || true)
    # shellcheck disable=SC2086
    [ -z "$pids" ] || kill -KILL $pids 2>/dev/null || true
    ip netns delete "$place"
  done
  rm -rf "$DIR"
}

case "${1:-} ${2:-}" in
"up etcd")
  network "1 2 3"
  for i in 1 2 3; do etcd_node $i; done
  until_it_works lead_and_look
  listed
  ;;
"up redis")
  network "1 2"
  redis_node 1
  redis_node 2 --replicaof "$NET.1" 6379
  until_it_works linked
  start "$HUB" operator env NODES="$NODES" sh "$0" operate
  listed
  ;;
"start etcd") etcd_node "$3" ;;
"lead "*) until_it_works lead_and_look ;;
"operate "*) operate ;;
"exec "?*)
  shift
  hub "$@"
  ;;
"down "*) down ;;
*)
  sed -n 's/^# \{0,1\}//p' "$0"
  exit 2
  ;;
esac
