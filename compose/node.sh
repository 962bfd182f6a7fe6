#!/bin/sh
# Starts one server of docker-compose.yml: `node.sh KIND NUMBER`. The servers of
# a topology share the network of its toxiproxy: one that is killed refuses
# connections at once, as a dead process on a living machine does. (The address
# of a dead container answers nobody; toxiproxy waits three seconds for it,
# serving no one else meanwhile.)
#
# A server listens on a port of its own and announces, as 127.0.0.1, the port of
# the proxy before it. The compose file publishes both under the same numbers,
# so that what a server announces can be dialled from the host too.
set -eu

kind=$1
number=$2

# The block of a hundred ports of each topology, as in the toxiproxy's file.
case $kind in
single) block=211 ;;
sentinel-redis | sentinel) block=212 ;;
cluster) block=213 ;;
independent) block=214 ;;
*)
	echo "node.sh: unknown kind $kind" >&2
	exit 1
	;;
esac
port() { echo "$block$1$2"; } # port ROW NUMBER

# redis OPTIONS...; the first may be a file.
redis() {
	file=
	case ${1:-} in /*) file=$1 && shift ;; esac
	exec redis-server $file --port "$(port 0 "$number")" --bind 0.0.0.0 --protected-mode no \
		--save "" --appendonly "${APPENDONLY:-no}" --hz 100 \
		--replica-announce-ip 127.0.0.1 --replica-announce-port "$(port 5 "$number")" \
		--repl-diskless-sync no --repl-diskless-sync-delay 0 --rdb-del-sync-files yes \
		--repl-ping-replica-period 1 --repl-timeout 5 "$@"
}

# Sentinel has a server write into its file whom it follows, so that one that
# was promoted starts again as the master.
replicated() {
	if [ ! -e /data/redis.conf ]; then
		[ "$number" -eq 1 ] || echo "replicaof 127.0.0.1 $(port 5 1)" >/data/redis.conf
		[ "$number" -ne 1 ] || : >/data/redis.conf
	fi
	redis /data/redis.conf
}

# A sentinel keeps its file, which it rewrites, when it is killed and started
# again. For tests it is quicker than by default: in production, leave
# down-after-milliseconds at 30000, failover-timeout at 180000, and the periods
# alone. A replica of which it had no news for three info periods is not good
# enough to be promoted, so that these are not as short as they could be.
sentinel() {
	file=/tmp/sentinel.conf
	if [ ! -s "$file" ]; then
		cat >"$file" <<-END
			port $(port 0 "$((number + 6))")
			bind 0.0.0.0
			protected-mode no
			dir /tmp
			sentinel announce-ip 127.0.0.1
			sentinel announce-port $(port 6 "$number")
			sentinel monitor mymaster 127.0.0.1 $(port 5 1) 2
			sentinel down-after-milliseconds mymaster 5000
			sentinel failover-timeout mymaster 5000
			sentinel parallel-syncs mymaster 2
		END
	fi
	until redis-cli -p "$(port 0 "$((number + 6))")" sentinel debug info-period 1000 \
		ask-period 100 publish-period 400 tilt-period 500 >/dev/null 2>&1; do sleep 0.05; done &
	exec redis-server "$file" --sentinel
}

# A cluster's nodes know each other from the start: nobody has to introduce
# them. redis-4 to redis-6 replicate redis-1 to redis-3.
id() { printf "%040d" "$1"; }

cluster() {
	if [ ! -s nodes.conf ]; then
		for n in 1 2 3 4 5 6; do
			myself=
			[ "$n" -ne "$number" ] || myself=myself,
			case $n in
			1) role="master - 0 0 1 connected 0-5460" ;;
			2) role="master - 0 0 2 connected 5461-10922" ;;
			3) role="master - 0 0 3 connected 10923-16383" ;;
			*) role="slave $(id "$((n - 3))") 0 0 $((n - 3)) connected" ;;
			esac
			echo "$(id "$n") 127.0.0.1:$(port 5 "$n")@$(port 7 "$n") $myself$role"
		done >nodes.conf
		echo "vars currentEpoch 3 lastVoteEpoch 0" >>nodes.conf
	fi
	redis --cluster-enabled yes --cluster-config-file nodes.conf --cluster-node-timeout 1000 \
		--cluster-port "$(port 8 "$number")" --cluster-announce-ip 127.0.0.1 \
		--cluster-announce-port "$(port 5 "$number")" --cluster-announce-bus-port "$(port 7 "$number")" \
		--cluster-require-full-coverage no --cluster-replica-validity-factor 0 --cluster-allow-replica-migration no
}

case $kind in
single | independent) redis ;;
sentinel-redis) replicated ;;
sentinel) sentinel ;;
cluster) cluster ;;
esac
