//go:build linux

package attach_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockchaos/lockchaos/adapters/etcd"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/attach"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
	"github.com/lockchaos/lockchaos/topologies/internal/scratch"
	"github.com/lockchaos/lockchaos/topologies/process"
	"github.com/lockchaos/lockchaos/topologies/topologiestest"
)

// An ensemble is a consensus store that somebody else runs: nothing stands between its
// members.
type ensemble struct {
	topology topologies.Topology
	store    bootstrap.Consensus
	at       map[string]bootstrap.Address
	kills    map[string]func()
}

// program is the server program of a topology. Without it the test is skipped.
func program(t *testing.T, topology string) process.Binary {
	t.Helper()
	runtest.NeedStore(t, topologies.StoreOf(topology))
	binary, err := process.Find(t.Context(), topologies.StoreOf(topology))
	require.NoError(t, err)
	return binary
}

// runEnsemble starts the members and waits until they have a leader.
func runEnsemble(t *testing.T, name string) *ensemble {
	t.Helper()
	binary := program(t, name)
	topology, err := topologies.ByName(name)
	require.NoError(t, err)
	e := &ensemble{topology, bootstrap.NewConsensus(topology.Store()), map[string]bootstrap.Address{}, map[string]func(){}}
	for _, member := range topology.Servers() {
		at := netip.AddrPortFrom(ownAddress(), nextPort())
		bus := nextPort()
		e.at[member] = bootstrap.Address{Listen: at, Announced: at, Bus: bus, AnnouncedBus: bus, Election: nextPort()}
	}
	for _, member := range topology.Servers() {
		e.kills[member] = runMember(t, binary, e.store.Configure(topology, member, e.at))
	}
	ctx := within(t)
	require.NoError(t, await.Until(ctx, func() error {
		for _, at := range e.at {
			s, err := e.store.State(ctx, at)
			if err != nil {
				return err
			}
			if s.Leader == "" {
				return fmt.Errorf("%s has no leader", at.Listen)
			}
		}
		return nil
	}))
	return e
}

// runMember runs a member until it is killed, as its owner might, or the test ends.
func runMember(t *testing.T, binary process.Binary, c bootstrap.Config) (kill func()) {
	t.Helper()
	folder, err := scratch.MakeFast("attach") // a busy disk costs a leader its office
	require.NoError(t, err)
	require.NoError(t, c.Write(folder.Path))
	out, err := os.Create(filepath.Join(folder.Path, "log"))
	require.NoError(t, err)
	defer out.Close()
	cmd := exec.Command(binary.Path, slices.Concat(binary.Args, c.Args)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = folder.Path, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(func() {
		kill()
		if t.Failed() {
			t.Logf("%s: %s", folder.Path, bootstrap.TailLog(out.Name()))
		}
		require.NoError(t, folder.Close())
	})
	return kill
}

// endpoints are those of all members, in order.
func (e *ensemble) endpoints() []string {
	return names.Of(e.topology.Servers(), func(name string) string { return e.at[name].Announced.String() })
}

func (e *ensemble) backend() attach.Backend { return attach.Backend{Endpoints: e.endpoints()} }

func (e *ensemble) attached(t *testing.T, b attach.Backend) topologies.Deployment {
	t.Helper()
	d, err := b.Start(within(t), topologies.Topology{Name: e.topology.Name})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// Members of one store serve one test after another: only one run at a time has them.
func TestMembers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{topologies.EtcdCluster, topologies.ZooKeeperEnsemble} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := runEnsemble(t, name)
			t.Run("are found out", func(t *testing.T) { membersAreFoundOut(t, e) })
			t.Run("are left as they were", func(t *testing.T) { membersAreLeftAsTheyWere(t, e) })
			if name == topologies.EtcdCluster {
				t.Run("faults", func(t *testing.T) { faultsOfMembers(t, e) })
				t.Run("of two clusters", func(t *testing.T) { membersOfTwoClusters(t, e) })
			}
			t.Run("want a user", func(t *testing.T) { membersWantAUser(t, e) })
			t.Run("are refused", func(t *testing.T) { membersAreRefused(t, e) })
		})
	}
}

