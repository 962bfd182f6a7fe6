package scenarios

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"

	"github.com/lockchaos/lockchaos/history"
)

// What a file of a scenario may have at the most. A file may come from anywhere, and the decoder takes time and
// memory that grow much faster than the file: these bounds are checked before it is decoded.
const (
	maxBytes  = 1 << 20
	maxIndent = 40 // columns before a line
	maxNested = 10 // brackets within one another, and entries that begin on one line
	maxLength = 24 * time.Hour
)

// ErrEmpty says that a file has nothing but comments.
var ErrEmpty = errors.New("it is empty; want a scenario")

// Bounded says why a YAML file is not decoded.
func Bounded(b []byte) error {
	switch {
	case len(b) > maxBytes:
		return fmt.Errorf("longer than %d bytes", maxBytes)
	case bytes.IndexByte(b, 0) >= 0:
		return errors.New("there are NUL bytes; want YAML")
	}
	empty, nested, begun, line := true, 0, 0, 0
	for _, t := range lexer.Tokenize(string(b)) {
		at := t.Position
		if at.Line != line {
			line, begun = at.Line, 0
		}
		switch t.Type { //nolint:exhaustive // what nests, and what may not be there
		case token.CommentType, token.DocumentHeaderType, token.DocumentEndType, token.SpaceType:
			continue
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			return fmt.Errorf("line %d: %s: anchors, aliases and merge keys can't be used here", at.Line, strings.TrimSpace(t.Value))
		case token.MappingStartType, token.SequenceStartType:
			nested++
		case token.MappingEndType, token.SequenceEndType:
			nested--
		case token.SequenceEntryType, token.MappingKeyType:
			begun++
		}
		if max(nested, begun) > maxNested {
			return fmt.Errorf("line %d: nested deeper than %d", at.Line, maxNested)
		}
		empty = false
	}
	if empty {
		return ErrEmpty
	}
	for i, text := range bytes.Split(b, []byte("\n")) {
		if len(text)-len(bytes.TrimLeft(text, " \t")) > maxIndent && len(bytes.TrimSpace(text)) > 0 {
			return fmt.Errorf("line %d: indented by more than %d", i+1, maxIndent)
		}
	}
	return nil
}

// inRange says which number or time of a scenario is absurd.
func inRange(path string, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		if v.Type() == reflect.TypeFor[time.Duration]() {
			if d := time.Duration(v.Int()); max(d, -d) > maxLength {
				return fmt.Errorf("%s is %v: want %v at the most", path, d, maxLength)
			}
		} else if n := v.Int(); n < -history.MaxAmount || n > history.MaxAmount {
			return fmt.Errorf("%s must be at most %d, not %d", path, history.MaxAmount, n)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return inRange(path, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			if err := inRange(fmt.Sprintf("%s[%d]", path, i), v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if err := inRange(fmt.Sprintf("%s.%v", path, key), v.MapIndex(key)); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for field, value := range v.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
			if field.IsExported() && name != "" && name != "-" {
				if err := inRange(strings.TrimPrefix(path+"."+name, "."), value); err != nil {
					return err
				}
			}
		}
	default: // no number is in it
	}
	return nil
}
