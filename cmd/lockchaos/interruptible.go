package main

import (
	"context"
	"io"
	"os"
)

// openUntil opens a file to read it until ctx ends, which also ends an open or a read that waits, such as
// that of a pipe without a writer. The file is closed once nothing waits for it any more.
func openUntil(ctx context.Context, path string) (io.ReadCloser, error) {
	type opened struct {
		file *os.File
		err  error
	}
	done := make(chan opened, 1)
	go func() {
		f, err := os.Open(path)
		done <- opened{f, err}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			return nil, o.err
		}
		return &untilReader{ctx: ctx, from: o.file, close: o.file.Close}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// An untilReader reads until ctx ends.
type untilReader struct {
	ctx     context.Context //nolint:containedctx // a reader has no other way
	from    io.Reader
	close   func() error
	buffer  []byte
	waiting bool // a read goes on
}

// Read reads into a buffer of its own, which a read that goes on after the end of ctx may fill.
func (u *untilReader) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, context.Cause(u.ctx)
	}
	if len(u.buffer) < len(p) {
		u.buffer = make([]byte, len(p))
	}
	type read struct {
		n   int
		err error
	}
	done := make(chan read, 1)
	go func(into []byte) {
		n, err := u.from.Read(into)
		done <- read{n, err}
	}(u.buffer[:len(p)])
	select {
	case r := <-done:
		copy(p, u.buffer[:r.n])
		return r.n, r.err
	case <-u.ctx.Done():
		u.waiting = true
		return 0, context.Cause(u.ctx)
	}
}

// Close closes the file, unless a read still waits for it: the program ends then.
func (u *untilReader) Close() error {
	if u.waiting {
		return nil
	}
	return u.close()
}
