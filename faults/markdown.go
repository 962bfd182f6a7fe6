package faults

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/lockchaos/lockchaos/internal/say"
)

// Markdown is the table of all faults that the documentation has.
func Markdown() string {
	rows := [][]string{{"fault", "target", "parameters", "life", "effects", "observed as its effect", "healed by", "pitfalls"}}
	for _, spec := range All() {
		var params, effects []string
		for _, p := range spec.Params {
			params = append(params, p.markdown())
		}
		for _, e := range spec.Effects {
			effects = append(effects, string(e))
		}
		target := string(spec.Target)
		if spec.Target == AtDeployment {
			target = ""
		}
		rows = append(rows, []string{
			"`" + spec.Name + "`", cmp.Or(target, "–"), cmp.Or(strings.Join(params, "; "), "–"), string(spec.Life), cmp.Or(strings.Join(effects, ", "), "–"),
			spec.Observed, cmp.Or(spec.Healed, "–"), spec.Pitfall,
		})
	}
	return say.Markdown(rows)
}

// markdown is the parameter as the table has it: "`by`: ms, from 100".
func (p Param) markdown() string {
	var notes []string
	if p.Unit != "" {
		notes = append(notes, p.Unit)
	}
	if p.About != "" {
		notes = append(notes, p.About)
	}
	if p.Least > 1 {
		notes = append(notes, fmt.Sprintf("from %d", p.Least))
	}
	if p.Values != nil {
		notes = append(notes, "`"+strings.Join(p.Values, "`, `")+"`")
	}
	if p.Default != "" {
		notes = append(notes, "default `"+p.Default+"`")
	}
	if len(notes) == 0 {
		return "`" + p.Name + "`"
	}
	return "`" + p.Name + "`: " + strings.Join(notes, ", ")
}
