package fleet

import (
	"fmt"
	"os"
)

// Hold waits until no other process has the memory in a folder, and keeps it from others until release is called.
func Hold(dir string) (release func() error, err error) {
	f, err := os.Open(dir)
	if err == nil {
		err = lock(f, true)
	}
	if err != nil {
		return nil, fmt.Errorf("hold %s: %w", dir, err)
	}
	return f.Close, nil
}
