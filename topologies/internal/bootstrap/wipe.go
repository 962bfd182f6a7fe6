package bootstrap

import (
	"os"
	"path/filepath"
)

// wipe removes the data of a server that does not run from its folder. What it
// knows of the others stays.
func wipe(dir string) error {
	for _, pattern := range DataFiles() {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			if err := os.RemoveAll(file); err != nil {
				return err
			}
		}
	}
	return nil
}
