package chart

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A note that is longer than the diagram is wide is cut, and its whole text is its title.
func TestLongNotesStayWithinTheDiagram(t *testing.T) {
	long := "cut " + strings.Repeat("sentinel-1→redis-2 ", 30)
	q := Sequence{
		Actors: []Actor{{Name: "client a", Kind: "client"}, {Name: "redis-1", Kind: "server"}},
		Steps: []Step{
			{Kind: StepFault, Text: long},
			{Kind: StepNote, From: "redis-1", Text: "redis-1 was killed"},
		},
	}
	svg := q.Figure()
	width, err := strconv.ParseFloat(regexp.MustCompile(`viewBox="0 0 ([0-9.]+)`).FindStringSubmatch(svg)[1], 64)
	require.NoError(t, err)
	boxes := regexp.MustCompile(`class="(?:t-fault|q-note)" x="([0-9.]+)" y="[-0-9.]+" width="([0-9.]+)"`).FindAllStringSubmatch(svg, -1)
	require.Len(t, boxes, 2)
	for _, box := range boxes {
		x, err := strconv.ParseFloat(box[1], 64)
		require.NoError(t, err)
		w, err := strconv.ParseFloat(box[2], 64)
		require.NoError(t, err)
		require.LessOrEqual(t, x+w, width)
	}
	require.Contains(t, svg, "…</text>")
	require.Contains(t, svg, "<title>"+long+"</title>")
	require.Contains(t, svg, "redis-1 was killed</text>")
}
