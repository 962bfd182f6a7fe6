package process

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/lockchaos/lockchaos/topologies/shim"
)

//go:embed shim/address.c
var addressSource []byte

var addressLibrary = sync.OnceValues(func() ([]byte, error) { return shim.Compile(addressSource) }) //nolint:gochecknoglobals // it is compiled once

// preloads are the libraries that a server is preloaded with, and what they are told.
type preloads struct {
	libraries []string
	settings  []string
}

func (p *preloads) add(library string, settings ...string) {
	p.libraries = append(p.libraries, library)
	p.settings = append(p.settings, settings...)
}

// environment is what a server is started with; nil: as we were.
func (p *preloads) environment() []string {
	if len(p.libraries) == 0 {
		return nil
	}
	return append(append(os.Environ(), "LD_PRELOAD="+strings.Join(p.libraries, ":")), p.settings...)
}

// rebind has every server listen at an address of its own when it asks for the one that it
// announces, and dial from there.
func (g *resources) rebind() error {
	compiled, err := addressLibrary()
	if err != nil {
		return err
	}
	library := filepath.Join(g.folder.Path, "address.so")
	if err := os.WriteFile(library, compiled, 0o700); err != nil { //nolint:gosec // it is a program
		return fmt.Errorf("write %s: %w", library, err)
	}
	for _, s := range g.servers {
		s.child.preloads.add(library, "LOCKCHAOS_ANNOUNCED="+s.At.Announced.Addr().String(), "LOCKCHAOS_LISTENING="+s.At.Listen.Addr().String())
	}
	return nil
}
