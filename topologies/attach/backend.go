package attach

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
)

// ErrUsage says that the named servers can't be attached to, for a reason that the
// user can mend: nothing answers there, the password is wrong, the deployment is
// of another kind, or it isn't whole.
var ErrUsage = errors.New("can't attach")

// Backend attaches to a deployment that runs already. At least one of
// Endpoints, Toxiproxy and Compose must be given.
type Backend struct {
	// Endpoints are addresses of servers, HOST:PORT: of any sentinels for the
	// topology sentinel, of any nodes for cluster, of the one server for single,
	// and of all for independent, and of all members of a consensus store, in the
	// order in which they get their names.
	// Empty: those that the proxies stand for.
	Endpoints []string
	// MasterName is how the sentinels call what they watch. Empty: the only one
	// that they watch.
	MasterName string
	// Username and Password are those of Redis servers; both empty for none, and
	// the username alone for the default user.
	Username, Password string
	// SentinelUsername and SentinelPassword are those of the sentinels, which
	// have users of their own. Empty: none.
	SentinelUsername, SentinelPassword string
	// TLS is how servers and sentinels are spoken to. Nil: without TLS. A config
	// without a ServerName expects the host of the address that is dialled.
	TLS *tls.Config
	// Toxiproxy is the address of a toxiproxy's HTTP API, HOST:PORT, whose
	// proxies are named as links are: "zone-a>redis-1". Empty: the one of the
	// compose project, if there is one, else none, and then no link can be
	// broken.
	Toxiproxy string
	// Compose is the name of the compose project whose containers the servers
	// are. Empty: none, and then no server can be killed or paused.
	Compose string
	// Yes allows what hurts those who use the deployment: faults of links and
	// processes, and failovers. Without it only a workload can be run.
	Yes bool
	// Log gets a line for everything that is found and done. Nil: none.
	Log *slog.Logger
}

// Validate joins everything that is wrong with what was typed; it sends no request.
// Its errors, all of them [ErrUsage], repeat no password.
func (b Backend) Validate() error {
	var errs []error
	problem := func(format string, args ...any) { errs = append(errs, usage(format, args...)) }
	if len(b.Endpoints) == 0 && b.Toxiproxy == "" && b.Compose == "" {
		problem("no endpoint, toxiproxy or compose project is named")
	}
	seen := map[string]bool{}
	for i, e := range b.Endpoints {
		switch err := checkAddress(e); {
		case err != nil:
			problem("endpoint %d %w", i+1, err)
		case seen[e]:
			problem("endpoint %s is named twice", e)
		}
		seen[e] = true
	}
	if b.Toxiproxy != "" {
		if err := checkAddress(b.Toxiproxy); err != nil {
			problem("the address of toxiproxy %w", err)
		}
	}
	if b.Username != "" && b.Password == "" {
		problem("user %s has no password", b.Username)
	}
	if b.SentinelUsername != "" && b.SentinelPassword == "" {
		problem("user %s of the sentinels has no password", b.SentinelUsername)
	}
	return errors.Join(errs...)
}

// checkAddress wants HOST:PORT. Where something else may be a password, as in
// redis://user:password@host, it does not repeat it.
func checkAddress(address string) error {
	if strings.Contains(address, "@") {
		return errors.New("is not HOST:PORT: it has a user in it")
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return fmt.Errorf("is not HOST:PORT: %q", address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("has no port from 1 to 65535: %q", address)
	}
	return nil
}

// usage is an error that is [ErrUsage].
func usage(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUsage, fmt.Errorf(format, args...))
}

// errUnsettled says that a deployment isn't whole, which may pass.
var errUnsettled = errors.New("it is not whole")

// unsettled is an error that is [ErrUsage] if it doesn't pass.
func unsettled(format string, args ...any) error {
	return fmt.Errorf("%w, %w: %w", ErrUsage, errUnsettled, fmt.Errorf(format, args...))
}
