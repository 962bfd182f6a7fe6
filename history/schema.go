package history

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schema []byte

// Schema is the JSON Schema (draft 2020-12) of a line of a history. It accepts what a
// [Reader] accepts of a line by itself; what takes several lines to see, such as a
// completion without its invocation, it can't say.
func Schema() []byte { return slices.Clone(schema) }
