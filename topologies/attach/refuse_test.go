//go:build linux

package attach_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/attach"
)

// refused checks that attaching is refused for a reason that the user can do
// something about, in one line and without any password.
func refused(t *testing.T, b attach.Backend, topology, want string) {
	t.Helper()
	d, err := b.Start(within(t), topologies.Topology{Name: topology})
	if d != nil {
		require.NoError(t, d.Close())
	}
	require.ErrorIs(t, err, attach.ErrUsage)
	require.ErrorContains(t, err, want)
	require.NotContains(t, err.Error(), "secret")
	require.NotContains(t, err.Error(), "\n")
}

func TestValidateRefuses(t *testing.T) {
	t.Parallel()
	one := []string{"127.0.0.1:6379"}
	tests := []struct {
		backend attach.Backend
		want    string
	}{
		{attach.Backend{}, "no endpoint, toxiproxy or compose project"},
		{attach.Backend{Endpoints: []string{"localhost"}}, `endpoint 1 is not HOST:PORT: "localhost"`},
		{attach.Backend{Endpoints: []string{"localhost:6379", ":6379"}}, "endpoint 2 is not HOST:PORT"},
		{attach.Backend{Endpoints: []string{"localhost:0"}}, "endpoint 1 has no port from 1 to 65535"},
		{attach.Backend{Endpoints: []string{"localhost:redis"}}, "endpoint 1 has no port from 1 to 65535"},
		{attach.Backend{Endpoints: []string{"redis://chaos:secret@localhost:6379"}}, "endpoint 1 is not HOST:PORT: it has a user in it"},
		{attach.Backend{Endpoints: []string{"redis://localhost:6379"}}, "endpoint 1 is not HOST:PORT"},
		{attach.Backend{Endpoints: []string{"a:1", "b:1", "a:1"}}, "endpoint a:1 is named twice"},
		{attach.Backend{Toxiproxy: "http://localhost:8474"}, "the address of toxiproxy is not HOST:PORT"},
		{attach.Backend{Endpoints: one, Username: "chaos"}, "user chaos has no password"},
		{attach.Backend{Endpoints: one, SentinelUsername: "chaos"}, "user chaos of the sentinels has no password"},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			err := tt.backend.Validate()
			require.ErrorIs(t, err, attach.ErrUsage)
			require.ErrorContains(t, err, tt.want)
			require.NotContains(t, err.Error(), "secret")
		})
	}
	require.NoError(t, attach.Backend{Endpoints: []string{"[::1]:6379", "redis-1.example:6379"}, Toxiproxy: "localhost:8474"}.Validate())
	require.NoError(t, attach.Backend{Compose: "lockchaos"}.Validate())
}

// listener is a server that is no Redis.
func listener(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
		}
	}()
	return l.Addr().String()
}

// forward passes a connection on to a server.
func forward(c net.Conn, at string) {
	to, err := net.Dial("tcp", at)
	if err != nil {
		_ = c.Close()
		return
	}
	go func() { _, _ = io.Copy(to, c); _ = to.Close() }()
	go func() { _, _ = io.Copy(c, to); _ = c.Close() }()
}

