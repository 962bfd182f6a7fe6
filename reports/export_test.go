package reports

// Plots are those of a run.
func Plots(in Input) (string, error) {
	all, err := newModel(in).plots()
	svg := ""
	for _, p := range all {
		svg += p.svg
	}
	return svg, err
}
