package main

import (
	"encoding/json"
	"fmt"
	"io"
)

// An output passes on what is written, and tells once that fails.
type output struct {
	to     io.Writer
	failed func(error)
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.to.Write(b)
	if err != nil {
		err = outputError{err}
		o.failed(err)
	}
	return n, err
}

// An outputError says that a result could not be written.
type outputError struct{ error }

func (e outputError) Error() string { return fmt.Sprintf("write output: %v", e.error) }
func (e outputError) Unwrap() error { return e.error }

// json prints a value as indented JSON.
func (a *app) json(v any) error { return asHarness(indented(a.stdout, v)) }

// indented writes a value as indented JSON.
func indented(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
