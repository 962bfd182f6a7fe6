// Package redis makes the faults of a Redis server that runs and is reached:
// what is forgotten, refused or held up in it, as an administrator, a full
// memory or a bad script would.
package redis
