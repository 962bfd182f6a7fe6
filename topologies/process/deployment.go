package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/fabric"
)

// bootTimeout bounds how long a deployment may take to become ready. About a
// second is usual.
const bootTimeout = 20 * time.Second

// Backend starts topologies as local processes. Its zero value uses the
// redis-server that [FindBinary] finds.
type Backend struct{}

// A Deployment is a topology of local processes.
type Deployment struct {
	topology topologies.Topology
	binary   Binary
	slot     *slot
	dir      string
	reaper   *reaper
	fabric   *fabric.Fabric
	servers  map[string]*server
	close    func() error
}

// A ReplicatedDeployment is a deployment with sentinels, whose master can
// change. It is a [topologies.Failover].
type ReplicatedDeployment struct{ *Deployment }

// Start boots a topology and waits until it is ready. It fails with
// [topologies.ErrMissing] or [topologies.ErrTooOld] if no Redis can be run;
// when a server does not start, the error carries its last words.
func (Backend) Start(ctx context.Context, t topologies.Topology) (topologies.Deployment, error) {
	binary, err := FindBinary(ctx)
	if err != nil {
		return nil, err
	}
	d := &Deployment{topology: t, binary: binary, servers: map[string]*server{}}
	d.close = sync.OnceValue(d.tearDown)
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, fmt.Errorf("not ready after %v", bootTimeout))
	defer cancel()
	if err := d.boot(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start topology %s: %w", t.Name, err), d.Close())
	}
	if len(t.Of(topologies.Sentinel)) > 0 {
		return &ReplicatedDeployment{d}, nil
	}
	return d, nil
}

func (d *Deployment) boot(ctx context.Context) error {
	var err error
	if d.slot, err = takeSlot(); err != nil {
		return err
	}
	if d.dir, err = makeDir(); err != nil {
		return fmt.Errorf("make data folder: %w", err)
	}
	if d.reaper, err = startReaper(d.dir); err != nil {
		return errors.Join(err, os.Remove(d.dir))
	}
	parties, err := d.prepare()
	if err != nil {
		return err
	}
	if d.fabric, err = fabric.New(parties, d.topology.Links); err != nil {
		return err
	}
	// A replica that finds no master waits a second before it tries again, so
	// the master comes first.
	for _, first := range []bool{true, false} {
		group, ctx := errgroup.WithContext(ctx)
		for _, n := range d.topology.Nodes {
			s := d.servers[n.Name]
			if s == nil || (n.Role == topologies.Master) != first {
				continue
			}
			group.Go(func() error { return s.Restart(ctx) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	if err := d.tuneSentinels(ctx); err != nil {
		return err
	}
	return d.AwaitReady(ctx)
}

// makeDir makes the data folder. Its name is the one by which the kernel knows
// it, so that the reaper can tell who works in it.
func makeDir() (string, error) {
	parent, err := filepath.Abs(os.TempDir())
	if err != nil {
		return "", err
	}
	if parent, err = filepath.EvalSymlinks(parent); err != nil {
		return "", err
	}
	return os.MkdirTemp(parent, "lockchaos-")
}

// prepare gives every party its addresses and every server its arguments.
func (d *Deployment) prepare() ([]fabric.Party, error) {
	var parties []fabric.Party
	master := d.slot.virtual(1, redisPort)
	var host, sentinel, zone byte
	for _, n := range d.topology.Nodes {
		p := fabric.Party{Name: n.Name}
		var s *server
		var err error
		switch n.Kind {
		case topologies.Zone:
			zone++
			p.Source = d.slot.zone(zone)
			parties = append(parties, p)
			continue
		case topologies.Redis:
			host++
			p.Real, p.Virtual = d.slot.real(host, redisPort), d.slot.virtual(host, redisPort)
			s, err = newServer(n.Name, d.binary.Path, d.dir, p.Real, p.Virtual, d.reaper)
			if err == nil {
				s.args = redisArgs(p.Real, p.Virtual, n.Role, master)
			}
		case topologies.Sentinel:
			sentinel++
			p.Real, p.Virtual = d.slot.real(100+sentinel, sentinelPort), d.slot.virtual(100+sentinel, sentinelPort)
			s, err = newServer(n.Name, d.binary.Path, d.dir, p.Real, p.Virtual, d.reaper)
			if err == nil {
				s.args = []string{sentinelConf, "--sentinel"}
				err = writeSentinelConf(filepath.Join(s.dir, sentinelConf), p.Real, p.Virtual, master)
			}
		default:
			err = fmt.Errorf("node %s has the unknown kind %q", n.Name, n.Kind)
		}
		if err != nil {
			return nil, err
		}
		p.Source = p.Real.Addr()
		parties = append(parties, p)
		d.servers[n.Name] = s
	}
	return parties, nil
}

// Topology is what was started.
func (d *Deployment) Topology() topologies.Topology { return d.topology }

// Version is the version of the redis-server in use.
func (d *Deployment) Version() string { return d.binary.Version }

// Server returns a server or sentinel, or nil.
func (d *Deployment) Server(name string) topologies.Server {
	if s, ok := d.servers[name]; ok {
		return s
	}
	return nil
}

// Wire returns a link, or nil.
func (d *Deployment) Wire(name string) topologies.Wire {
	if w := d.fabric.Wire(name); w != nil {
		return w
	}
	return nil
}

// ClientOptions connect a zone's clients through its links.
func (d *Deployment) ClientOptions(zone string) *redis.UniversalOptions {
	from := d.slot.zone(1)
	for i, name := range d.topology.Of(topologies.Zone) {
		if name == zone {
			from = d.slot.zone(byte(i + 1))
		}
	}
	sentinels := d.topology.Of(topologies.Sentinel)
	entry := sentinels
	if len(entry) == 0 {
		entry = d.topology.Of(topologies.Redis)
	}
	var addresses []string
	for _, name := range entry {
		addresses = append(addresses, d.servers[name].virtual.String())
	}
	return clientOptions(from, addresses, len(sentinels) > 0)
}

// Dir is the folder of the processes' data; [Deployment.Close] removes it.
func (d *Deployment) Dir() string { return d.dir }

// Close ends every process, waits for them and removes their files. A second
// call returns what the first one did.
func (d *Deployment) Close() error { return d.close() }

func (d *Deployment) tearDown() error {
	var errs []error
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, s := range d.servers {
		errs = append(errs, s.Kill(ctx), s.observer.Close())
	}
	if d.fabric != nil {
		errs = append(errs, d.fabric.Close())
	}
	if d.reaper != nil {
		errs = append(errs, d.reaper.close())
	}
	if d.slot != nil {
		errs = append(errs, d.slot.release())
	}
	return errors.Join(errs...)
}
