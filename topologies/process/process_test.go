package process_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

func TestMain(m *testing.M) { runtest.Main(m) }

func start(t *testing.T, name string) topologies.Deployment {
	t.Helper()
	return runtest.Start(t, runtest.Servers(), name, topologies.Options{})
}

func within(t *testing.T) context.Context {
	t.Helper()
	return runtest.Within(t, 2*time.Minute)
}

// past is a connection to a server past every fault, which waits for an answer
// longer than the observer, to whom a server that is slow is silent.
func past(s topologies.Server) *redis.Client { return s.Observer().WithTimeout(30 * time.Second) }

// script is a program that is none of the servers'.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o700))
	return path
}

// What is wrong with the server programs of a machine is said in a sentence.
func TestProgramsThatCantBeUsed(t *testing.T) {
	jar := filepath.Join(t.TempDir(), "zookeeper.jar")
	require.NoError(t, os.WriteFile(jar, nil, 0o600))
	zookeeper := func(version, otherwise string) string {
		return script(t, `for a; do last=$a; done; case $last in *VersionInfoMain) echo "Apache ZooKeeper, version `+version+` 2024-12-29";; *) `+otherwise+`;; esac`)
	}
	type test struct {
		name, program, want string
		is                  error
		path                string // of the machine; empty: as it is
		jar                 string
	}
	for topology, tests := range map[string][]test{
		topologies.Single: {
			{"not there", "/nowhere/redis-server", "LOCKCHAOS_REDIS_SERVER names /nowhere/redis-server, and there is no such program", topologies.ErrUnusable, "", ""},
			{"too old", script(t, "echo Redis server v=6.2.14 sha=0"), "7.0.0 is the oldest", topologies.ErrTooOld, "", ""},
			{"another program", script(t, "echo hello"), "which is no redis-server: no version of Redis in", topologies.ErrUnusable, "", ""},
			{"no answer", "/bin/false", "names /bin/false, which is no redis-server: false --version: exit status 1", topologies.ErrUnusable, "", ""},
			{"does not come up", script(t, `[ "$1" = --version ] && echo v=7.0.0 || { echo "Out of luck"; exit 1; }`), "Out of luck", nil, "", ""},
			{"none", "", "no redis-server (install it with `make redis` or `apt-get install redis-server`", topologies.ErrMissing, t.TempDir(), ""},
		},
		topologies.EtcdCluster: {
			{"not there", "/nowhere/etcd", "LOCKCHAOS_ETCD names /nowhere/etcd, and there is no such program", topologies.ErrUnusable, "", ""},
			{"another program", script(t, "echo hello"), "which is no etcd: no version of etcd", topologies.ErrUnusable, "", ""},
			{"too old", script(t, "echo etcd Version: 3.3.25"), "etcd is too old: ", topologies.ErrTooOld, "", ""},
			{"does not come up", script(t, `case $1 in --version) echo etcd Version: 3.4.23;; *) echo no room on this disk; exit 1;; esac`), "no room on this disk", nil, "", ""},
			{"none", "", "no etcd (install it with `make etcd` or `apt-get install etcd-server`", topologies.ErrMissing, t.TempDir(), ""},
		},
		topologies.ZooKeeperEnsemble: {
			{"no such jar", "", "LOCKCHAOS_ZOOKEEPER names /nowhere/zookeeper.jar, and there is no such jar", topologies.ErrUnusable, "", "/nowhere/zookeeper.jar"},
			{"no such java", "/nowhere/java", "LOCKCHAOS_JAVA names /nowhere/java, and there is no such program", topologies.ErrUnusable, "", jar},
			{"another jar", script(t, "echo Error: no main class >&2; exit 1"), "LOCKCHAOS_ZOOKEEPER names " + jar + ", which is no zookeeper.jar: Error: no main class", topologies.ErrUnusable, "", jar},
			{"another program", script(t, "echo hello"), "no version of ZooKeeper in what it prints", topologies.ErrUnusable, "", jar},
			{"too old", zookeeper("3.4.13", ""), "zookeeper is too old: " + jar + " is version 3.4.13, and 3.8.0 is the oldest", topologies.ErrTooOld, "", jar},
			{"does not come up", zookeeper("3.8.0", "echo no room on this disk; exit 1"), "no room on this disk", nil, "", jar},
			{"no java", "", "no java (install it with `make zookeeper` or `apt-get install default-jre-headless`", topologies.ErrMissing, t.TempDir(), jar},
		},
	} {
		variable := map[string]string{
			topologies.Single: process.BinaryVariable, topologies.EtcdCluster: process.EtcdVariable, topologies.ZooKeeperEnsemble: process.JavaVariable,
		}[topology]
		for _, tt := range tests {
			t.Run(topology+" "+tt.name, func(t *testing.T) {
				t.Setenv(variable, tt.program)
				t.Setenv(process.ZooKeeperVariable, tt.jar)
				if tt.path != "" {
					t.Setenv("PATH", tt.path)
				}
				planned, err := topologies.ByName(topology)
				require.NoError(t, err)
				_, err = process.Backend{}.Start(within(t), planned)
				require.ErrorContains(t, err, tt.want)
				if tt.is != nil {
					require.ErrorIs(t, err, tt.is)
					require.NotContains(t, err.Error(), "\n")
				}
			})
		}
	}
}
