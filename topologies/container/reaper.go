package container

import (
	"fmt"
	"io"
	"os/exec"

	"github.com/lockchaos/lockchaos/topologies/internal/scratch"
)

// reaperScript removes what a killed harness left: the containers and networks
// with its label, and its folder. It waits for the end of its input, which
// comes when the harness dies in whatever way; one that has tidied up itself
// says so before. The engine may still carry out what it was asked for by a
// harness that is dead by now, so the reaper stays until nothing has turned up
// for three seconds.
const reaperScript = `
trap '' INT TERM HUP QUIT
docker=$1 host=$2 label=$3 dir=$4
while read -r word; do [ "$word" = tidy ] && exit 0; done
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

// A reaper is a process that outlives a killed harness to tidy up.
type reaper struct {
	cmd   *exec.Cmd
	input io.WriteCloser
}

// startReaper must come before anything that it is to remove. It does so with
// the docker command, of which it gets the path.
func startReaper(docker, host, label, dir string) (*reaper, error) {
	cmd, input, err := scratch.Reaper(reaperScript, docker, host, label, dir)
	if err != nil {
		return nil, err
	}
	return &reaper{cmd: cmd, input: input}, nil
}

// close dismisses the reaper: with nothing left to do if everything is tidy,
// else it tries what we could not do. close does not wait for that.
func (r *reaper) close(tidy bool) error {
	if tidy {
		if _, err := io.WriteString(r.input, "tidy\n"); err != nil {
			return fmt.Errorf("dismiss reaper: %w", err)
		}
	}
	if err := r.input.Close(); err != nil {
		return fmt.Errorf("dismiss reaper: %w", err)
	}
	if !tidy {
		return r.cmd.Process.Release()
	}
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("dismiss reaper: %w", err)
	}
	return nil
}
