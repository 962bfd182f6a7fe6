package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDrawCurves(t *testing.T) {
	empty, err := DrawCurves("nothing", []Curve{{Name: "none"}})
	require.NoError(t, err)
	require.Empty(t, empty)
	svg, err := DrawCurves(`wait & "hold"`, []Curve{
		{Name: "floor", Base: true, Points: []CurvePoint{{0, 40}, {0.5, 50}, {0.99, 200}}},
		{Name: "mutex", Hue: 1, Points: []CurvePoint{{0, 60}, {0.5, 90}, {0.999, 4000}, {1, 9000}}},
	})
	require.NoError(t, err)
	for _, want := range []string{"floor", "mutex", "99.9 %", "µs", ">100<", ">1000<", "stroke-dasharray", "#D98200"} {
		require.Contains(t, svg, want)
	}
	require.NotContains(t, svg, "99.99 %", "a share of 1 has no place on the axis")
	decoder := xml.NewDecoder(strings.NewReader(svg))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
}
