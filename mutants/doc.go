// Package mutants has locks with one planted bug each, beside the scripts that must
// convict them: they test the harness and the checker. The twin of each is the same lock
// without the bug, which the same script must find valid.
package mutants