func serversThatCantBeTalkedTo(t *testing.T, i *installation) {
	t.Helper()
	good := i.backend()
	at := i.endpoint("redis-1")
	silent := listener(t, func(c net.Conn) { t.Cleanup(func() { _ = c.Close() }) })
	rude := listener(t, func(c net.Conn) { _ = c.Close() })
	var met atomic.Bool
	demoted := listener(t, func(c net.Conn) { // as a server that a sentinel makes a replica: the first connection is ended
		if !met.Swap(true) {
			_ = c.Close()
			return
		}
		forward(c, at)
	})
	stranger := listener(t, func(c net.Conn) {
		defer c.Close()
		_, _ = bufio.NewReader(c).ReadString('\n')
		_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	})
	tests := []struct {
		backend        attach.Backend
		topology, want string
	}{
		{i.with(func(b *attach.Backend) { b.Endpoints = []string{"127.0.0.1:1"} }), topologies.Single, "nothing listens at 127.0.0.1:1"},
		{i.with(func(b *attach.Backend) { b.Endpoints = []string{silent} }), topologies.Single, silent + " does not answer within"},
		{i.with(func(b *attach.Backend) { b.Endpoints = []string{rude} }), topologies.Single, rude + " closed the connection"},
		{i.with(func(b *attach.Backend) { b.Endpoints = []string{demoted} }), topologies.Cluster, demoted + " is a server on its own, where topology cluster has a node of a cluster"},
		{i.with(func(b *attach.Backend) { b.Endpoints = []string{stranger} }), topologies.Single, stranger + " can't be asked"},
		// No name of a host, so that no resolver is asked, who may be away.
		{i.with(func(b *attach.Backend) { b.Endpoints = []string{"no..where:6379"} }), topologies.Single, "no..where:6379 can't be asked"},
		{i.with(func(b *attach.Backend) { b.Password = "wrong-secret" }), topologies.Single, at + " refuses the user name or the password"},
		{i.with(func(b *attach.Backend) { b.Username, b.Password = "", "wrong-secret" }), topologies.Single, at + " refuses the user name or the password"},
		{i.with(func(b *attach.Backend) { b.Username, b.Password = "", "" }), topologies.Single, at + " wants a password"},
		{good, topologies.Sentinels, at + " refuses the user name or the password"},
		{i.with(func(b *attach.Backend) { b.SentinelPassword = chaosPassword }), topologies.Cluster, at + " is a server on its own, where topology cluster has a node of a cluster"},
		{i.with(func(b *attach.Backend) { b.Endpoints = append(b.Endpoints, "127.0.0.1:1") }), topologies.Single, "topology single is one server, and 2 endpoints were given"},
		{good, topologies.Independent, "an odd number of servers, three at least, and 1 endpoints were given"},
		{i.with(func(b *attach.Backend) { b.Toxiproxy = "127.0.0.1:1" }), topologies.Single, "no toxiproxy answers at 127.0.0.1:1"},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) { refused(t, tt.backend, tt.topology, tt.want) })
	}
}

func sentinelsOfAnotherKind(t *testing.T, i *installation) {
	t.Helper()
	sentinel, replica := i.endpoint("sentinel-1"), i.endpoint("redis-2")
	tests := []struct {
		backend        attach.Backend
		topology, want string
	}{
		{i.with(func(b *attach.Backend) { b.MasterName = "orders" }), topologies.Sentinels, "watches no master named orders, but mymaster"},
		{i.with(func(b *attach.Backend) { b.SentinelPassword = "wrong-secret" }), topologies.Sentinels, "refuses the user name or the password"},
		{i.with(func(b *attach.Backend) { b.SentinelPassword = "" }), topologies.Sentinels, "wants a password"},
		{i.with(func(b *attach.Backend) { b.Password = "wrong-secret" }), topologies.Sentinels, "refuses the user name or the password"},
		{i.with(func(b *attach.Backend) {
			b.Endpoints, b.SentinelUsername, b.SentinelPassword = []string{replica}, "chaos", chaosPassword
		}), topologies.Sentinels, replica + " is a server on its own, where topology sentinel has a sentinel"},
		{i.with(func(b *attach.Backend) {
			b.Endpoints, b.Username, b.Password = []string{sentinel}, "", sentinelPassword
		}), topologies.Single, sentinel + " is a sentinel, where topology single has a server on its own (its topology is sentinel)"},
		{i.with(func(b *attach.Backend) { b.Endpoints = []string{replica} }), topologies.Single, replica + " is a replica of "},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) { refused(t, tt.backend, tt.topology, tt.want) })
	}

	var met atomic.Int32
	slow := listener(t, func(c net.Conn) {
		if met.Add(1) <= 2 { // those by which it is asked what it is, and what it sees
			time.Sleep(700 * time.Millisecond)
		}
		forward(c, sentinel)
	})
	d, err := i.with(func(b *attach.Backend) { b.Endpoints = []string{slow} }).Start(within(t), topologies.Topology{Name: topologies.Sentinels})
	require.NoError(t, err)
	require.NoError(t, d.Close())

	c := i.client("sentinel-2")
	defer c.Close()
	master := i.at["redis-1"].Announced
	require.NoError(t, c.Do(within(t), "SENTINEL", "MONITOR", "orders", master.Addr().String(), master.Port(), 1).Err())
	refused(t, i.backend(), topologies.Sentinels, "watches several masters, of which one must be named: ")
	require.NoError(t, c.Do(within(t), "SENTINEL", "REMOVE", "orders").Err())
}

