// Package campaign makes runs and judges them: one, or the many of a campaign, which are noted in a journal as they
// end. It reads what the journals of a campaign have, joins that, and remembers it from night to night.
package campaign
