package reports

import "github.com/lockchaos/lockchaos/reports/internal/chart"

// A Curve is a distribution of times, in the order of its shares.
type Curve = chart.Curve

// A CurvePoint says that a share of all, of 0 up to but not 1, took no longer than
// this many microseconds.
type CurvePoint = chart.CurvePoint

// DrawCurves draws distributions on the same axes as an SVG element for a page with the
// palette of the reports: to the right the share that took longer gets smaller, upwards the
// time longer. It is empty when no curve has two points.
func DrawCurves(title string, curves []Curve) (string, error) { return chart.DrawCurves(title, curves) }
