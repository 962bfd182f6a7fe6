//go:build !unix

package redistest

import "errors"

func stop(int) error { return errors.ErrUnsupported }

func goOn(int) error { return errors.ErrUnsupported }