// Members that run already have links of the clients' own, and nothing else can be done
// to them.
func membersAreFoundOut(t *testing.T, e *ensemble) {
	t.Helper()
	d := e.attached(t, e.backend())
	require.Equal(t, e.topology.Nodes, d.Topology().Nodes)
	require.Len(t, d.Topology().Links, 2*len(e.at))
	require.Regexp(t, `^\d+\.\d+\.\d+$`, d.Version())
	require.Equal(t, e.topology.Store(), d.Product())

	leader := topologiestest.MasterOf(within(t), t, d, d.Topology().Shards()[0])
	require.Contains(t, e.topology.Servers(), leader)
	watching, stop := context.WithCancel(within(t))
	leads := make(chan string, 100)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		d.Watch(watching, func(o topologies.Observation) {
			if o.Value == topologies.Leader {
				leads <- o.Node
			}
		})
	}()
	require.Equal(t, leader, <-leads)
	stop()
	<-watched

	without := d.Unsupported()
	require.Contains(t, without[topologies.Processes], "out of its reach")
	require.Contains(t, without[topologies.Isolation], "past lockchaos' proxies")
	require.Contains(t, without, topologies.Clocks)
	require.NotContains(t, without, topologies.Proxies)
	s := d.Server(leader)
	for _, do := range []func(context.Context) error{s.Kill, s.Restart, s.Pause, s.Resume} {
		require.ErrorContains(t, do(within(t)), without[topologies.Processes])
	}
	require.ErrorContains(t, s.Observer().Ping(within(t)).Err(), "is no Redis server")
	require.Error(t, d.Empty(within(t)))
	require.Error(t, d.Promote(within(t), d.Topology().Shards()[0]), "nothing gave leave to move the leader")

	o := d.ClientOptions("zone-a")
	require.ElementsMatch(t, e.endpoints(), o.Addrs)
	_, err := o.Dialer(within(t), "tcp", "127.0.0.1:1")
	require.ErrorContains(t, err, "no member", "nothing is dialled past the links")
	w := d.Proxy("zone-a>" + leader)
	mend := w.Cut()
	_, err = w.Probe(within(t))
	require.Error(t, err)
	_, err = d.Proxy("zone-b>" + leader).Probe(within(t))
	require.NoError(t, err, "each zone has links of its own")
	mend()
	_, err = w.Probe(within(t))
	require.NoError(t, err)
	require.Nil(t, d.Proxy(leader+">"+e.topology.Servers()[0]))
}

// A run leaves nothing behind, whatever faults there were, and touches nothing of others.
func membersAreLeftAsTheyWere(t *testing.T, e *ensemble) {
	t.Helper()
	lock := map[string]string{topologies.EtcdCluster: "etcd-mutex", topologies.ZooKeeperEnsemble: "zookeeper-lock"}[e.topology.Name]
	e.write(t, "/lockchaos-of-others")
	e.write(t, "/lockchaos")
	e.write(t, "/lockchaos/of-others")
	before := e.keys(t)
	require.Len(t, before, 3)
	var notices []string
	dir := t.TempDir()
	setup := harness.Config{Dir: dir, Backend: e.backend(), Seed: 1, Notice: func(what string) { notices = append(notices, what) }}
	r := harness.RandomRun{Topology: e.topology.Name, Lock: lockNamed(t, lock), Length: 2 * time.Second}
	require.NoError(t, r.Run(t.Context(), setup))
	require.Equal(t, before, e.keys(t))

	said := strings.Join(notices, "\n")
	require.Contains(t, said, "can't be done here: "+"the processes of members")
	require.Regexp(t, `partition \S+-1 or .*, partition-halves can't be done here: \S+-1 and \S+-2 reach each other past lockchaos' proxies`, said)
	events, err := os.ReadFile(filepath.Join(dir, history.EventsFile))
	require.NoError(t, err)
	require.Regexp(t, `"type":"ok","op":"inject"`, injections(events))
	require.Contains(t, string(events), `"type":"ok","op":"acquire"`)
}

