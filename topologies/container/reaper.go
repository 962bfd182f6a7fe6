package container

// reaperScript removes what a killed harness left: the containers and networks
// with its label, and its folder. It waits for the end of its input, which
// comes when the harness dies in whatever way; one that has tidied up itself
// says so before. The engine may still carry out what it was asked for by a
// harness that is dead by now, so the reaper stays until nothing has turned up
// for three seconds. Without the docker command it can do nothing, and only [Clean] is left.
const reaperScript = `
trap '' INT TERM HUP QUIT
docker=$1 host=$2 label=$3 dir=$4
while read -r word; do [ "$word" = tidy ] && exit 0; done
[ -n "$docker" ] || exit 0
quiet=0 tries=0
while [ "$quiet" -lt 10 ] && [ "$tries" -lt 200 ]; do
	tries=$((tries + 1))
	if containers=$("$docker" -H "$host" ps -aq --filter "label=$label") &&
		networks=$("$docker" -H "$host" network ls -q --filter "label=$label") &&
		[ -z "$containers$networks" ]
	then
		quiet=$((quiet + 1))
		sleep 0.3
		continue
	fi
	quiet=0
	[ -z "$containers" ] || "$docker" -H "$host" rm -fv $containers
	[ -z "$networks" ] || "$docker" -H "$host" network rm $networks
	sleep 0.1
done
rm -rf -- "$dir"
`

// tidy is what it is told.
const tidy = "tidy"