func aClusterThatIsNotWhole(t *testing.T, i *installation) {
	t.Helper()
	ctx := within(t)
	refused(t, i.backend(), topologies.Single, "is a node of a cluster, where topology single has a server on its own")
	for _, name := range i.topology.Of(topologies.Redis) {
		c := i.client(name)
		defer c.Close()
		_ = c.ClusterDelSlots(ctx, 7).Err() // each forgets by itself; replicas refuse
	}
	refused(t, i.backend(), topologies.Cluster, "it says cluster_slots_assigned 16383, and not 16384")
}

func TestOneServerUnderTwoNamesIsRefused(t *testing.T) {
	t.Parallel()
	i := install(t, topologies.Single, "--bind", ownAddress().String(), "127.0.0.1")
	b := i.backend()
	port := strconv.Itoa(int(i.at["redis-1"].Announced.Port()))
	b.Endpoints = append(b.Endpoints, "127.0.0.1:"+port, "localhost:"+port)
	refused(t, b, topologies.Independent, "are the same server")
}

func TestAProjectThatIsNotThereIsRefused(t *testing.T) {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("[]")) }))
	defer engine.Close()
	t.Setenv("DOCKER_HOST", "tcp://"+engine.Listener.Addr().String())
	t.Setenv("DOCKER_TLS_VERIFY", "")
	refused(t, attach.Backend{Compose: "nothing"}, topologies.Single, "there is no container of a compose project nothing")
	t.Setenv("DOCKER_HOST", "ssh://somewhere")
	refused(t, attach.Backend{Compose: "nothing"}, topologies.Single, "DOCKER_HOST")
	t.Setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
	_, err := attach.Backend{Compose: "nothing"}.Start(within(t), topologies.Topology{Name: topologies.Single})
	require.ErrorIs(t, err, topologies.ErrMissing)
}

// certify makes a certificate for 127.251.x.y that signs itself.
func certify(t *testing.T) (certificate, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redis"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{ownAddress().AsSlice()},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	secret, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name, kind string, bytes []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600))
		return path
	}
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool = x509.NewCertPool()
	pool.AddCert(parsed)
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", secret), pool
}

func TestTLS(t *testing.T) {
	t.Parallel()
	plain := install(t, topologies.Single)
	certificate, key, pool := certify(t)
	tlsPort := strconv.Itoa(int(nextPort()))
	i := install(t, topologies.Single, "--tls-port", tlsPort, "--tls-cert-file", certificate, "--tls-key-file", key,
		"--tls-ca-cert-file", certificate, "--tls-auth-clients", "no")
	b := i.backend()
	b.Endpoints = []string{net.JoinHostPort(ownAddress().String(), tlsPort)}
	b.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	d := attached(t, i, b)
	c := topologies.Clients(d.ClientOptions("zone-a"))[0]
	require.NoError(t, c.Ping(within(t)).Err())
	require.NoError(t, c.Close())

	b.TLS = nil
	refused(t, b, topologies.Single, "wants TLS")
	b.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	refused(t, b, topologies.Single, "has a certificate that isn't trusted")
	b.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12, ServerName: "elsewhere"}
	refused(t, b, topologies.Single, "has a certificate that isn't trusted")
	b.TLS, b.Endpoints = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, plain.endpoints(topologies.Redis)
	refused(t, b, topologies.Single, "it may not speak TLS")
}
