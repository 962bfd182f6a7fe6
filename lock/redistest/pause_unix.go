//go:build unix

package redistest

import "syscall"

func stop(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }

func goOn(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }
