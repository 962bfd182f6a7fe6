//go:build !linux

package shim

import (
	"errors"
	"os"
)

func mapFile(*os.File, int) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmap([]byte) error { return errors.ErrUnsupported }

func look(string) (inode, size int64, err error) { return 0, 0, errors.ErrUnsupported }
