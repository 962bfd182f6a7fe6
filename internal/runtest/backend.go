package runtest

import (
	"sync"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// Backend starts local processes afresh: for a test that counts starts or changes what is started.
type Backend = process.Backend

var servers struct { //nolint:gochecknoglobals // of all tests of a binary
	sync.Mutex

	backend topologies.Backend
	close   func() error
}

// Servers is the backend that the tests of a package share: a deployment that a test has closed is
// given to the next test that wants the same topology, if it proves to be as good as new (see
// [harness.Pool]). `make nightly` starts each afresh. [Main] stops all of them.
func Servers() topologies.Backend {
	if Nightly() {
		return Backend{}
	}
	servers.Lock()
	defer servers.Unlock()
	if servers.backend == nil {
		servers.backend, servers.close = harness.Pool(Backend{})
	}
	return servers.backend
}

// stop stops the servers that tests have shared.
func stop() error {
	servers.Lock()
	defer servers.Unlock()
	if servers.close == nil {
		return nil
	}
	err := servers.close()
	servers.backend, servers.close = nil, nil
	return err
}
