package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/attach"
	"github.com/lockchaos/lockchaos/topologies/container"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// The backends by name.
const (
	autoBackend      = "auto"
	processBackend   = "process"
	containerBackend = "container"
	attachBackend    = "attach"
)

func backendNames() []string {
	return []string{autoBackend, processBackend, containerBackend, attachBackend}
}

// The environment variables of passwords, which are no flags: those are seen by
// every user of the machine, and stand in the record of a run.
const (
	passwordVariable         = "LOCKCHAOS_REDIS_PASSWORD"
	sentinelPasswordVariable = "LOCKCHAOS_SENTINEL_PASSWORD"
)

// serverFlags say where the servers of a run are.
type serverFlags struct {
	file    string // which says some of them
	backend string
	image   string
	attach  attach.Backend

	tls, tlsInsecure bool
	tlsCA            string
}

// attachFlags are of use to the attach backend alone.
var attachFlags = []string{ //nolint:gochecknoglobals // a constant
	"endpoints", "master-name", "username", "sentinel-username", "toxiproxy", "compose", "tls", "tls-ca", "tls-insecure", "yes",
}

func (s *serverFlags) register(f *pflag.FlagSet) {
	f.StringVar(&s.backend, "backend", autoBackend, "what the servers run in: process, container, attach (servers that run already), or auto: process or container, the first that this machine can run. "+process.BinaryVariable+" names a program in place of redis-server, such as valkey-server")
	f.StringVar(&s.file, "servers", "", "a YAML file with --backend, --image and the flags of attach but --yes, without their dashes; what is typed counts")
	f.StringVar(&s.image, "image", "", "container: the image (default: the one that make image built, else "+container.OfficialImage+")")
	f.StringSliceVar(&s.attach.Endpoints, "endpoints", nil, "attach: HOST:PORT of the server, of some sentinels or cluster nodes, or of all independent servers or members")
	f.StringVar(&s.attach.MasterName, "master-name", "", "attach: the name of the master at the sentinels (default: the only one that they have)")
	f.StringVar(&s.attach.Username, "username", "", "attach: the user name at the servers; the password is read from "+passwordVariable)
	f.StringVar(&s.attach.SentinelUsername, "sentinel-username", "", "attach: the user name at the sentinels; the password is read from "+sentinelPasswordVariable)
	f.StringVar(&s.attach.Toxiproxy, "toxiproxy", "", "attach: HOST:PORT of the API of a toxiproxy whose proxies have the names of links")
	f.StringVar(&s.attach.Compose, "compose", "", "attach: the compose project of the servers (lockchaos for make up)")
	f.BoolVar(&s.tls, "tls", false, "attach: use TLS")
	f.StringVar(&s.tlsCA, "tls-ca", "", "attach: file with the certificates to trust (PEM)")
	f.BoolVar(&s.tlsInsecure, "tls-insecure", false, "attach: trust any certificate")
	f.BoolVar(&s.attach.Yes, "yes", false, "attach: allow faults that affect all users of the servers")
}

// validate joins everything that is wrong with what was typed.
func (s *serverFlags) validate(cmd *cobra.Command) error {
	inFile, err := s.readFile(cmd)
	if err != nil {
		return err
	}
	var given []string
	for _, name := range attachFlags {
		if cmd.Flag(name).Changed || slices.Contains(inFile, name) {
			given = append(given, "--"+name)
		}
	}
	if s.backend == autoBackend && len(given) > 0 {
		s.backend = attachBackend
	}
	switch {
	case s.backend == "docker", s.backend == "podman":
		err = fmt.Errorf("unknown backend %q: containers are --backend %s", s.backend, containerBackend)
	case !slices.Contains(backendNames(), s.backend):
		err = names.Unknown("backend", s.backend, backendNames())
	case s.backend == attachBackend:
		err = s.completeAttach()
	case len(given) > 0:
		err = fmt.Errorf("%s: for --backend attach only", strings.Join(given, ", "))
	}
	return errors.Join(err, refuse(s.image != "" && s.backend != containerBackend, "--image: for --backend container only"))
}

