// Package locktests has those tests of package lock that need other libraries, or the servers
// and faults of this module. Beside the package, these imports would become requirements of each
// service that uses a lock: `go mod tidy` follows the tests of the packages that a service imports.
package locktests
