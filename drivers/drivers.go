// Package drivers has what drivers in several languages share: for each language one file, the driver protocol, which a driver has
// beside it.
package drivers

import "embed"

// Transports are those files, LANGUAGE/lockchaos.EXTENSION.
//
//go:embed */[lL]ockchaos.*
var Transports embed.FS
