// Package importers reads histories that other tools have recorded, and makes
// histories of ours of them.
package importers
