//go:build !unix

// Package scratch makes folders that do not outlive the process that made them.
package scratch

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// A Folder is empty when it is made. Close removes it; that of a process that was
// killed stays, since this system has no shell that could remove it.
type Folder struct{ Path string }

// Make makes a folder for temporary files; kind is a part of its name.
func Make(kind string) (*Folder, error) {
	path, err := os.MkdirTemp("", "lockchaos-"+kind+"-*")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	return &Folder{Path: path}, nil
}

// MakeFast is [Make].
func MakeFast(kind string) (*Folder, error) { return Make(kind) }

// Close removes the folder.
func (f *Folder) Close() error { return os.RemoveAll(f.Path) }

// Leave does nothing.
func (f *Folder) Leave() error { return nil }

// Tell does nothing: there is no script.
func (f *Folder) Tell(string) error { return nil }

// Hold fails: it needs a shell.
func Hold(string, string, ...string) (*Folder, error) {
	return nil, fmt.Errorf("start reaper on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// Unheld does nothing: folders are not held on this system.
func Unheld(string, func()) {}

// Fast is where [MakeFast] makes folders.
func Fast() string { return os.TempDir() }