// What can't be done to members is refused before anything is done, and what can takes
// effect.
func faultsOfMembers(t *testing.T, e *ensemble) {
	t.Helper()
	leave := e.backend()
	leave.Yes = true
	run := func(b attach.Backend, kind string) error {
		r := harness.RandomRun{Topology: e.topology.Name, Lock: lockNamed(t, "etcd-mutex"), Length: time.Second, Faults: kind}
		dir := filepath.Join(t.TempDir(), "run")
		err := r.Run(t.Context(), harness.Config{Dir: dir, Backend: b, Seed: 1})
		if err != nil {
			require.NoDirExists(t, dir)
			return err
		}
		events, err := os.ReadFile(filepath.Join(dir, history.EventsFile))
		require.NoError(t, err)
		require.Regexp(t, `"type":"ok","op":"inject"`, injections(events))
		return nil
	}
	for fault, why := range map[string]string{
		"kill": "out of its reach", "pause": "out of its reach", "crash-failover": "out of its reach", "split-brain": "past lockchaos' proxies",
		"partition-halves": "etcd-1 and etcd-2 reach each other past lockchaos' proxies", "failover": "--yes",
	} {
		require.ErrorContains(t, run(e.backend(), fault), why, fault)
	}
	const script = "name: x\ntitle: y\nlock: etcd-mutex\ntopology: etcd\nclients: {a: zone-a}\nexpect: {verdict: valid}\n" +
		"steps:\n  - {client: a, acquire: l}\n  - {inject: %s}\n"
	for fault, why := range map[string]string{
		"cut, target: peer":                "no link of topology etcd is called \"peer\"",
		"'partition', target: etcd-1":      "etcd-1 and etcd-2 reach each other past lockchaos' proxies",
		"stall, target: \"etcd-1>etcd-2\"": "no link of topology etcd is called",
		"pause, target: etcd-1":            "out of its reach",
	} {
		require.ErrorContains(t, play(t, e.backend(), fmt.Sprintf(script, fault)), why, fault)
	}
	require.NoError(t, run(e.backend(), "cut,stall,partition"))
	require.NoError(t, run(leave, "failover"), "a mix of which something is possible")
	require.ErrorContains(t, run(leave, "failover,process"), "kill, pause, restart can't be done here")
	const handOver = "  - {inject: failover}\n  - {client: a, release: l}\n"
	head, _, _ := strings.Cut(script, "  - {inject")
	require.ErrorContains(t, play(t, e.backend(), head+handOver), "--yes")
	require.NoError(t, play(t, leave, head+handOver))
}

