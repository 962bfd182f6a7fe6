// Package locktests tests package lock as its users see it. The tests are not beside
// what they test because `go mod tidy` of a service follows what the tests of each package
// import that the service uses: the libraries of these tests, and the servers and faults
// of this module, would become requirements of each service that uses a lock.
package locktests
