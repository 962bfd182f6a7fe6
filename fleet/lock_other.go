//go:build !unix

package fleet

import "os"

// lock does nothing: this system has no flock.
func lock(*os.File, bool) error { return nil }
