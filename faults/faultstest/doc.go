// Package faultstest is the contract of a fault: what every mechanism must do,
// on a deployment that is really there.
package faultstest
