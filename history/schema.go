package history

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

type object = map[string]any

// Schema is the JSON Schema (draft 2020-12) of a line of a history, made of [Fields]. It accepts what a
// [Reader] accepts of a line by itself; what takes several lines to see, such as a
// completion without its invocation, it can't say.
func Schema() []byte {
	properties, rules := object{}, []any{}
	for i := range table.fields {
		f := &table.fields[i]
		properties[f.Name] = f.schema()
		if f.Where != "" {
			absent := empty
			if f.Name == "queued" || f.Name == "fenced" { // of which 0 and false say something
				absent = object{"const": nil}
			}
			rules = append(rules, object{"if": object{"not": f.onLines()}, "then": object{"properties": object{f.Name: absent}}})
		}
		if f.Needed != "" {
			rules = append(rules, object{"if": ofOps(strings.Split(f.Needed, ", ")), "then": given(f.Name)})
		}
	}
	for _, o := range table.operators {
		then := object{}
		if len(o.Types) < 4 {
			then["type"] = object{"enum": o.Types}
		}
		if !o.Unmade {
			then["process"] = object{"minimum": 0}
		}
		if len(then) > 0 {
			rules = append(rules, object{"if": ofOps([]string{string(o.Op)}), "then": object{"properties": then}})
		}
	}
	rules = append(rules,
		object{"if": ofOps([]string{string(Access)}), "then": object{"anyOf": []any{given("resource"), given("lock")}}},
		object{"if": object{"required": []string{"mode"}, "properties": object{"mode": object{"enum": []Mode{Exclusive, Read, Write}}}}, "then": object{"properties": object{"permits": empty}}},
		object{"if": object{"properties": object{"kind": object{"enum": []any{KindMutex, KindRW, "", nil}}}}, "then": object{"properties": object{"capacity": empty}}},
		object{"if": object{"properties": object{"op": object{"const": Declare}, "capacity": empty}}, "then": object{"properties": object{"from": empty}}},
	)
	document := object{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"$id":     "https://github.com/lockchaos/lockchaos/history/schema.json",
		"title":   "A line of a lockchaos history",
		"description": "One event. A file is such objects, one a line; null, 0, false and an empty string, list or object are the same as absent, but for time, process, queued and fenced. What is not in this schema: fields that are there twice or in another spelling (Time), the order of the times, " +
			"a completion without its invocation or with another lock, owner, mode or amount, a process that does two things at once, a late declare, and whole numbers that are written as fractions (1.0, 1e3).",
		"type":       "object",
		"required":   []string{"time", "process", "type", "op"},
		"properties": properties,
		"allOf":      rules,
	}
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	_ = out.Encode(document) // which is plain data
	return b.Bytes()
}

// empty is what says nothing.
var empty = object{"enum": []any{nil, "", 0, false, []any{}, object{}}} //nolint:gochecknoglobals // data

// schema is that of the values of the field.
func (f *Field) schema() object {
	s := object{"description": f.Meaning}
	kind, _, _ := strings.Cut(f.Kind(), " of ") // strings
	switch {
	case f.words != nil && f.Where == "":
		s["enum"] = f.words
	case f.words != nil:
		s["anyOf"] = []any{object{"enum": f.words}, object{"enum": []any{"", nil}}}
	case f.at == fieldTime || f.at == fieldProcess:
		s["type"] = kind
	default:
		s["type"] = []string{kind, "null"}
	}
	if kind == "integer" {
		s["minimum"], s["maximum"] = f.least, f.most
	}
	value := object{"type": []string{"string", "null"}}
	switch kind {
	case "object":
		s["additionalProperties"] = value
	case "array":
		s["items"] = value
	}
	return s
}

// onLines is the condition that the field may be on the line.
func (f *Field) onLines() object {
	var forms []any
	for i := range table.operators {
		o := &table.operators[i]
		types := slices.DeleteFunc(slices.Clone(o.Types), func(t Type) bool { return !f.on(o, t) })
		if len(types) > 0 {
			forms = append(forms, object{"properties": object{"op": object{"const": o.Op}, "type": object{"enum": types}}})
		}
	}
	return object{"anyOf": forms}
}

func ofOps(ops []string) object { return object{"properties": object{"op": object{"enum": ops}}} }

// given says that a field is there, and says something.
func given(field string) object {
	return object{"required": []string{field}, "properties": object{field: object{"type": "string", "minLength": 1}}}
}
