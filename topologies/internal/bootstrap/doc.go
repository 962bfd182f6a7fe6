// Package bootstrap is what all backends share: given servers and the links
// between them, it knows when they are ready, what they say of themselves, how
// they are made to fail over, how clients are connected, and how Redis,
// Sentinel and Cluster are configured for all that.
//
// A backend supplies [Parts], and gets a [topologies.Deployment] from [Boot],
// which starts the servers, or from [Adopt], which takes servers that run.
package bootstrap
