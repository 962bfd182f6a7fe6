package shim

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockchaos/lockchaos/topologies/internal/scratch"
)

// Clocks are the wall clocks of machines, by their names: all processes of one that are started with its
// [Clocks.Environment] see the same time. Close them once the processes are gone.
type Clocks struct {
	folder  *scratch.Folder
	library string
	of      map[string]*Shim
}

// NewClocks makes the clocks of some machines. It fails if this one is not [Usable].
func NewClocks(names []string) (c *Clocks, err error) {
	c = &Clocks{of: map[string]*Shim{}}
	if c.folder, err = scratch.Make("clocks"); err != nil {
		return nil, err
	}
	c.library, err = Write(c.folder.Path)
	for _, name := range names {
		if err == nil {
			c.of[name], err = New(name, filepath.Join(c.folder.Path, name))
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Of is the clock of a machine; nil if it has none of its own.
func (c *Clocks) Of(name string) *Shim {
	if c == nil {
		return nil
	}
	return c.of[name]
}

// Environment is what a process of a machine is started with, as NAME=VALUE.
func (c *Clocks) Environment(name string) []string {
	h := c.Of(name)
	if h == nil {
		return nil
	}
	libraries := strings.Trim(c.library+":"+os.Getenv("LD_PRELOAD"), ":")
	return []string{"LD_PRELOAD=" + libraries, h.Setting()}
}

// Close removes what they share with the processes.
func (c *Clocks) Close() error {
	var errs []error
	for _, h := range c.of {
		if h != nil {
			errs = append(errs, h.Close())
		}
	}
	return errors.Join(append(errs, c.folder.Close())...)
}