// startsOwn refuses a backend that starts no servers: those of others are not emptied.
func (s *serverFlags) startsOwn() error {
	if known := []string{autoBackend, processBackend, containerBackend}; !slices.Contains(known, s.backend) {
		return names.Unknown("backend of servers that may be emptied", s.backend, known)
	}
	return nil
}

// completeAttach adds what no flag says.
func (s *serverFlags) completeAttach() error {
	for i, e := range s.attach.Endpoints { // as clients of Redis and etcd name one
		s.attach.Endpoints[i] = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(e, "redis://"), "http://"), "/")
	}
	s.attach.Password = os.Getenv(passwordVariable)
	s.attach.SentinelPassword = os.Getenv(sentinelPasswordVariable)
	if s.tlsCA != "" || s.tlsInsecure {
		s.tls = true
	}
	if s.tls {
		s.attach.TLS = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: s.tlsInsecure} //nolint:gosec // asked for
	}
	if s.tlsCA != "" {
		pem, err := os.ReadFile(s.tlsCA)
		if err != nil {
			return fmt.Errorf("--tls-ca: %w", err)
		}
		s.attach.TLS.RootCAs = x509.NewCertPool()
		if !s.attach.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("--tls-ca: %s has no certificate in PEM form", s.tlsCA)
		}
	}
	return s.attach.Validate()
}

// openServers returns the backend that was asked for, and its name. Its servers are of a store,
// one of those that topologies name. What auto took, and why, is told once.
func (a *app) openServers(ctx context.Context, s *serverFlags, log *slog.Logger, store string) (topologies.Backend, string, error) {
	switch s.backend {
	case containerBackend:
		return container.Backend{Image: s.image, Log: log}, s.backend, nil
	case attachBackend:
		b := s.attach
		b.Log = log
		return b, s.backend, nil
	case processBackend:
		return process.Backend{Log: log}, s.backend, nil
	}
	took := func(format string, args ...any) { a.took.Do(func() { fmt.Fprintf(a.stderr, format, args...) }) }
	binary, noProcess := process.Find(ctx, store)
	if noProcess == nil {
		took("backend %s: %s %s\n", processBackend, binary.Path, binary.Version)
	}
	if noProcess == nil || store != topologies.StoreRedis || os.Getenv(process.BinaryVariable) != "" { // the user who names a binary wants that one
		return process.Backend{Log: log}, processBackend, noProcess
	}
	if _, noEngine := container.Available(ctx); noEngine != nil {
		return nil, "", fmt.Errorf("no backend can run here: processes: %w; containers: %w", noProcess, noEngine)
	}
	took("backend %s, since processes can't run here: %v\n", containerBackend, noProcess)
	return container.Backend{Log: log}, containerBackend, nil
}

// inServersFile are the flags that a file can say. --yes is none: leave to disturb the users of servers is given for each run.
func inServersFile() []string {
	return append([]string{"backend", "image"}, slices.DeleteFunc(slices.Clone(attachFlags), func(name string) bool { return name == "yes" })...)
}

// readFile sets the flags that the file of --servers says, and returns their names. What was typed counts.
func (s *serverFlags) readFile(cmd *cobra.Command) (set []string, err error) {
	if s.file == "" {
		return nil, nil
	}
	said := map[string]any{}
	err = scenarios.ReadFile(s.file, &said)
	if errors.Is(err, scenarios.ErrEmpty) {
		err = fmt.Errorf(`%s: it is empty; want flags without their dashes, such as "endpoints: [127.0.0.1:6379]"`, s.file)
	}
	if err != nil {
		return nil, fmt.Errorf("--servers: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(said)) {
		flag := cmd.Flag(name)
		if !slices.Contains(inServersFile(), name) {
			err = errors.Join(err, names.Unknown("setting", name, inServersFile()))
			continue
		}
		var words []string
		list, isList := said[name].([]any)
		if !isList {
			list = []any{said[name]}
		}
		for _, word := range list {
			words = append(words, fmt.Sprint(word))
		}
		if flag.Changed {
			continue
		}
		if wrong := flag.Value.Set(strings.Join(words, ",")); wrong != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, wrong))
		}
		set = append(set, name)
	}
	if err != nil {
		return nil, fmt.Errorf("--servers %s: %w", s.file, err)
	}
	return set, nil
}