// What members can't be attached to for is said in a sentence.
func membersAreRefused(t *testing.T, e *ensemble) {
	t.Helper()
	name := e.topology.Name
	silent := listener(t, func(c net.Conn) { t.Cleanup(func() { _ = c.Close() }) })
	rude := listener(t, func(c net.Conn) { _ = c.Close() })
	redis := install(t, topologies.Single)
	good := e.endpoints()
	member := e.topology.Store() + " member"
	with := func(third string) attach.Backend { return attach.Backend{Endpoints: []string{good[0], good[1], third}} }
	tests := []struct {
		backend attach.Backend
		want    string
	}{
		{with("127.0.0.1:1"), "nothing listens at 127.0.0.1:1"},
		{with(silent), silent + " does not answer within 3s"},
		{with(rude), rude + " closed the connection: it is no " + member + ", or wants TLS"},
		{with(redis.endpoint("redis-1")), redis.endpoint("redis-1")},
		{with(good[0]), "endpoint " + good[0] + " is named twice"},
		{with(strings.Replace(good[0], ownAddress().String(), "[::ffff:"+ownAddress().String()+"]", 1)), "are the same member"},
		{attach.Backend{Endpoints: good[:2]}, "topology " + name + " has 3 or 5 members, not 2"},
		{attach.Backend{Endpoints: good, Toxiproxy: "127.0.0.1:1"}, "without a toxiproxy"},
		{attach.Backend{Endpoints: good, TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, "without TLS"},
		{attach.Backend{Endpoints: good, Username: "u", Password: "secret"}, "without a user"},
	}
	t.Run("at once", func(t *testing.T) { // most of their time is waiting
		for _, tt := range tests {
			t.Run(tt.want, func(t *testing.T) {
				t.Parallel()
				refused(t, tt.backend, name, tt.want)
			})
		}
	})

	t.Run("another run", func(t *testing.T) {
		d := e.attached(t, e.backend())
		refused(t, e.backend(), name, "another run drives this deployment: process ")
		require.NoError(t, d.Close())
		require.NoError(t, e.attached(t, e.backend()).Close())
	})
	e.kills[e.topology.Servers()[0]]()
	e.kills[e.topology.Servers()[1]]()
	refused(t, e.backend(), name, "nothing listens at ")
}

// Members that do not let every client in are refused, and left as they were.
func membersWantAUser(t *testing.T, e *ensemble) {
	t.Helper()
	before := e.keys(t)
	if e.topology.Name == topologies.EtcdCluster {
		c := e.etcd(t)
		_, err := c.UserAdd(within(t), "root", "secret")
		require.NoError(t, err)
		_, err = c.UserGrantRole(within(t), "root", "root")
		require.NoError(t, err)
		_, err = c.AuthEnable(within(t))
		require.NoError(t, err)
		refused(t, e.backend(), e.topology.Name, "it wants a user and a password")
		c, err = clientv3.New(clientv3.Config{Endpoints: e.endpoints(), Username: "root", Password: "secret", Logger: zap.NewNop()})
		require.NoError(t, err)
		defer c.Close()
		_, err = c.AuthDisable(within(t))
		require.NoError(t, err)
	} else {
		c := e.zookeeper(t)
		_, err := c.SetACL("/", zk.WorldACL(zk.PermRead|zk.PermAdmin), -1)
		require.NoError(t, err)
		refused(t, e.backend(), e.topology.Name, "it does not permit every client what is needed")
		_, err = c.SetACL("/", zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
	}
	require.Equal(t, before, e.keys(t))
	require.NoError(t, e.attached(t, e.backend()).Close())
}

// A member that speaks TLS is told from one that is no member.
func TestAMemberThatWantsTLSIsRefused(t *testing.T) {
	t.Parallel()
	certificate, key, _ := certify(t)
	var all, urls []string
	for range 4 {
		at := netip.AddrPortFrom(ownAddress(), nextPort()).String()
		all, urls = append(all, at), append(urls, "https://"+at)
	}
	clients, peer := strings.Join(urls[:3], ","), "http://"+all[3]
	runMember(t, program(t, topologies.EtcdCluster), bootstrap.Config{Args: []string{
		"--data-dir", "data", "--logger", "zap", "--cert-file", certificate, "--key-file", key,
		"--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer,
	}})
	require.NoError(t, await.Until(within(t), func() error {
		for _, at := range all[:3] {
			c, err := net.Dial("tcp", at)
			if err != nil {
				return err
			}
			require.NoError(t, c.Close())
		}
		return nil
	}))
	refused(t, attach.Backend{Endpoints: all[:3]}, topologies.EtcdCluster, "wants TLS")
}

// Members of two clusters are no cluster.
func membersOfTwoClusters(t *testing.T, e *ensemble) {
	t.Helper()
	one, other := e.endpoints(), runEnsemble(t, topologies.EtcdCluster).endpoints()
	refused(t, attach.Backend{Endpoints: slices.Concat(one, other[:2])}, topologies.EtcdCluster, "is one of 3 members, and 5 endpoints were given")
	refused(t, attach.Backend{Endpoints: []string{one[0], one[1], other[2]}}, topologies.EtcdCluster, other[2]+" is of another cluster than "+one[1])
}

// write makes a key, or a node, of somebody else's.
func (e *ensemble) write(t *testing.T, key string) {
	t.Helper()
	if e.topology.Name == topologies.EtcdCluster {
		_, err := e.etcd(t).Put(within(t), key, "of others")
		require.NoError(t, err)
		return
	}
	_, err := e.zookeeper(t).Create(key, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
}

// keys are all that there are.
func (e *ensemble) keys(t *testing.T) (all []string) {
	t.Helper()
	if e.topology.Name == topologies.EtcdCluster {
		found, err := e.etcd(t).Get(within(t), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		require.NoError(t, err)
		for _, kv := range found.Kvs {
			all = append(all, string(kv.Key))
		}
		return all
	}
	c := e.zookeeper(t)
	var under func(node string)
	under = func(node string) {
		if node == "/zookeeper" {
			return
		}
		if node != "" {
			all = append(all, node)
		}
		children, _, err := c.Children(cmp.Or(node, "/"))
		require.NoError(t, err)
		slices.Sort(children)
		for _, child := range children {
			under(node + "/" + child)
		}
	}
	under("")
	return all
}

// etcd and zookeeper are clients of somebody else's.
func (e *ensemble) etcd(t *testing.T) *clientv3.Client {
	t.Helper()
	c, err := etcd.Dial(e.endpoints()...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func (e *ensemble) zookeeper(t *testing.T) *zk.Conn {
	t.Helper()
	c, events, err := zk.Connect(e.endpoints()[:1], 10*time.Second, zk.WithLogInfo(false))
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		for range events {
		}
	})
	_, err = c.Sync("/")
	require.NoError(t, err)
	return c
}
