package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
)

// maxRun is the longest record of a run that [ReadRun] accepts, in bytes.
const maxRun = 64 << 20

// ReadRun reads the record of a run. It refuses what no run writes: another
// version, numbers that are negative or absurd, fields that are there twice or in
// another spelling, and anything behind the object.
func ReadRun(r io.Reader) (Run, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxRun+1))
	switch {
	case err != nil:
		return Run{}, err
	case len(b) > maxRun:
		return Run{}, fmt.Errorf("longer than %d bytes", maxRun)
	case len(bytes.TrimSpace(b)) == 0:
		return Run{}, errors.New("it is empty")
	}
	object, err := objectOf(b, "want one JSON object")
	if err != nil {
		return Run{}, err
	}
	var run Run
	if err := spelled(object, reflect.TypeFor[Run]()); err != nil {
		return Run{}, err
	}
	if err := json.Unmarshal(object, &run); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return Run{}, fmt.Errorf("field %q: found a %s that can't stand there", wrong.Field, clipped(wrong.Value))
		}
		return Run{}, fmt.Errorf("a value can't stand there: %s", clipped(err.Error()))
	}
	if run.Version != RunVersion {
		return Run{}, fmt.Errorf("version %d, want %d", run.Version, RunVersion)
	}
	if err := inRange("", reflect.ValueOf(run)); err != nil {
		return Run{}, err
	}
	return run, nil
}

// spelled says which key of an object is not the name of a field although it looks
// like one, or is there twice.
func spelled(object json.RawMessage, of reflect.Type) error {
	had := map[string]bool{}
	return members(object, func(key string, _ json.RawMessage) error {
		if had[key] {
			return fmt.Errorf("field %+q is there twice", clipped(key))
		}
		had[key] = true
		for field := range of.Fields() {
			if name := nameOf(field); strings.EqualFold(key, name) && key != name {
				return fmt.Errorf("field %+q: write it as %q", clipped(key), name)
			}
		}
		return nil
	})
}

// inRange says which number of a value is negative, or greater than any time.
func inRange(path string, v reflect.Value) error {
	wrong := func(n any) error { return fmt.Errorf("field %q: %v is out of range", path, n) }
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		if v.Int() < 0 || v.Int() > int64(MaxTime) {
			return wrong(v.Int())
		}
	case reflect.Float64:
		if v.Float() < 0 || v.Float() > float64(MaxTime) {
			return wrong(v.Float())
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return inRange(path, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			if err := inRange(path, v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return nil
		}
		for field, value := range v.Fields() {
			if err := inRange(strings.TrimPrefix(path+"."+nameOf(field), "."), value); err != nil {
				return err
			}
		}
	default: // no number is in it
	}
	return nil
}

func nameOf(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}
